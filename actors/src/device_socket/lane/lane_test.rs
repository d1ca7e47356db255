//! The lane's order, bounds and accounts.

use super::{EventLimits, Lane, LaneLimits, Pulled, Refused, SLICE_BYTES_MAX};
use crate::{
    clock,
    device_socket::budget::{Budget, Share},
};
use proptest::prelude::*;
use relay_protocol::{close::CloseReason, text::Text};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

const ROOM: usize = 1_000_000;

const NOTHING: Pulled = Pulled::Nothing { flush_at: None };

/// What a lane may be over its bound in these tests.
const MESSAGE_MAX: usize = 200_000;

pub(super) fn budget(bytes_max: usize) -> Arc<Budget> {
    Arc::new(Budget::new(bytes_max, MESSAGE_MAX, Arc::default()))
}

fn lane(bytes_max: usize) -> Lane {
    lane_of(bytes_max, budget(usize::MAX / 2), clock::now())
}

fn lane_of(bytes_max: usize, budget: Arc<Budget>, now: Instant) -> Lane {
    lane_with(bytes_max, EventLimits::default(), budget, now)
}

pub(super) fn lane_with(bytes_max: usize, events: EventLimits, budget: Arc<Budget>, now: Instant) -> Lane {
    Lane::new(LaneLimits { bytes_max, message_bytes_max: MESSAGE_MAX, events }, Share::new(budget), Arc::default(), now)
}

fn pull(lane: &Lane) -> Pulled {
    pull_at(lane, clock::now())
}

pub(super) fn pull_at(lane: &Lane, now: Instant) -> Pulled {
    lane.pull(now, &Context::from_waker(Waker::noop()))
}

fn drain(lane: &Lane) -> (Vec<u8>, Pulled) {
    drain_at(lane, clock::now())
}

/// Everything that the lane gives until it has nothing more.
pub(super) fn drain_at(lane: &Lane, now: Instant) -> (Vec<u8>, Pulled) {
    let mut bytes = Vec::new();
    loop {
        match pull_at(lane, now) {
            Pulled::Slice(slice) => {
                assert!(!slice.is_empty() && slice.len() <= SLICE_BYTES_MAX, "a slice of {} bytes", slice.len());
                bytes.extend_from_slice(&slice);
            }
            end @ (Pulled::Nothing { .. } | Pulled::Finished { .. }) => return (bytes, end),
        }
    }
}

pub(super) fn text(length: usize) -> Text {
    Text::from("x".repeat(length))
}

/// Reads server frames: opcode and payload length of each.
pub(super) fn frames(bytes: &[u8]) -> Vec<(u8, usize)> {
    read_frames(bytes).into_iter().map(|(opcode, payload)| (opcode, payload.len())).collect()
}

/// Reads server frames, all of them text.
pub(super) fn payloads(bytes: &[u8]) -> Vec<String> {
    let text = |(opcode, payload): (u8, &[u8])| (opcode == 1).then(|| String::from_utf8(payload.to_vec()).unwrap()).unwrap();
    read_frames(bytes).into_iter().map(text).collect()
}

fn read_frames(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while let [first, length, rest @ ..] = bytes {
        assert_eq!(first & 0xf0, 0x80, "a whole, unextended frame");
        let (length, rest) = match length {
            127 => (usize::try_from(u64::from_be_bytes(rest[..8].try_into().unwrap())).unwrap(), &rest[8..]),
            126 => (usize::from(u16::from_be_bytes(rest[..2].try_into().unwrap())), &rest[2..]),
            short => (usize::from(*short), rest),
        };
        let (payload, rest) = rest.split_at(length);
        frames.push((first & 0xf, payload));
        bytes = rest;
    }
    assert!(bytes.is_empty());
    frames
}

/// Counts how often a lane wakes who pulls it.
#[derive(Clone, Default)]
pub(super) struct Wakes(Arc<Count>);

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Wakes {
    pub(super) fn pull(&self, lane: &Lane, now: Instant) -> Pulled {
        lane.pull(now, &Context::from_waker(&Waker::from(self.0.clone())))
    }

    pub(super) fn get(&self) -> usize {
        self.0.0.load(Relaxed)
    }
}

#[test]
fn every_length_form_is_framed() {
    let lane = lane(usize::MAX);
    let lengths = [0, 1, 125, 126, 127, 65_535, 65_536, 200_000];
    for length in lengths {
        lane.push(text(length)).unwrap();
    }
    let (bytes, end) = drain(&lane);
    assert_eq!(frames(&bytes), lengths.map(|length| (1, length)));
    assert_eq!((end, lane.queued_bytes()), (NOTHING, 0));
}

#[test]
fn the_account_is_right_to_one_slice() {
    let lane = lane(usize::MAX);
    lane.push(text(1_000_000)).unwrap();
    let mut left = lane.queued_bytes();
    assert!((1_000_000..1_000_200).contains(&left));
    while let Pulled::Slice(slice) = pull(&lane) {
        let now = lane.queued_bytes();
        assert!(
            left - now >= slice.len() && left - now <= slice.len() + 200,
            "{} bytes left the lane in a slice of {}",
            left - now,
            slice.len()
        );
        left = now;
    }
    assert_eq!(left, 0);
}

#[test]
fn a_request_is_refused_when_full_and_a_reply_is_not() {
    let lane = lane(10_000);
    lane.offer(text(6_000)).unwrap();
    assert_eq!(lane.offer(text(6_000)), Err(Refused::Full));
    lane.push(text(6_000)).unwrap();
    assert!(lane.full_since().is_some());
    assert_eq!(lane.offer(text(0)), Err(Refused::Full));
    drain(&lane);
    assert_eq!(lane.full_since(), None);
    lane.offer(text(6_000)).unwrap();
}

#[test]
fn a_lane_that_refused_a_message_is_full_until_its_transport_takes_something() {
    let lane = lane(10_000);
    lane.offer(text(6_000)).unwrap();
    assert_eq!(lane.full_since(), None);
    assert_eq!(lane.offer(text(6_000)), Err(Refused::Full));
    assert!(lane.full_since().is_some(), "it holds less than it may, yet nothing more goes in");
    pull(&lane);
    assert_eq!(lane.full_since(), None);
}

#[test]
fn one_message_always_fits_an_empty_lane() {
    let lane = lane(10);
    lane.offer(text(100_000)).unwrap();
    assert_eq!(lane.offer(text(1)), Err(Refused::Full));
}

#[test]
fn tiny_frames_are_bounded_too() {
    let lane = lane(10_000);
    let taken = (0..10_000).take_while(|_| lane.offer(text(0)).is_ok()).count();
    assert!(taken < 200, "{taken} empty frames in a lane of 10,000 bytes");
}

#[test]
fn only_the_latest_pong_and_one_ping_are_owed() {
    let lane = lane(ROOM);
    for payload in [b"one".as_slice(), b"two", b"four"] {
        lane.pong(payload);
        lane.ping();
    }
    lane.push(text(7)).unwrap();
    let (bytes, _) = drain(&lane);
    assert_eq!(frames(&bytes), [(0x9, 0), (0xa, 4), (0x1, 7)]);
    assert!(bytes.windows(4).any(|window| window == b"four"));
}

#[test]
fn control_frames_go_between_messages_never_into_one() {
    let lane = lane(usize::MAX);
    lane.push(text(150_000)).unwrap();
    lane.push(text(3)).unwrap();
    let Pulled::Slice(begun) = pull(&lane) else { panic!("nothing to pull") };
    lane.ping();
    lane.pong(b"p");
    let (rest, _) = drain(&lane);
    assert_eq!(frames(&[&begun[..], &rest].concat()), [(0x1, 150_000), (0x9, 0), (0xa, 1), (0x1, 3)]);
}

#[test]
fn a_close_comes_last_and_once() {
    let lane = lane(ROOM);
    lane.push(text(5)).unwrap();
    lane.close(CloseReason::Replaced, clock::now());
    lane.close(CloseReason::Silent, clock::now());
    assert_eq!(lane.push(text(5)), Err(Refused::Closing));
    assert_eq!(lane.offer(text(5)), Err(Refused::Closing));
    let (bytes, end) = drain(&lane);
    assert_eq!(frames(&bytes), [(0x1, 5), (0x8, 2 + "replaced".len())]);
    assert!(bytes.ends_with(&[&4002_u16.to_be_bytes()[..], b"replaced"].concat()));
    assert_eq!(end, Pulled::Finished { lingers: true });
}

#[test]
fn control_frames_do_not_make_a_slice_longer() {
    for spare in 0..300 {
        let lane = lane(usize::MAX);
        lane.push(text(SLICE_BYTES_MAX - 4 - spare)).unwrap();
        lane.push(text(1)).unwrap();
        lane.ping();
        lane.pong(&[b'p'; 125]);
        lane.close(CloseReason::RegistrationTimeout, clock::now());
        // Each slice is measured.
        let (bytes, _) = drain(&lane);
        assert_eq!(frames(&bytes).len(), 4, "a pong, two texts and a close; a closing connection owes no ping");
    }
}

#[test]
fn a_retired_lane_gives_its_queue_back_but_ends_no_frame_early() {
    let lane = lane(ROOM);
    lane.push(text(100_000)).unwrap();
    lane.push(text(500_000)).unwrap();
    let Pulled::Slice(begun) = pull(&lane) else { panic!("nothing to pull") };
    lane.close(CloseReason::Saturated, clock::now());
    assert!(lane.queued_bytes() <= 100_000, "{} bytes are still held", lane.queued_bytes());
    let (rest, _) = drain(&lane);
    assert_eq!(frames(&[&begun[..], &rest].concat()), [(0x1, 100_000), (0x8, 2 + "saturated".len())]);
    assert_eq!(lane.queued_bytes(), 0);
}

#[test]
fn the_peers_close_is_answered_with_its_code() {
    for (code, payload) in [(Some(1000), 2), (None, 0)] {
        let lane = lane(ROOM);
        lane.push(text(5)).unwrap();
        lane.answer_close(code, clock::now());
        let (bytes, end) = drain(&lane);
        assert_eq!(frames(&bytes), [(0x8, payload)]);
        assert_eq!(end, Pulled::Finished { lingers: false });
    }
}

#[test]
fn the_puller_is_woken_for_anything_new() {
    let count = Wakes::default();
    let lane = lane(ROOM);
    assert_eq!(count.pull(&lane, clock::now()), NOTHING);
    lane.push(text(1)).unwrap();
    lane.offer(text(1)).unwrap();
    lane.ping();
    lane.pong(b"");
    lane.close(CloseReason::Silent, clock::now());
    assert_eq!(count.get(), 5);
}

/// In paused time, since the lane asks the clock when it becomes full.
#[tokio::test(start_paused = true)]
async fn a_full_lane_tells_since_when_it_is_full_and_its_transport_has_taken_nothing() {
    let wait = async || {
        tokio::time::advance(Duration::from_secs(60)).await;
        clock::now()
    };
    let lane = lane_of(10, budget(ROOM), clock::now());
    // An idle minute is no fault of whoever reads.
    let became_full = wait().await;
    lane.push(text(200_000)).unwrap();
    assert_eq!(lane.full_since(), Some(became_full));
    wait().await;
    assert_eq!(lane.offer(text(1)), Err(Refused::Full));
    assert_eq!(lane.full_since(), Some(became_full), "it has been full all the time");
    let pulled = wait().await;
    pull(&lane);
    assert_eq!(lane.full_since(), Some(pulled));
    drain(&lane);
    assert_eq!(lane.full_since(), None);
    let refused = wait().await;
    lane.offer(text(5)).unwrap();
    assert_eq!(lane.offer(text(5)), Err(Refused::Full));
    assert_eq!(lane.full_since(), Some(refused));
}

#[test]
fn what_must_not_be_dropped_goes_one_message_over_the_bound_and_then_ends_the_connection() {
    let lane = lane(10_000);
    lane.push(text(9_000)).unwrap();
    lane.push(text(MESSAGE_MAX - 5_000)).unwrap();
    // The transport takes something all the time: the small message, and a slice of the large one.
    assert!(matches!((pull(&lane), pull(&lane)), (Pulled::Slice(_), Pulled::Slice(_))));
    lane.push(text(20_000)).unwrap();
    assert!(!lane.is_closing() && lane.queued_bytes() <= 10_000 + MESSAGE_MAX);
    assert_eq!(lane.push(text(20_000)), Err(Refused::Full));
    assert_eq!(lane.push(text(1)), Err(Refused::Closing));
    assert_eq!(lane.end_reason().name(), "saturated");
    assert!(lane.queued_bytes() < MESSAGE_MAX, "only the message that has begun is left");
}

#[test]
fn lanes_share_what_all_of_them_may_hold() {
    let budget = budget(100_000);
    let [one, other] = [(); 2].map(|()| lane_of(ROOM, budget.clone(), clock::now()));
    one.push(text(60_000)).unwrap();
    assert_eq!(other.offer(text(60_000)), Err(Refused::Full));
    assert_eq!(other.full_since(), None, "it is not full itself");
    other.push(text(60_000)).unwrap();
    assert_eq!(budget.excess(), one.queued_bytes() + other.queued_bytes() - 100_000);
    // One maximal message more than the budget, and not a byte beyond.
    one.push(text(MESSAGE_MAX - 21_000)).unwrap();
    assert_eq!(other.push(text(2_000)), Err(Refused::Full));
    assert_eq!(other.end_reason().name(), "saturated");
    drain(&one);
    assert_eq!(budget.held(), 0);
}

#[test]
fn every_way_out_of_a_lane_gives_its_bytes_back() {
    let ways: [fn(&Lane); 6] = [
        |lane| drop(drain(lane)),
        |lane| lane.close(CloseReason::Silent, clock::now()),
        |lane| lane.answer_close(None, clock::now()),
        |lane| assert!(lane.shed(clock::now())),
        Lane::end,
        |_dropped| {},
    ];
    for (index, leave) in ways.into_iter().enumerate() {
        let budget = budget(ROOM);
        let lane = lane_of(ROOM, budget.clone(), clock::now());
        lane.push(text(100_000)).unwrap();
        lane.push(text(0)).unwrap();
        assert_eq!(budget.held(), lane.queued_bytes());
        leave(&lane);
        assert_eq!(budget.held(), lane.queued_bytes(), "way {index}");
        drop(lane);
        assert_eq!(budget.held(), 0, "way {index}");
    }
}

#[test]
fn a_lane_that_is_shed_gives_all_back_and_lets_nothing_follow_a_piece_of_a_frame() {
    let budget = budget(ROOM);
    let lane = lane_of(ROOM, budget.clone(), clock::now());
    lane.push(text(100_000)).unwrap();
    lane.push(text(5)).unwrap();
    pull(&lane);
    lane.ping();
    lane.pong(b"p");
    assert!(!lane.shed(clock::now()), "a message has begun");
    assert_eq!((budget.held(), drain(&lane)), (0, (Vec::new(), Pulled::Finished { lingers: false })));

    let whole = self::lane(ROOM);
    whole.push(text(5)).unwrap();
    assert!(whole.shed(clock::now()));
    let (bytes, end) = drain(&whole);
    assert_eq!((frames(&bytes), end), (vec![(0x8, 2 + "saturated".len())], Pulled::Finished { lingers: true }));
}

#[test]
fn nothing_is_kept_for_a_transport_that_has_gone() {
    let lane = lane(ROOM);
    lane.push(text(5)).unwrap();
    lane.end();
    assert_eq!((lane.push(text(5)), lane.offer(text(5)), lane.queued_bytes()), (Err(Refused::Closing), Err(Refused::Closing), 0));
}

proptest! {
    /// Any mixture of messages and control frames, pulled at any point, comes out whole, in order, and leaves nothing behind.
    #[test]
    fn the_byte_stream_is_whole(steps in proptest::collection::vec((0..5_u8, 0..100_000_usize), 0..40)) {
        let lane = lane(usize::MAX);
        let (mut sent, mut bytes) = (Vec::new(), Vec::new());
        for (step, length) in steps {
            match step {
                0 | 1 => {
                    lane.push(text(length)).unwrap();
                    sent.push(length);
                }
                2 => lane.ping(),
                3 => lane.pong(&vec![b'p'; length % 126]),
                _ => if let Pulled::Slice(slice) = pull(&lane) { bytes.extend_from_slice(&slice) },
            }
        }
        bytes.extend_from_slice(&drain(&lane).0);
        let got: Vec<usize> = frames(&bytes).into_iter().filter(|(opcode, _)| *opcode == 1).map(|(_, length)| length).collect();
        prop_assert_eq!(got, sent);
        prop_assert_eq!(lane.queued_bytes(), 0);
    }
}
