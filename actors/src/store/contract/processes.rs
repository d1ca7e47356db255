//! What every store must do about relay processes. Its clock cannot be set, so rows are made older instead.

use super::{Fixture, T1, T2, add, only, process, set_status};
use crate::{
    clock::EpochMs,
    store::{LiveProcess, ProcessRecord},
};
use futures_util::future::join_all;
use relay_protocol::device::Presence;
use std::time::Duration;

/// Far longer than a test takes.
const GOOD_FOR: Duration = Duration::from_secs(3_600);
/// More than a call may take here.
const NOW_AT_MOST: Duration = Duration::from_secs(60);

fn record(n: u128) -> ProcessRecord {
    ProcessRecord {
        instance: process(n),
        version: format!("1.{n}"),
        host: format!("höst-{n}"),
        pid: u32::MAX,
        started_at: EpochMs(1_700_000_000_000 - i64::try_from(n).unwrap()),
        is_draining: false,
    }
}

async fn renew(fixture: &dyn Fixture, own: ProcessRecord) -> Vec<LiveProcess> {
    fixture.store().renew_process(own, GOOD_FOR).await.unwrap()
}

fn records(live: &[LiveProcess]) -> Vec<ProcessRecord> {
    live.iter().map(|process| process.record.clone()).collect()
}

pub(crate) async fn processes_are_listed_oldest_first_until_they_are_removed(fixture: &dyn Fixture) {
    assert_eq!(records(&renew(fixture, record(1)).await), [record(1)]);
    assert_eq!(records(&renew(fixture, record(3)).await), [record(3), record(1)]);
    let same_start = ProcessRecord { started_at: record(1).started_at, ..record(2) };
    assert_eq!(records(&renew(fixture, same_start.clone()).await), [record(3), record(1), same_start.clone()]);
    let leaving = ProcessRecord { is_draining: true, ..record(3) };
    assert_eq!(records(&renew(fixture, leaving.clone()).await), [leaving.clone(), record(1), same_start]);
    for _again in 0..2 {
        fixture.store().remove_process(process(2)).await.unwrap();
        assert_eq!(records(&renew(fixture, record(1)).await), [leaving.clone(), record(1)]);
    }
    fixture.store().remove_process(process(1)).await.unwrap();
    assert_eq!(records(&renew(fixture, leaving.clone()).await), std::slice::from_ref(&leaving));
    assert_eq!(records(&renew(fixture, record(1)).await), [leaving, record(1)], "it comes back as it was");
}

pub(crate) async fn a_process_says_how_long_ago_each_was_seen(fixture: &dyn Fixture) {
    renew(fixture, record(1)).await;
    let aged = Duration::from_secs(600);
    fixture.age_process(process(1), aged).await;
    let live = renew(fixture, record(2)).await;
    let seen: Vec<Duration> = live.iter().map(|process| process.last_seen).collect();
    assert!(seen[0] < NOW_AT_MOST && seen[1] >= aged && seen[1] < aged + NOW_AT_MOST, "{seen:?}");
    let live = renew(fixture, record(1)).await;
    assert!(live.iter().all(|process| process.last_seen < NOW_AT_MOST), "{live:?}");
}

pub(crate) async fn a_process_that_was_not_renewed_in_time_is_dead_and_its_row_goes(fixture: &dyn Fixture) {
    renew(fixture, record(1)).await;
    fixture.age_process(process(1), GOOD_FOR - NOW_AT_MOST).await;
    assert_eq!(records(&renew(fixture, record(2)).await), [record(2), record(1)]);
    fixture.age_process(process(1), NOW_AT_MOST).await;
    assert_eq!(records(&renew(fixture, record(2)).await), [record(2)]);
    assert_eq!(fixture.process_rows().await, 1);
    // Its own row has expired, and nobody took it away: it is good again.
    fixture.age_process(process(2), 2 * GOOD_FOR).await;
    assert_eq!(records(&renew(fixture, record(2)).await), [record(2)]);
    assert_eq!(records(&renew(fixture, record(1)).await), [record(2), record(1)]);
}

pub(crate) async fn statuses_of_a_live_process_are_not_stale(fixture: &dyn Fixture) {
    for device in 1..=2 {
        add(fixture, device, device).await;
        set_status(fixture, &[(device, Presence::Online, T1)], device).await;
        renew(fixture, record(device)).await;
    }
    assert_eq!(fixture.store().disconnect_stale(process(3), T2).await, Ok(0));
    fixture.age_process(process(1), 2 * GOOD_FOR).await;
    assert_eq!(fixture.store().disconnect_stale(process(3), T2).await, Ok(1), "expired, and nobody took its row away");
    assert_eq!((only(fixture, 1).await.status, only(fixture, 2).await.status), (Presence::Disconnected, Presence::Online));
    fixture.store().remove_process(process(2)).await.unwrap();
    assert_eq!(fixture.store().disconnect_stale(process(3), T2).await, Ok(1));
}

/// As after an outage that was longer than a renewal is good for.
pub(crate) async fn processes_that_find_each_other_expired_do_not_wait_for_each_other(fixture: &dyn Fixture) {
    for _round in 0..5 {
        for n in 1..=8 {
            renew(fixture, record(n)).await;
        }
        for n in 1..=8 {
            fixture.age_process(process(n), 2 * GOOD_FOR).await;
        }
        let answers = join_all((1..=8).map(|n| fixture.store().renew_process(record(n), GOOD_FOR))).await;
        for (n, answer) in (1..=8).zip(answers) {
            assert!(records(&answer.unwrap()).contains(&record(n)), "{n}");
        }
        for n in 1..=8 {
            renew(fixture, record(n)).await;
        }
        assert_eq!(renew(fixture, record(1)).await.len(), 8);
    }
}
