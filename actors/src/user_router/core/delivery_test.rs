//! Events from desktop to phone through the core and the lanes together, over random histories: who gets what, whatever is renewed,
//! closed, replaced, sent and written in between.
//!
//! The oracle knows leases as a phone sees them, from what was asked and when; it knows nothing of epochs, generations' owners, or the
//! buffer. A frame says who sent it under which number, and which key it has.

use super::{
    Effects,
    testing::{Harness, desktop, found, generation, interest, json, register, regular, route, timeline_with_key},
};
use crate::{
    device_socket::{Budget, EventLimits, Lane, LaneLimits, Pulled, Share},
    user_router::message::{Effect, Input, SocketId},
};
use proptest::{collection::vec, prelude::*};
use relay_protocol::{event::BaseSession, id::Route};
use std::{
    collections::BTreeMap,
    sync::Arc,
    task::{Context, Waker},
    time::{Duration, Instant},
};

const LEASE: Duration = Duration::from_millis(1_000);
const INTERVAL: Duration = Duration::from_millis(250);
const SESSIONS: [&str; 2] = ["s", "t"];
const KEYS: [Option<&str>; 3] = [None, Some("k"), Some("l")];

#[derive(Clone, Debug)]
enum Draw {
    /// Phone, session.
    Watch(usize, usize),
    Leave(usize, usize),
    Reconnect(usize),
    Close(usize),
    DesktopReconnects(usize),
    /// Desktop, session, key, whether under the generation before the current one.
    Frame(usize, usize, usize, bool),
    Event(usize),
    Pass(u64),
    /// Time passes and the transport takes everything that is due.
    Written(usize, u64),
}

fn draws() -> impl Strategy<Value = Draw> {
    prop_oneof![
        6 => (0..3_usize, 0..2_usize).prop_map(|(phone, session)| Draw::Watch(phone, session)),
        2 => (0..3_usize, 0..2_usize).prop_map(|(phone, session)| Draw::Leave(phone, session)),
        1 => (0..3_usize).prop_map(Draw::Reconnect),
        1 => (0..3_usize).prop_map(Draw::Close),
        1 => (0..2_usize).prop_map(Draw::DesktopReconnects),
        12 => (0..2_usize, 0..2_usize, 0..3_usize, prop::bool::weighted(0.1))
            .prop_map(|(from, session, key, stale)| Draw::Frame(from, session, key, stale)),
        2 => (0..2_usize).prop_map(Draw::Event),
        4 => prop_oneof![3 => 0..400_u64, 1 => 999..1_002_u64].prop_map(Draw::Pass),
        5 => (0..3_usize, prop_oneof![Just(0), Just(250), 0..300_u64]).prop_map(|(phone, ms)| Draw::Written(phone, ms)),
    ]
}

/// What a phone has asked for and not given up: over at its end, whoever says so.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lease {
    number: u64,
    session: usize,
    until: Instant,
}

/// One connection of a phone.
struct PhoneSocket {
    socket: SocketId,
    lane: Lane,
    lease: Option<Lease>,
    /// Numbers of the frames that were meant for it and have not been seen: key, lease, and whether it must still arrive.
    owed: BTreeMap<u64, (usize, u64)>,
    events_owed: Vec<u64>,
    last_seen: [u64; 3],
    last_event_seen: u64,
}

struct World {
    harness: Harness,
    desktops: [SocketId; 2],
    /// Phones 0 and 1 selected the first desktop, phone 2 the second one.
    phones: [Option<PhoneSocket>; 3],
    /// Generations as the desktops were told of them, the current one last.
    told: BTreeMap<(usize, usize), Vec<u64>>,
    generations: u64,
    leases: u64,
    frames: u64,
    budget: Arc<Budget>,
}

fn target(phone: usize) -> usize {
    phone / 2
}

impl World {
    fn new() -> Self {
        let mut harness = Harness::with(|config| config.interest_ttl = LEASE);
        let desktops = [harness.desktop(0), harness.desktop(1)];
        let budget = Arc::new(Budget::new(usize::MAX / 2, 0, Arc::default()));
        let mut world =
            World { harness, desktops, phones: [None, None, None], told: BTreeMap::new(), generations: 0, leases: 0, frames: 0, budget };
        (0..3).for_each(|phone| world.connect(phone));
        world
    }

    fn now(&self) -> Instant {
        self.harness.now.monotonic
    }

    fn connect(&mut self, phone: usize) {
        let (socket, route) = (self.harness.new_socket(), route(phone, target(phone)));
        self.harness.begin(socket, route, register(route));
        self.run(found(socket, route));
        let events = EventLimits { flush_interval: INTERVAL, ..EventLimits::default() };
        let limits = LaneLimits { bytes_max: 1 << 26, message_bytes_max: 1 << 25, events };
        let lane = Lane::new(limits, Share::new(self.budget.clone()), Arc::default(), self.now());
        let (owed, events_owed) = (BTreeMap::new(), Vec::new());
        self.phones[phone] = Some(PhoneSocket { socket, lane, lease: None, owed, events_owed, last_seen: [0; 3], last_event_seen: 0 });
    }

    /// Takes a step, and does with the lanes what the shell does.
    fn run(&mut self, input: Input) {
        let mut effects = Effects::default();
        self.harness.core.handle(self.harness.now, input, &mut effects);
        let now = self.now();
        while let Some(effect) = effects.pop() {
            match effect {
                Effect::SendEvent { socket, event } => {
                    if let Some(phone) = self.phone(socket) {
                        phone.lane.push_event(event, now).unwrap();
                    }
                }
                Effect::SetLease { socket, lease } => {
                    if let Some(phone) = self.phone(socket) {
                        phone.lane.set_lease(lease);
                    }
                }
                Effect::Send { socket, text } => self.note_told(socket, &json(&text)["payload"]),
                Effect::LookUp { .. }
                | Effect::Registered { .. }
                | Effect::NotRegistered { .. }
                | Effect::Forward { .. }
                | Effect::Close { .. }
                | Effect::ArmGrace { .. }
                | Effect::WriteStatus(_)
                | Effect::Dropped(_)
                | Effect::DesktopOnline { .. }
                | Effect::Notify { .. }
                | Effect::Record(_) => {}
            }
        }
    }

    fn phone(&mut self, socket: SocketId) -> Option<&mut PhoneSocket> {
        self.phones.iter_mut().flatten().find(|phone| phone.socket == socket)
    }

    fn note_told(&mut self, socket: SocketId, event: &serde_json::Value) {
        let update = &event["payload"];
        let Some(shown) = update["authorizationGeneration"].as_str() else { return };
        let desktop = self.desktops.iter().position(|desktop| *desktop == socket).unwrap();
        let session = SESSIONS.iter().position(|session| update["appSessionId"] == *session).unwrap();
        let number = (0..=self.generations).find(|number| generation(*number).to_string() == shown).unwrap();
        let told = self.told.entry((desktop, session)).or_default();
        if told.last() != Some(&number) {
            told.push(number);
        }
    }

    fn interest(&mut self, phone: usize, session: usize, active: bool) {
        let Some(socket) = self.phones[phone].as_ref().map(|phone| phone.socket) else { return };
        self.generations += 1;
        self.run(Input::Interest { socket, interest: interest(SESSIONS[session], active), generation: generation(self.generations) });
        let (now, next) = (self.now(), self.leases + 1);
        let Some(phone) = &mut self.phones[phone] else { return };
        let own = phone.lease.filter(|lease| lease.session == session && now < lease.until);
        if active {
            let number = own.map_or(next, |lease| lease.number);
            phone.lease = Some(Lease { number, session, until: now + LEASE });
            self.leases = next;
        } else if own.is_some() {
            phone.lease = None;
        }
    }

    fn frame(&mut self, from: usize, session: usize, key: usize, stale: bool) {
        let told = self.told.get(&(from, session)).cloned().unwrap_or_default();
        let Some(shown) = told.iter().rev().nth(usize::from(stale)) else { return };
        self.frames += 1;
        let number = self.frames;
        let frame = timeline_with_key(SESSIONS[session], generation(*shown), KEYS[key], number);
        assert_eq!(frame.session, BaseSession::read(SESSIONS[session]).unwrap());
        self.run(Input::Timeline { socket: self.desktops[from], frame });
        let now = self.now();
        for (index, phone) in self.phones.iter_mut().enumerate() {
            let Some(phone) = phone.as_mut().filter(|_| target(index) == from && !stale) else { continue };
            if let Some(lease) = phone.lease.filter(|lease| lease.session == session && now < lease.until) {
                if key > 0 {
                    phone.owed.retain(|_, (other, of)| (*other, *of) != (key, lease.number));
                }
                phone.owed.insert(number, (key, lease.number));
            }
        }
    }

    fn event(&mut self, from: usize) {
        self.frames += 1;
        self.run(Input::Event { socket: self.desktops[from], event: regular(self.frames) });
        for phone in self.phones.iter_mut().enumerate().filter(|(index, _)| target(*index) == from).filter_map(|(_, phone)| phone.as_mut())
        {
            phone.events_owed.push(self.frames);
        }
    }

    /// Whatever is due is written: it must be what is owed, and nothing else.
    fn written(&mut self, phone: usize, is_whole_interval: bool) -> Result<(), TestCaseError> {
        let now = self.now();
        let Some(phone) = &mut self.phones[phone] else { return Ok(()) };
        for frame in drain(&phone.lane, now) {
            let number = frame["payload"]["n"].as_u64().unwrap();
            if frame["eventType"] == "files:changed" {
                prop_assert!(number > phone.last_event_seen, "event {number} after {}", phone.last_event_seen);
                phone.last_event_seen = number;
                phone.events_owed.retain(|owed| *owed != number);
                continue;
            }
            let live = phone.lease.filter(|lease| now < lease.until).map(|lease| lease.number);
            let owed = phone.owed.remove(&number);
            let Some((key, of)) = owed else {
                return Err(TestCaseError::fail(format!("frame {number} is not, or no longer, for this phone")));
            };
            prop_assert_eq!(live, Some(of), "frame {} is written under its own live lease", number);
            prop_assert!(number > phone.last_seen[key], "frame {} of key {} after {}", number, key, phone.last_seen[key]);
            phone.last_seen[key] = number;
        }
        if is_whole_interval {
            let live = phone.lease.filter(|lease| now < lease.until).map(|lease| lease.number);
            let missing: Vec<_> = phone.owed.iter().filter(|(_, (_, of))| Some(*of) == live).collect();
            prop_assert!(missing.is_empty() && phone.events_owed.is_empty(), "missing: {:?} {:?}", missing, phone.events_owed);
        }
        Ok(())
    }

    fn step(&mut self, draw: &Draw) -> Result<(), TestCaseError> {
        match *draw {
            Draw::Watch(phone, session) => self.interest(phone, session, true),
            Draw::Leave(phone, session) => self.interest(phone, session, false),
            Draw::Reconnect(phone) => self.connect(phone),
            Draw::Close(phone) => {
                if let Some(phone) = self.phones[phone].take() {
                    self.run(Input::SocketClosed { socket: phone.socket });
                }
            }
            Draw::DesktopReconnects(number) => {
                let socket = self.harness.new_socket();
                let route = Route::Desktop(desktop(number));
                self.harness.begin(socket, route, register(route));
                self.desktops[number] = socket;
                self.run(found(socket, route));
            }
            Draw::Frame(from, session, key, stale) => self.frame(from, session, key, stale),
            Draw::Event(from) => self.event(from),
            Draw::Pass(ms) => self.harness.pass(Duration::from_millis(ms)),
            Draw::Written(phone, ms) => {
                self.harness.pass(Duration::from_millis(ms));
                return self.written(phone, Duration::from_millis(ms) >= INTERVAL);
            }
        }
        Ok(())
    }
}

/// The events that the lane gives now.
fn drain(lane: &Lane, now: Instant) -> Vec<serde_json::Value> {
    let mut bytes = Vec::new();
    while let Pulled::Slice(slice) = lane.pull(now, &Context::from_waker(Waker::noop())) {
        bytes.extend_from_slice(&slice);
    }
    let (mut rest, mut events) = (&bytes[..], Vec::new());
    while let [0x81, length @ 0..=126, tail @ ..] = rest {
        let (length, tail) =
            if *length < 126 { (usize::from(*length), tail) } else { (usize::from(u16::from_be_bytes([tail[0], tail[1]])), &tail[2..]) };
        let frame: serde_json::Value = serde_json::from_slice(&tail[..length]).unwrap();
        events.push(frame["payload"].clone());
        rest = &tail[length..];
    }
    assert!(rest.is_empty());
    events
}

proptest! {
    #[test]
    fn a_phone_gets_what_is_sent_under_its_own_live_lease_and_nothing_else(history in vec(draws(), 1..150)) {
        let mut world = World::new();
        for draw in history {
            world.step(&draw)?;
        }
        prop_assert_eq!(world.harness.core.check_invariants(), Ok(()));
        world.phones = [None, None, None];
        prop_assert_eq!(world.budget.held(), 0);
    }
}
