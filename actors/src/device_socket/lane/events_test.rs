//! The coalescing buffer by tables: what replaces what, when it is written, when it is full, and what it costs.

use super::{
    EventLimits, Lane, Pulled, Refused, SLICE_BYTES_MAX,
    lane_test::{Wakes, budget, drain_at, frames, lane_with, payloads, pull_at, text},
};
use crate::{
    clock,
    device_socket::budget::Budget,
    user_router::message::{LeaseEpoch, LeaseTerm, OutboundEvent, TimelineMark},
};
use relay_protocol::{close::CloseReason, limits, text::Text};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const MS: Duration = Duration::from_millis(1);
const INTERVAL: Duration = limits::EVENT_FLUSH_INTERVAL;
const LEASE: LeaseEpoch = LeaseEpoch(7);

fn regular(text: impl Into<String>) -> OutboundEvent {
    OutboundEvent { text: Text::from(text.into()), timeline: None }
}

fn timeline(epoch: LeaseEpoch, key: Option<&str>, text: impl Into<String>) -> OutboundEvent {
    OutboundEvent { timeline: Some(TimelineMark { epoch, key: key.map(Arc::from) }), ..regular(text) }
}

fn lease(epoch: LeaseEpoch, deadline: Instant) -> Option<LeaseTerm> {
    Some(LeaseTerm { epoch, deadline })
}

struct Rig {
    lane: Lane,
    budget: Arc<Budget>,
    start: Instant,
}

/// A lane of 4 MiB with the buffer's own defaults, and a lease of a minute.
fn rig() -> Rig {
    let (start, budget) = (clock::now(), budget(usize::MAX / 2));
    let lane = lane_with(4 << 20, EventLimits::default(), budget.clone(), start);
    lane.set_lease(lease(LEASE, start + Duration::from_secs(60)));
    Rig { lane, budget, start }
}

impl Rig {
    fn push(&self, event: OutboundEvent, after: Duration) {
        self.lane.push_event(event, self.start + after).unwrap();
    }

    /// The payloads that are written at this time.
    fn written(&self, after: Duration) -> Vec<String> {
        payloads(&drain_at(&self.lane, self.start + after).0)
    }

    fn is_idle(&self, after: Duration) -> bool {
        matches!(pull_at(&self.lane, self.start + after), Pulled::Nothing { flush_at: None })
    }
}

#[test]
fn what_is_pending_is_written_when_the_first_has_waited_for_the_interval() {
    let rig = rig();
    rig.push(regular("a"), 5 * MS);
    rig.push(timeline(LEASE, None, "b"), 100 * MS);
    let due = 5 * MS + INTERVAL;
    assert_eq!(pull_at(&rig.lane, rig.start + 5 * MS), Pulled::Nothing { flush_at: Some(rig.start + due) });
    assert_eq!(rig.written(due - MS), [""; 0]);
    assert_eq!(rig.written(due), ["a", "b"]);
    assert!(rig.is_idle(due + MS));
    rig.push(regular("c"), due + MS);
    assert_eq!(rig.written(due + INTERVAL), [""; 0], "what comes later waits for as long");
    assert_eq!(rig.written(due + MS + INTERVAL), ["c"]);
}

#[test]
fn from_64_kib_on_nothing_waits() {
    // Two headers of four bytes.
    let half = limits::EVENT_FLUSH_BYTES / 2 - 4;
    for (other_half, written) in [(half - 1, 0), (half, 2), (half + 1, 2)] {
        let rig = rig();
        rig.push(regular("x".repeat(half)), MS);
        rig.push(regular("x".repeat(other_half)), MS);
        assert_eq!(rig.written(MS).len(), written, "{other_half}");
        assert_eq!(rig.lane.queued_bytes() == 0, written > 0);
    }
}

#[test]
fn a_newer_overlay_replaces_the_pending_one_at_the_end_of_the_order_and_does_not_wait_anew() {
    let rig = rig();
    rig.push(timeline(LEASE, Some("k"), "k1"), Duration::ZERO);
    rig.push(timeline(LEASE, Some("other"), "other"), MS);
    rig.push(timeline(LEASE, None, "event"), 2 * MS);
    rig.push(timeline(LEASE, Some("k"), "k2"), 100 * MS);
    rig.push(timeline(LEASE, Some("k"), "k3"), 200 * MS);
    rig.push(timeline(LEASE, None, "last"), 201 * MS);
    assert_eq!(rig.written(INTERVAL - MS), [""; 0]);
    assert_eq!(rig.written(INTERVAL), ["other", "event", "k3", "last"]);
    rig.push(timeline(LEASE, Some("k"), "k4"), INTERVAL);
    assert_eq!(rig.written(2 * INTERVAL), ["k4"], "one that was written is not looked for");
    assert_eq!(rig.lane.queued_bytes(), 0);
}

#[test]
fn a_key_that_is_updated_all_the_time_is_written_once_an_interval() {
    let rig = rig();
    let mut seen = Vec::new();
    for update in 0..100_u32 {
        rig.push(timeline(LEASE, Some("k"), update.to_string()), update * 100 * MS);
        seen.extend(rig.written(update * 100 * MS + 50 * MS));
    }
    // Updated at 0, 100 and 200, due at 250, and so on.
    let expected: Vec<_> = (2..100).step_by(3).map(|update| update.to_string()).collect();
    assert_eq!(seen, expected);
}

#[test]
fn urgent_frames_do_not_wait_and_go_between_events() {
    let rig = rig();
    rig.push(regular("x".repeat(100_000)), Duration::ZERO);
    rig.push(regular("event"), Duration::ZERO);
    let Pulled::Slice(begun) = pull_at(&rig.lane, rig.start) else { panic!("nothing to pull") };
    rig.lane.push(text(3)).unwrap();
    let (rest, _) = drain_at(&rig.lane, rig.start);
    assert_eq!(frames(&[&begun[..], &rest].concat()), [(1, 100_000), (1, 3), (1, 5)]);
    rig.push(regular("waits"), MS);
    rig.lane.push(text(4)).unwrap();
    assert_eq!(frames(&drain_at(&rig.lane, rig.start + MS).0), [(1, 4)]);
}

#[test]
fn a_timeline_frame_is_written_before_the_deadline_of_its_lease_and_not_at_it() {
    for (before, expected) in [(MS, &["regular", "leased"][..]), (Duration::ZERO, &["regular"])] {
        let rig = rig();
        let now = rig.start + INTERVAL;
        rig.lane.set_lease(lease(LEASE, now + before));
        rig.push(regular("regular"), Duration::ZERO);
        rig.push(timeline(LEASE, Some("k"), "leased"), Duration::ZERO);
        assert_eq!(rig.written(INTERVAL), expected, "{before:?} before the deadline");
        assert_eq!((rig.lane.queued_bytes(), rig.budget.held()), (0, 0));
    }
}

#[test]
fn a_renewal_prolongs_what_waits() {
    let rig = rig();
    rig.lane.set_lease(lease(LEASE, rig.start + 100 * MS));
    rig.push(timeline(LEASE, None, "waits"), Duration::ZERO);
    rig.lane.set_lease(lease(LEASE, rig.start + 2 * INTERVAL));
    assert_eq!(rig.written(INTERVAL), ["waits"]);
}

#[test]
fn another_lease_or_none_drops_what_waits_under_the_former_at_once() {
    for next in [lease(LeaseEpoch(8), clock::now() + Duration::from_secs(60)), None] {
        let rig = rig();
        rig.push(timeline(LEASE, Some("k"), "old"), Duration::ZERO);
        rig.push(timeline(LEASE, None, "old"), Duration::ZERO);
        rig.lane.set_lease(next);
        assert_eq!((rig.lane.queued_bytes(), rig.budget.held()), (0, 0));
        assert!(rig.is_idle(MS), "nothing waits");
        // Late ones of the former lease, and a first one that waits for its own interval.
        rig.push(timeline(LEASE, None, "late"), MS);
        rig.push(regular("regular"), 100 * MS);
        assert_eq!(rig.written(INTERVAL + MS), [""; 0]);
        rig.push(timeline(LeaseEpoch(8), Some("k"), "new"), 300 * MS);
        let expected = if next.is_some() { &["regular", "new"][..] } else { &["regular"] };
        assert_eq!(rig.written(100 * MS + INTERVAL), expected);
    }
}

#[test]
fn a_frame_that_has_begun_is_finished_when_its_lease_ends() {
    let rig = rig();
    rig.push(timeline(LEASE, Some("k"), "x".repeat(100_000)), Duration::ZERO);
    rig.push(timeline(LEASE, None, "behind"), Duration::ZERO);
    let Pulled::Slice(begun) = pull_at(&rig.lane, rig.start) else { panic!("nothing to pull") };
    // The overlay that has begun can be replaced no more.
    rig.push(timeline(LEASE, Some("k"), "newer"), MS);
    rig.lane.set_lease(None);
    let (rest, _) = drain_at(&rig.lane, rig.start + INTERVAL);
    assert_eq!(frames(&[&begun[..], &rest].concat()), [(1, 100_000)]);
    assert_eq!((rig.lane.queued_bytes(), rig.budget.held()), (0, 0));
}

#[test]
fn the_buffer_is_full_at_its_limit_or_with_a_second_oversized_frame() {
    let bytes_max = limits::EVENT_LANE_BYTES_MAX;
    let overhead = {
        let rig = rig();
        rig.push(regular("x".repeat(bytes_max)), MS);
        rig.lane.queued_bytes() - bytes_max
    };
    let largest = bytes_max - overhead;
    // What is pushed, and whether that is too much for who reads nothing.
    for (lengths, is_full) in [
        (vec![largest - 1], false),
        (vec![largest], true),
        (vec![largest + 1], false),
        (vec![10 * bytes_max], false),
        (vec![bytes_max / 2 - 1_000, bytes_max / 2 - 1_000, largest + 1], false),
        (vec![largest + 1, largest + 1], true),
        (vec![bytes_max / 2, bytes_max / 2], true),
    ] {
        let rig = Rig { lane: lane_with(64 << 20, EventLimits::default(), budget(usize::MAX / 2), clock::now()), ..rig() };
        for (length, after) in lengths.iter().zip(1..) {
            rig.push(regular("x".repeat(*length)), after * MS);
        }
        let became_full = rig.start + MS * u32::try_from(lengths.len()).unwrap();
        assert_eq!(rig.lane.full_since(), is_full.then_some(became_full), "{lengths:?}");
        // One that moves is not full in the end, and has it all in order.
        let (bytes, _) = drain_at(&rig.lane, rig.start + Duration::from_secs(9));
        assert_eq!(frames(&bytes), lengths.iter().map(|length| (1, *length)).collect::<Vec<_>>());
        assert_eq!((rig.lane.full_since(), rig.lane.queued_bytes()), (None, 0));
    }
}

#[test]
fn a_transport_that_moves_is_sent_any_amount_and_past_the_bound_of_the_lane_the_connection_ends() {
    let rig = rig();
    let event = || regular("x".repeat(100_000));
    let mut pulled = 0;
    for round in 0..1_000 {
        rig.push(event(), round * MS);
        while pulled < round * 100_000 {
            let Pulled::Slice(slice) = pull_at(&rig.lane, rig.start + round * MS) else { panic!("nothing to pull") };
            pulled += u32::try_from(slice.len()).unwrap();
        }
    }
    // Nothing is taken any more: up to the bound it is kept.
    let taken = (0..1_000).take_while(|_| rig.lane.push_event(event(), rig.start).is_ok()).count();
    assert!((40..=41).contains(&taken), "{taken} events of 100,000 bytes in a lane of 4 MiB");
    assert_eq!((rig.lane.end_reason().name(), rig.lane.push_event(event(), rig.start)), ("saturated", Err(Refused::Closing)));
}

#[test]
fn events_are_part_of_what_all_lanes_hold_together() {
    let (budget, start) = (budget(100_000), clock::now());
    let [one, other] = [(); 2].map(|()| lane_with(4 << 20, EventLimits::default(), budget.clone(), start));
    one.push_event(regular("x".repeat(90_000)), start).unwrap();
    assert_eq!(other.offer(text(20_000)), Err(Refused::Full));
    other.push_event(regular("x".repeat(190_000)), start).unwrap();
    assert_eq!((budget.held(), budget.excess() > 0), (one.queued_bytes() + other.queued_bytes(), true));
    // One maximal message more than the sum, and not beyond.
    assert_eq!(other.push_event(regular("x".repeat(30_000)), start), Err(Refused::Full));
    assert_eq!((other.end_reason().name(), other.queued_bytes(), budget.held()), ("saturated", 0, one.queued_bytes()));
}

#[test]
fn events_leave_urgent_frames_the_room_of_one_maximal_message() {
    let rig = rig();
    while rig.lane.queued_bytes() < (4 << 20) - 1_000 {
        let left = (4 << 20) - rig.lane.queued_bytes();
        rig.push(regular("x".repeat((left - 500).min(300_000))), MS);
    }
    rig.lane.push(text(190_000)).unwrap();
    assert!(!rig.lane.is_closing());
    assert_eq!(rig.lane.push_event(regular("x"), rig.start), Err(Refused::Full));
}

#[test]
fn a_large_overlay_may_be_replaced_where_two_would_not_fit() {
    let rig = rig();
    for _ in 0..3 {
        rig.push(timeline(LEASE, Some("k"), "x".repeat(3 << 20)), MS);
    }
    assert!(!rig.lane.is_closing() && rig.lane.queued_bytes() < 4 << 20);
}

#[test]
fn a_key_that_is_updated_while_nothing_is_read_costs_one_frame() {
    let (rig, count) = (rig(), Wakes::default());
    count.pull(&rig.lane, rig.start);
    rig.push(timeline(LEASE, Some("k"), "x".repeat(1_000)), Duration::ZERO);
    let (one, woken) = (rig.lane.queued_bytes(), count.get());
    for update in 0..100_000 {
        rig.push(timeline(LEASE, Some("k"), "x".repeat(1_000)), update * MS);
        assert_eq!(rig.lane.queued_bytes(), one);
    }
    assert_eq!((rig.budget.held(), count.get(), rig.lane.full_since()), (one, woken, None));
}

#[test]
fn a_full_buffer_does_not_become_full_anew_when_an_overlay_is_replaced() {
    let rig = rig();
    rig.push(timeline(LEASE, Some("k"), "x".repeat(600_000)), Duration::ZERO);
    rig.push(regular("x".repeat(600_000)), MS);
    for update in 2..1_000 {
        rig.push(timeline(LEASE, Some("k"), "x".repeat(600_000)), update * MS);
        assert_eq!(rig.lane.full_since(), Some(rig.start + MS));
    }
}

#[test]
fn tiny_events_are_bounded_and_written_before_they_fill_the_lane() {
    let (rig, count) = (rig(), Wakes::default());
    count.pull(&rig.lane, rig.start);
    let taken = (0..10_000).take_while(|_| rig.lane.push_event(regular(""), rig.start).is_ok() && rig.lane.full_since().is_none()).count();
    assert!(taken < 3_000, "{taken} empty events in a buffer of 512 KiB");
    assert_eq!(count.get(), 2, "for the first, and when it was full");
    assert_eq!(frames(&drain_at(&rig.lane, rig.start).0).len(), taken + 1);
}

#[test]
fn the_puller_is_woken_when_it_should_look_earlier_than_it_was_told_and_not_for_each_event() {
    let (rig, count) = (rig(), Wakes::default());
    count.pull(&rig.lane, rig.start);
    rig.push(regular("first"), Duration::ZERO);
    assert_eq!(count.get(), 1, "to wait for the interval");
    count.pull(&rig.lane, rig.start);
    (0..60).for_each(|_| rig.push(regular("x".repeat(1_000)), MS));
    assert_eq!(count.get(), 1);
    (0..10).for_each(|_| rig.push(regular("x".repeat(1_000)), MS));
    assert_eq!(count.get(), 2, "that was enough");
    drain_at(&rig.lane, rig.start + MS);
    count.pull(&rig.lane, rig.start + MS);
    rig.push(regular("next"), 2 * MS);
    assert_eq!(count.get(), 3, "the first again");
}

#[test]
fn a_connection_that_begins_to_close_drops_its_events_and_finishes_what_has_begun() {
    for reason in [CloseReason::Replaced, CloseReason::Saturated, CloseReason::RelayDraining] {
        let rig = rig();
        rig.lane.push(text(9)).unwrap();
        let before = rig.lane.queued_bytes();
        rig.push(regular("x".repeat(10 * SLICE_BYTES_MAX)), Duration::ZERO);
        let (mut begun, mut bytes) = (Vec::new(), before);
        while begun.len() < SLICE_BYTES_MAX {
            let Pulled::Slice(slice) = pull_at(&rig.lane, rig.start) else { panic!("nothing to pull") };
            begun.extend_from_slice(&slice);
            bytes = rig.lane.queued_bytes();
        }
        rig.push(regular("y".repeat(SLICE_BYTES_MAX)), Duration::ZERO);
        rig.push(timeline(LEASE, Some("k"), "z"), Duration::ZERO);
        rig.lane.close(reason, rig.start);
        assert_eq!((rig.lane.queued_bytes(), rig.budget.held()), (bytes, bytes));
        assert_eq!(rig.lane.push_event(regular("late"), rig.start), Err(Refused::Closing));
        let (rest, end) = drain_at(&rig.lane, rig.start + Duration::from_secs(1));
        let expected = [(1, 9), (1, 10 * SLICE_BYTES_MAX), (8, 2 + reason.text().len())];
        assert_eq!((frames(&[begun, rest].concat()), end), (expected.to_vec(), Pulled::Finished { lingers: true }));
        assert_eq!(rig.budget.held(), 0);
    }
}
