//! The lane against a dumb model: a list that is searched from end to end.
//!
//! Any interleaving of what routers, the sweep and the transport do, in the order of a clock. The model says which frame begins next
//! and when; the bytes that the lane gives are read as the peer would. Stale events are in: frames under leases that have ended, pushes
//! into a connection that closes.

use super::{
    EventLimits, Lane, Pulled, Refused, SLICE_BYTES_MAX,
    lane_test::{Wakes, budget, lane_with},
};
use crate::{
    clock,
    device_socket::budget::Budget,
    user_router::message::{LeaseEpoch, LeaseTerm, OutboundEvent, TimelineMark},
};
use proptest::{collection::vec, prelude::*};
use relay_protocol::{close::CloseReason, text::Text};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const BYTES_MAX: usize = 600_000;
/// As the lanes of these tests are made.
const MESSAGE_MAX: usize = 200_000;
const LIMITS: EventLimits = EventLimits { flush_interval: Duration::from_millis(250), flush_bytes: 20_000, bytes_max: 60_000 };
/// What a slice keeps free for control frames.
const CONTROL_ROOM: usize = 256;
/// A payload begins with the number of its frame.
const NUMBER_DIGITS: usize = 8;

#[derive(Clone, Debug)]
enum Step {
    Urgent {
        length: usize,
    },
    Regular {
        length: usize,
    },
    /// Of the current lease, or of the one before it.
    Timeline {
        length: usize,
        key: Option<u8>,
        is_stale: bool,
    },
    /// A new lease of this many milliseconds.
    Lease {
        life_ms: u64,
    },
    Renew {
        life_ms: u64,
    },
    EndLease,
    Ping,
    Pass {
        ms: u64,
    },
    Pull {
        slices: usize,
    },
    Close(CloseReason),
    Shed,
    End,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = || prop_oneof![8 => 8..2_000_usize, 3 => 8..30_000_usize, 2 => 50_000..70_000_usize, 1 => 60_000..200_000_usize];
    let key = || prop_oneof![Just(None), (0..3_u8).prop_map(Some)];
    let step = prop_oneof![
        20 => length().prop_map(|length| Step::Urgent { length }),
        40 => length().prop_map(|length| Step::Regular { length }),
        80 => (length(), key(), proptest::bool::weighted(0.1))
            .prop_map(|(length, key, is_stale)| Step::Timeline { length, key, is_stale }),
        10 => (1..1_000_u64).prop_map(|life_ms| Step::Lease { life_ms }),
        10 => (1..1_000_u64).prop_map(|life_ms| Step::Renew { life_ms }),
        4 => Just(Step::EndLease),
        8 => Just(Step::Ping),
        40 => (1..200_u64).prop_map(|ms| Step::Pass { ms }),
        40 => (1..6_usize).prop_map(|slices| Step::Pull { slices }),
        1 => prop_oneof![
            Just(CloseReason::Replaced), Just(CloseReason::Saturated), Just(CloseReason::RelayDraining)
        ].prop_map(Step::Close),
        1 => Just(Step::Shed),
        1 => Just(Step::End),
    ];
    vec(step, 0..150)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Urgent,
    Regular,
    Timeline { epoch: u64, key: Option<u8> },
}

#[derive(Clone, Debug)]
struct Expected {
    number: usize,
    length: usize,
    kind: Kind,
    is_due: bool,
}

impl Expected {
    fn wire(&self) -> usize {
        self.length
            + if self.length > 65_535 {
                10
            } else if self.length > 125 {
                4
            } else {
                2
            }
    }

    /// What it costs, by what an empty one of its kind was found to cost.
    fn cost(&self, overheads: &Overheads) -> usize {
        self.wire()
            + match self.kind {
                Kind::Urgent => overheads.urgent,
                Kind::Regular | Kind::Timeline { key: None, .. } => overheads.event,
                Kind::Timeline { key: Some(_), .. } => overheads.keyed,
            }
    }
}

/// Bookkeeping of a frame.
struct Overheads {
    urgent: usize,
    event: usize,
    keyed: usize,
}

/// The peer's reader, and the list.
struct Model {
    overheads: Overheads,
    waiting: Vec<Expected>,
    /// When the first that is not due came.
    waiting_since: Option<Instant>,
    lease: Option<(u64, Instant)>,
    last_epoch: u64,
    /// What is left of the frame that the peer reads, by number, with what is known of it.
    reading: Option<(Expected, Vec<u8>)>,
    finished: Vec<Expected>,
    is_closing: bool,
    has_ended: bool,
    now: Instant,
    /// What the puller was told: it looks again then, or when it is woken.
    told: Option<(Option<Instant>, usize)>,
}

impl Model {
    fn is_event(expected: &Expected) -> bool {
        expected.kind != Kind::Urgent
    }

    fn held(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(|expected| expected.cost(&self.overheads)).sum();
        waiting + self.reading.as_ref().map_or(0, |(expected, read)| expected.length - read.len())
    }

    fn is_full_of_events(&self) -> bool {
        let costs = || self.waiting.iter().filter(|expected| Model::is_event(expected)).map(|expected| expected.cost(&self.overheads));
        costs().filter(|cost| *cost <= LIMITS.bytes_max).sum::<usize>() >= LIMITS.bytes_max
            || costs().filter(|cost| *cost > LIMITS.bytes_max).count() > 1
    }

    /// From when on there is something to write.
    fn writable_from(&self) -> Option<Instant> {
        let events = || self.waiting.iter().filter(|expected| Model::is_event(expected));
        if self.reading.is_some()
            || self.waiting.len() > events().count()
            || events().any(|expected| expected.is_due)
            || events().map(Expected::wire).sum::<usize>() >= LIMITS.flush_bytes
            || self.is_full_of_events()
        {
            return Some(self.now);
        }
        self.waiting_since.map(|since| since + LIMITS.flush_interval)
    }

    fn drop_events(&mut self) {
        self.waiting.retain(|expected| !Model::is_event(expected));
        self.waiting_since = None;
    }

    fn set_lease(&mut self, lease: Option<(u64, Instant)>) {
        if self.lease.map(|(epoch, _)| epoch) != lease.map(|(epoch, _)| epoch) {
            self.waiting.retain(|expected| !matches!(expected.kind, Kind::Timeline { .. }));
            if self.waiting.iter().all(|expected| !Model::is_event(expected) || expected.is_due) {
                self.waiting_since = None;
            }
        }
        self.lease = lease;
    }

    fn push_event(&mut self, pushed: Expected) {
        if let Kind::Timeline { key: Some(_), .. } = pushed.kind {
            self.waiting.retain(|expected| expected.kind != pushed.kind);
        }
        if self.held() > 0 && self.held() + pushed.cost(&self.overheads) > BYTES_MAX {
            return self.close(true);
        }
        self.waiting_since.get_or_insert(self.now);
        self.waiting.push(pushed);
    }

    fn push_urgent(&mut self, pushed: Expected) {
        if self.held() > 0 && self.held() + pushed.cost(&self.overheads) > BYTES_MAX + MESSAGE_MAX {
            return self.close(true);
        }
        self.waiting.push(pushed);
    }

    fn close(&mut self, drops_urgent: bool) {
        if self.is_closing {
            return;
        }
        self.is_closing = true;
        self.drop_events();
        if drops_urgent {
            self.waiting.clear();
        }
    }

    /// The frame that must begin now.
    fn begin(&mut self) -> Option<Expected> {
        let urgent = self.waiting.iter().position(|expected| !Model::is_event(expected));
        if let Some(urgent) = urgent {
            return Some(self.waiting.remove(urgent));
        }
        while self.waiting.first().is_some_and(|expected| expected.is_due) {
            let next = self.waiting.remove(0);
            let (Kind::Timeline { epoch, .. }, lease) = (next.kind, self.lease) else { return Some(next) };
            if lease.is_some_and(|(current, deadline)| epoch == current && self.now < deadline) {
                return Some(next);
            }
        }
        None
    }

    fn pull(&mut self) {
        self.told = None;
        let is_due = self.waiting_since.is_some_and(|since| self.now >= since + LIMITS.flush_interval);
        let wire: usize = self.waiting.iter().filter(|expected| Model::is_event(expected)).map(Expected::wire).sum();
        if is_due || wire >= LIMITS.flush_bytes || self.is_full_of_events() {
            self.waiting.iter_mut().for_each(|expected| expected.is_due = true);
            self.waiting_since = None;
        }
    }

    /// The peer reads a slice, which holds what the model says, nothing else, and all that there is room for.
    fn read(&mut self, slice: &[u8]) {
        self.read_frames(slice);
        if self.reading.is_none() && slice.len() <= SLICE_BYTES_MAX - CONTROL_ROOM {
            let left = self.begin();
            assert!(left.is_none(), "{left:?} would have had room");
        }
    }

    fn read_frames(&mut self, mut slice: &[u8]) {
        while let [first, ..] = slice {
            if let Some((expected, mut read)) = self.reading.take() {
                let (now, later) = slice.split_at(slice.len().min(expected.length - read.len()));
                read.extend_from_slice(now);
                slice = later;
                if read.len() < expected.length {
                    self.reading = Some((expected, read));
                    return;
                }
                let number = std::str::from_utf8(&read[..NUMBER_DIGITS]).unwrap().parse::<usize>().unwrap();
                assert_eq!(number, expected.number);
                self.finished.push(expected);
                continue;
            }
            let length = usize::from(slice[1]);
            if *first != 0x81 {
                assert!(matches!(*first, 0x88 | 0x89), "a ping or a close frame");
                slice = &slice[2 + length..];
                assert!(*first == 0x89 || (slice.is_empty() && self.waiting.is_empty()), "a close comes last");
                continue;
            }
            let (length, payload) = match length {
                127 => (usize::try_from(u64::from_be_bytes(slice[2..10].try_into().unwrap())).unwrap(), &slice[10..]),
                126 => (usize::from(u16::from_be_bytes(slice[2..4].try_into().unwrap())), &slice[4..]),
                short => (short, &slice[2..]),
            };
            let expected = self.begin().expect("a frame begins that should not");
            assert_eq!(length, expected.length, "{expected:?}");
            self.reading = Some((expected, Vec::new()));
            slice = payload;
        }
    }
}

/// The lane and the model, side by side.
struct Pair {
    lane: Lane,
    budget: Arc<Budget>,
    wakes: Wakes,
    model: Model,
    numbers: usize,
}

impl Pair {
    fn new() -> Self {
        let (budget, start) = (budget(usize::MAX / 2), clock::now());
        let lane = || lane_with(BYTES_MAX, LIMITS, budget.clone(), start);
        let overhead = |push: &dyn Fn(&Lane)| {
            let lane = lane();
            lane.set_lease(Some(LeaseTerm { epoch: LeaseEpoch(0), deadline: start }));
            push(&lane);
            lane.queued_bytes() - 2
        };
        let event = |timeline| OutboundEvent { text: Text::from(String::new()), timeline };
        let keyed = TimelineMark { epoch: LeaseEpoch(0), key: Some(Arc::from("0")) };
        let overheads = Overheads {
            urgent: overhead(&|lane| lane.push(Text::from(String::new())).unwrap()),
            event: overhead(&|lane| lane.push_event(event(None), start).unwrap()),
            keyed: overhead(&|lane| lane.push_event(event(Some(keyed.clone())), start).unwrap()),
        };
        let model = Model {
            overheads,
            waiting: Vec::new(),
            waiting_since: None,
            lease: None,
            last_epoch: 0,
            reading: None,
            finished: Vec::new(),
            is_closing: false,
            has_ended: false,
            now: start,
            told: None,
        };
        Pair { lane: lane(), budget, wakes: Wakes::default(), model, numbers: 0 }
    }

    fn expected(&mut self, length: usize, kind: Kind) -> (Expected, Text) {
        self.numbers += 1;
        let text = format!("{:0NUMBER_DIGITS$}{}", self.numbers, "x".repeat(length - NUMBER_DIGITS));
        (Expected { number: self.numbers, length, kind, is_due: false }, Text::from(text))
    }

    fn step(&mut self, step: &Step) {
        let now = self.model.now;
        match *step {
            Step::Urgent { length } => {
                let (expected, text) = self.expected(length, Kind::Urgent);
                let was_open = self.is_open();
                if was_open {
                    self.model.push_urgent(expected);
                }
                assert_eq!(self.lane.push(text), self.answer(was_open));
            }
            Step::Regular { length } => self.push_event(length, Kind::Regular, None),
            Step::Timeline { length, key, is_stale } => {
                let epoch = self.model.last_epoch.saturating_sub(u64::from(is_stale));
                let mark = TimelineMark { epoch: LeaseEpoch(epoch), key: key.map(|key| Arc::from(key.to_string())) };
                self.push_event(length, Kind::Timeline { epoch, key }, Some(mark));
            }
            Step::Lease { life_ms } => {
                self.model.last_epoch += 1;
                self.set_lease(Some((self.model.last_epoch, now + Duration::from_millis(life_ms))));
            }
            Step::Renew { life_ms } => {
                let renewed = self.model.lease.map(|(epoch, _)| (epoch, now + Duration::from_millis(life_ms)));
                self.set_lease(renewed);
            }
            Step::EndLease => self.set_lease(None),
            Step::Ping => self.lane.ping(),
            Step::Pass { ms } => self.model.now += Duration::from_millis(ms),
            Step::Pull { slices } => {
                for _ in 0..slices {
                    self.pull();
                }
            }
            Step::Close(reason) => {
                self.lane.close(reason, now);
                self.model.close(reason == CloseReason::Saturated);
            }
            Step::Shed => {
                let has_begun = self.model.reading.is_some();
                assert_eq!(self.lane.shed(now), !has_begun);
                self.model.close(true);
                self.model.waiting.clear();
                self.model.reading = None;
            }
            Step::End => {
                self.lane.end();
                self.model.has_ended = true;
                self.model.drop_events();
                self.model.waiting.clear();
                self.model.reading = None;
            }
        }
        self.check();
    }

    fn is_open(&self) -> bool {
        !self.model.is_closing && !self.model.has_ended
    }

    fn answer(&self, was_open: bool) -> Result<(), Refused> {
        match (was_open, self.is_open()) {
            (true, true) => Ok(()),
            (true, false) => Err(Refused::Full),
            (false, _) => Err(Refused::Closing),
        }
    }

    fn push_event(&mut self, length: usize, kind: Kind, timeline: Option<TimelineMark>) {
        let (expected, text) = self.expected(length, kind);
        let was_open = self.is_open();
        let is_admitted = match kind {
            Kind::Timeline { epoch, .. } => self.model.lease.is_some_and(|(current, _)| current == epoch),
            Kind::Urgent | Kind::Regular => true,
        };
        if was_open && is_admitted {
            self.model.push_event(expected);
        }
        assert_eq!(self.lane.push_event(OutboundEvent { text, timeline }, self.model.now), self.answer(was_open));
    }

    fn set_lease(&mut self, lease: Option<(u64, Instant)>) {
        self.lane.set_lease(lease.map(|(epoch, deadline)| LeaseTerm { epoch: LeaseEpoch(epoch), deadline }));
        self.model.set_lease(lease);
    }

    fn pull(&mut self) -> bool {
        self.model.pull();
        match self.wakes.pull(&self.lane, self.model.now) {
            Pulled::Slice(slice) => {
                self.model.read(&slice);
                true
            }
            Pulled::Nothing { flush_at } => {
                assert!(!self.model.is_closing && self.model.reading.is_none());
                let left = self.model.begin();
                assert!(left.is_none(), "{left:?} waits too long");
                assert_eq!(flush_at, self.model.writable_from());
                self.model.told = Some((flush_at, self.wakes.get()));
                false
            }
            Pulled::Finished { .. } => {
                assert!(self.model.is_closing && self.model.waiting.is_empty() && self.model.reading.is_none());
                false
            }
        }
    }

    /// What holds after every step.
    fn check(&self) {
        let model = &self.model;
        assert_eq!((self.lane.queued_bytes(), self.budget.held()), (model.held(), model.held()));
        assert_eq!(self.lane.is_closing(), model.is_closing);
        let is_full = model.held() >= BYTES_MAX || model.is_full_of_events();
        assert_eq!(self.lane.full_since().is_some(), is_full);
        if let Some((flush_at, woken)) = model.told
            && let Some(from) = model.writable_from()
            && self.wakes.get() == woken
        {
            assert!(flush_at.is_some_and(|at| at <= from), "whoever pulls sleeps too long");
        }
    }

    /// Time goes on, and the transport takes all that is left.
    fn finish(mut self) {
        self.model.now += LIMITS.flush_interval;
        while self.pull() {}
        self.check();
        assert_eq!(self.model.held(), 0);
        let Model { finished, .. } = &self.model;
        for (index, later) in finished.iter().enumerate() {
            for earlier in &finished[..index] {
                let is_ordered = match (earlier.kind, later.kind) {
                    (Kind::Urgent, Kind::Urgent) => true,
                    (Kind::Urgent, _) | (_, Kind::Urgent) => false,
                    (Kind::Regular | Kind::Timeline { .. }, Kind::Regular | Kind::Timeline { .. }) => true,
                };
                assert!(!is_ordered || earlier.number < later.number, "{later:?} comes behind {earlier:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn the_lane_does_what_the_model_does(steps in steps()) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.step(step);
        }
        pair.finish();
    }
}
