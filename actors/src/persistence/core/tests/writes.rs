//! Status writes and the end of stale statuses.

use super::*;

#[test]
fn the_newest_status_of_each_device_is_written_in_order_of_waiting() {
    let mut rig = Rig::new();
    rig.write(5, Presence::Online);
    assert_eq!(rig.last_batch(), [(5, Presence::Online)]);
    rig.write(9, Presence::Online);
    rig.write(1, Presence::Online);
    rig.write(9, Presence::Reconnecting);
    rig.write(5, Presence::Reconnecting);
    rig.write(9, Presence::Disconnected);
    assert_eq!(rig.writes.len(), 1, "one in flight");
    rig.written(Ok(()));
    assert_eq!(rig.last_batch(), [(9, Presence::Disconnected), (1, Presence::Online), (5, Presence::Reconnecting)]);
    rig.written(Ok(()));
    assert_eq!(rig.writes.len(), 2);
}

#[test]
fn the_number_of_status_statements_does_not_grow_with_devices() {
    let mut rig = Rig::with(&PersistenceConfig::default());
    for device in 0..1_001 {
        rig.write(device, Presence::Online);
    }
    rig.written(Ok(()));
    rig.written(Ok(()));
    assert_eq!(rig.writes.len(), 2);
    // One more than a statement takes goes into the next.
    for device in 0..1_002 {
        rig.write(device, Presence::Disconnected);
    }
    let sizes = |rig: &Rig| rig.writes[2..].iter().map(|(_, writes)| writes.len()).collect::<Vec<_>>();
    for _statement in 0..3 {
        rig.written(Ok(()));
    }
    assert_eq!(sizes(&rig), [1, 1_000, 1]);
}

#[test]
fn a_failed_status_write_stays_queued_and_the_newer_status_wins() {
    let mut rig = Rig::new();
    for device in [1, 2] {
        rig.write(device, Presence::Online);
    }
    rig.written(Ok(()));
    assert_eq!(rig.last_batch(), [(2, Presence::Online)]);
    rig.write(3, Presence::Online);
    rig.write(2, Presence::Disconnected);
    rig.written(Err(away()));
    assert_eq!(rig.writes.len(), 2, "the retry waits");
    rig.write(4, Presence::Online);
    rig.advance(config().retry_initial);
    // Device 2 has waited longest, and its older status is gone.
    assert_eq!(rig.last_batch(), [(2, Presence::Disconnected), (3, Presence::Online), (4, Presence::Online)]);
    rig.written(Ok(()));
    assert_eq!(rig.writes.len(), 3);
}

#[test]
fn a_failed_batch_returns_whole_and_before_the_rest() {
    let mut rig = Rig::new();
    rig.write(0, Presence::Online);
    for device in 1..=15 {
        rig.write(device, Presence::Online);
    }
    rig.written(Ok(()));
    let first: Vec<_> = rig.last_batch();
    assert_eq!(first.len(), 10);
    rig.written(Err(away()));
    rig.advance(config().retry_initial);
    assert_eq!(rig.last_batch(), first);
    rig.written(Ok(()));
    assert_eq!(rig.last_batch(), (11..=15).map(|device| (device, Presence::Online)).collect::<Vec<_>>());
}

#[test]
fn a_device_that_was_written_to_during_a_failed_statement_is_queued_once() {
    let mut rig = Rig::new();
    rig.write(0, Presence::Online);
    for device in 1..=20 {
        rig.write(device, Presence::Online);
    }
    rig.written(Ok(()));
    for device in 1..=10 {
        rig.write(device, Presence::Disconnected);
    }
    rig.written(Err(away()));
    rig.advance(config().retry_initial);
    assert_eq!(rig.last_batch(), (1..=10).map(|device| (device, Presence::Disconnected)).collect::<Vec<_>>());
    rig.written(Ok(()));
    assert_eq!(rig.last_batch(), (11..=20).map(|device| (device, Presence::Online)).collect::<Vec<_>>());
    rig.written(Ok(()));
    assert_eq!(rig.writes.len(), 4);
    // No empty place is left in the queue either.
    rig.write(21, Presence::Online);
    assert_eq!(rig.last_batch(), [(21, Presence::Online)]);
}

#[test]
fn failed_status_writes_wait_twice_as_long_each_time_up_to_the_bound() {
    let mut rig = Rig::new();
    rig.write(1, Presence::Online);
    for (failure, millis) in [250, 500, 1_000, 1_000, 1_000].into_iter().enumerate() {
        let wait = Duration::from_millis(millis);
        rig.written(Err(away()));
        assert_eq!(rig.core.next_timeout(), Some((rig.now + wait, "status retry")));
        rig.advance(wait - MS);
        rig.write(2, Presence::Online);
        assert_eq!(rig.writes.len(), failure + 1, "1 ms before {wait:?}");
        rig.advance(MS);
        assert_eq!(rig.writes.len(), failure + 2, "at {wait:?}");
    }
    // A success ends it; the next failure waits the first time again.
    rig.written(Ok(()));
    rig.write(1, Presence::Online);
    rig.written(Err(away()));
    assert_eq!(rig.core.next_timeout(), Some((rig.now + Duration::from_millis(250), "status retry")));
    // A timeout that comes late does the same.
    rig.advance(Duration::from_millis(251));
    assert_eq!(rig.core.next_timeout(), None);
    rig.written(Ok(()));
}

#[test]
fn stale_statuses_are_ended_once_and_retried_until_then() {
    let mut rig = Rig::new();
    rig.input(Input::ReconcileStale { at: EpochMs(7) });
    for (failure, millis) in [250, 500, 1_000, 1_000, 1_000].into_iter().enumerate() {
        let wait = Duration::from_millis(millis);
        rig.stale_ended(Err(away()));
        assert_eq!(rig.core.next_timeout(), Some((rig.now + wait, "stale status retry")));
        rig.advance(wait - MS);
        assert_eq!(rig.stale.len(), failure + 1);
        rig.advance(MS);
        assert_eq!(rig.stale.len(), failure + 2);
    }
    assert!(rig.core.state().stale_pending);
    rig.stale_ended(Ok(3));
    assert!(!rig.core.state().stale_pending);
    assert!(rig.stale.iter().all(|(_, at)| *at == EpochMs(7)));
    assert_eq!(rig.reports.last(), Some(&Effect::ReportStaleEnded { devices: 3 }));
    assert_eq!(rig.core.next_timeout(), None);
}

#[test]
fn status_and_stale_statements_take_turns_and_neither_holds_up_the_other_by_failing() {
    let mut rig = Rig::new();
    rig.write(1, Presence::Online);
    rig.write(2, Presence::Online);
    rig.input(Input::ReconcileStale { at: EpochMs(7) });
    assert_eq!((rig.writes.len(), rig.stale.len()), (1, 0), "one write in flight");
    rig.written(Ok(()));
    assert_eq!((rig.writes.len(), rig.stale.len()), (1, 1));
    rig.stale_ended(Err(away()));
    assert_eq!((rig.writes.len(), rig.stale.len()), (2, 1), "statuses go on while the other backs off");
    rig.written(Err(away()));
    rig.advance(config().retry_initial);
    assert_eq!((rig.writes.len(), rig.stale.len()), (2, 2));
    rig.stale_ended(Ok(0));
    assert_eq!((rig.writes.len(), rig.stale.len()), (3, 2));
}
