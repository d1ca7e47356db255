//! The core against its plain model, over random histories with stale events.
//!
//! Both get the same steps; after each, what they let out, who is present, and what they hold must be the same.
//! `PROPTEST_CASES` scales the number of histories.
#![expect(clippy::wildcard_enum_match_arm, reason = "a fact is picked out of many; the model has nothing to say of the others")]

use super::{
    Effects,
    model::{Fact, KEYS, LEASE, LIFE, Model, PER_CLIENT, PER_DESKTOP, PER_USER, Rows, SESSIONS, Step, TTL, api_key},
    testing::{
        Harness, MS, call, connection, describe, describe_status, desktop, fresh, generation, interest, json, key, phone, register,
        regular, response, role, route, row, session, timeline, token,
    },
};
use crate::user_router::message::{Effect, Input, SocketId, Unavailable, Whose};
use proptest::{collection::vec, prelude::*, sample::select};
use relay_protocol::{
    close::CloseReason,
    id::{DeviceId, Route},
    register::Register,
    rpc::RequestId,
    version::Version,
};
use std::time::{Duration, Instant};

const IDS: [&str; 4] = ["a", "b", " a", "c"];

/// One step before anything is chosen: small numbers that are read against the state at the time.
#[derive(Clone, Debug)]
enum Draw {
    Open { route: usize, resume: Option<(usize, bool)> },
    Register { route: usize, resume: Option<(usize, bool)> },
    LookedUp { socket: usize, rows: Rows },
    Call { from: usize, id: usize, method: usize, params: u32 },
    CallFromAny { socket: usize, id: usize },
    Answer { request: usize, is_final: bool },
    NotTaken { request: usize },
    Respond { socket: usize, client: usize, id: usize, is_final: bool },
    Interest { from: usize, session: usize, active: bool },
    InterestFromAny { socket: usize, session: usize, active: bool },
    Frame { from: usize, session: usize, back: u64 },
    Event { from: usize },
    NotForwarded { socket: usize, id: usize },
    Closed { socket: usize },
    Retire { socket: usize, reason: CloseReason },
    Grace { wait: usize },
    CloseDevice { device: usize, reason: CloseReason },
    LogOut,
    Revoke { key: usize },
    Pass { time: Duration },
    PassToNextEnd { off_ms: u64 },
}

fn draws() -> impl Strategy<Value = Draw> {
    let resume = || prop::option::weighted(0.4, (0..12_usize, prop::bool::weighted(0.8)));
    let rows = select(vec![Rows::Good, Rows::Good, Rows::Good, Rows::Missing, Rows::Unavailable, Rows::PolicyUnavailable]);
    prop_oneof![
        9 => (0..6_usize, resume()).prop_map(|(route, resume)| Draw::Open { route, resume }),
        4 => (0..2_usize, resume()).prop_map(|(desktop, resume)| Draw::Open { route: desktop, resume }),
        2 => (0..6_usize, resume()).prop_map(|(route, resume)| Draw::Register { route, resume }),
        3 => (0..6_usize, rows).prop_map(|(socket, rows)| Draw::LookedUp { socket, rows }),
        24 => (0..4_usize, 0..4_usize, 0..3_usize, 0..2_u32).prop_map(|(from, id, method, params)| Draw::Call { from, id, method, params }),
        3 => (0..12_usize, 0..4_usize).prop_map(|(socket, id)| Draw::CallFromAny { socket, id }),
        6 => (0..4_usize, any::<bool>()).prop_map(|(request, is_final)| Draw::Answer { request, is_final }),
        2 => (0..4_usize).prop_map(|request| Draw::NotTaken { request }),
        4 => (0..12_usize, 0..6_usize, 0..4_usize, any::<bool>())
            .prop_map(|(socket, client, id, is_final)| Draw::Respond { socket, client, id, is_final }),
        14 => (0..4_usize, 0..3_usize, prop::bool::weighted(0.8))
            .prop_map(|(from, session, active)| Draw::Interest { from, session, active }),
        3 => (0..12_usize, 0..3_usize, any::<bool>()).prop_map(|(socket, session, active)| Draw::InterestFromAny { socket, session, active }),
        10 => (0..8_usize, 0..3_usize, prop_oneof![2 => Just(0), 1 => 1..4_u64]).prop_map(|(from, session, back)| Draw::Frame { from, session, back }),
        2 => (0..8_usize).prop_map(|from| Draw::Event { from }),
        2 => (0..8_usize, 0..4_usize).prop_map(|(socket, id)| Draw::NotForwarded { socket, id }),
        4 => (0..12_usize).prop_map(|socket| Draw::Closed { socket }),
        1 => (0..12_usize, select(vec![CloseReason::Silent, CloseReason::Saturated]))
            .prop_map(|(socket, reason)| Draw::Retire { socket, reason }),
        4 => (0..3_usize).prop_map(|wait| Draw::Grace { wait }),
        1 => (0..4_usize, select(vec![CloseReason::LoggedOut, CloseReason::DeviceForgotten]))
            .prop_map(|(device, reason)| Draw::CloseDevice { device, reason }),
        1 => (0..5_usize).prop_map(|key| if key < KEYS { Draw::Revoke { key } } else { Draw::LogOut }),
        4 => (0..40_u64).prop_map(|ms| Draw::Pass { time: Duration::from_millis(ms) }),
        4 => (0..3_u64).prop_map(|off_ms| Draw::PassToNextEnd { off_ms }),
    ]
}

/// Both sides of one history.
struct Pair {
    harness: Harness,
    model: Model,
    sockets: Vec<SocketId>,
    /// Every wait that was ever asked for.
    waits: Vec<(DeviceId, SocketId)>,
    generations: u64,
}

impl Pair {
    fn new() -> Self {
        let harness = Harness::with(|config| {
            config.resume_ttl = TTL;
            config.interest_ttl = LEASE;
            [(_, config.pending_default), (_, config.pending_load), (_, config.pending_outbox)] = LIFE;
            (config.per_client, config.per_desktop, config.per_user) = (PER_CLIENT, PER_DESKTOP, PER_USER);
        });
        Pair { harness, model: Model::default(), sockets: Vec::new(), waits: Vec::new(), generations: 0 }
    }

    /// The socket that is so many back.
    fn socket(&self, back: usize) -> SocketId {
        self.sockets.iter().rev().nth(back).or(self.sockets.first()).copied().unwrap_or(SocketId(0))
    }

    /// The session of this route, or one that is not, or not any more.
    fn resumable(&self, of: Route, back: usize) -> SocketId {
        let own = self.model.facts.iter().find_map(|fact| match fact {
            Fact::Resumable { route, begun_by, .. } if *route == of => Some(*begun_by),
            _ => None,
        });
        own.filter(|_| back > 2).unwrap_or(self.socket(back))
    }

    fn live_phone(&self, number: usize) -> SocketId {
        let phones = self.model.facts.iter().filter_map(|fact| match fact {
            Fact::Holds { socket, route: Route::Phone { .. } } => Some(*socket),
            _ => None,
        });
        let phones: Vec<_> = phones.collect();
        if phones.is_empty() { self.socket(0) } else { phones[number % phones.len()] }
    }

    fn interest(&mut self, socket: SocketId, session: usize, active: bool) -> Step {
        self.generations += 1;
        Step::Interest { socket, session, active, generation: self.generations }
    }

    /// A connected desktop, or any socket.
    fn sender(&self, number: usize) -> SocketId {
        let desktops = [desktop(0), desktop(1)].map(|device| {
            self.model.facts.iter().find_map(|fact| match fact {
                Fact::Holds { socket, route } if *route == Route::Desktop(device) => Some(*socket),
                _ => None,
            })
        });
        desktops.get(number % 3).copied().flatten().unwrap_or(self.socket(number))
    }

    /// The generation that a frame of this socket's desktop should show, or one of long ago.
    fn shown(&self, socket: SocketId, session: usize, back: u64) -> u64 {
        let desktop = self.model.facts.iter().find_map(|fact| match fact {
            Fact::Holds { socket: own, route: Route::Desktop(desktop) } if *own == socket => Some(*desktop),
            _ => None,
        });
        let current = desktop.and_then(|desktop| self.model.generation(desktop, SESSIONS[session].1));
        current.filter(|_| back == 0).unwrap_or(self.generations.saturating_sub(back))
    }

    fn open_request(&self, number: usize) -> Option<(SocketId, &'static str, Route)> {
        let open = self.model.facts.iter().filter_map(|fact| match fact {
            Fact::Open { desktop, written, client, .. } => Some((*desktop, *written, *client)),
            _ => None,
        });
        let open: Vec<_> = open.collect();
        open.get(number % open.len().max(1)).copied()
    }

    fn pass(&mut self, time: Duration) {
        self.harness.pass(time);
        self.model.now += time;
    }

    /// The steps that a draw means now.
    fn choose(&mut self, draw: &Draw) -> Vec<Step> {
        const ROUTES: [fn() -> Route; 6] =
            [|| Route::Desktop(desktop(0)), || Route::Desktop(desktop(1)), || route(0, 0), || route(0, 1), || route(1, 0), || route(1, 1)];
        let registration = |pair: &mut Self, number: usize, resume: Option<(usize, bool)>| {
            let socket = pair.harness.new_socket();
            let resume = resume.map(|(back, right)| (pair.resumable(ROUTES[number](), back), right));
            pair.sockets.push(socket);
            Step::Register { socket, route: ROUTES[number](), resume }
        };
        match *draw {
            Draw::Open { route, resume } => {
                let register = registration(self, route, resume);
                vec![register, Step::LookedUp { socket: self.socket(0), rows: Rows::Good }]
            }
            Draw::Register { route, resume } => vec![registration(self, route, resume)],
            Draw::LookedUp { socket, rows } => vec![Step::LookedUp { socket: self.socket(socket), rows }],
            Draw::Call { from, id, method, params } => {
                vec![Step::Call { socket: self.live_phone(from), id: IDS[id], method: LIFE[method].0, params }]
            }
            Draw::CallFromAny { socket, id } => {
                vec![Step::Call { socket: self.socket(socket), id: IDS[id], method: LIFE[0].0, params: 0 }]
            }
            Draw::Answer { request, is_final } => {
                let open = self.open_request(request);
                open.map(|(socket, id, client)| Step::Respond { socket, client, id, is_final }).into_iter().collect()
            }
            Draw::NotTaken { request } => {
                self.open_request(request).map(|(socket, id, _)| Step::NotForwarded { socket, id }).into_iter().collect()
            }
            Draw::Respond { socket, client, id, is_final } => {
                vec![Step::Respond { socket: self.socket(socket), client: ROUTES[client](), id: IDS[id], is_final }]
            }
            Draw::Interest { from, session, active } => vec![self.interest(self.live_phone(from), session, active)],
            Draw::InterestFromAny { socket, session, active } => vec![self.interest(self.socket(socket), session, active)],
            Draw::Frame { from, session, back } => {
                let socket = self.sender(from);
                vec![Step::Frame { socket, session, generation: self.shown(socket, session, back) }]
            }
            Draw::Event { from } => vec![Step::Event { socket: self.sender(from) }],
            Draw::NotForwarded { socket, id } => vec![Step::NotForwarded { socket: self.socket(socket), id: IDS[id] }],
            Draw::Closed { socket } => vec![Step::Closed { socket: self.socket(socket) }],
            Draw::Retire { socket, reason } => vec![Step::Retire { socket: self.socket(socket), reason }],
            Draw::Grace { wait } => {
                let wait = self.waits.iter().rev().nth(wait).or(self.waits.first());
                wait.map(|(desktop, socket)| Step::Grace { desktop: *desktop, socket: *socket }).into_iter().collect()
            }
            Draw::CloseDevice { device, reason } => {
                let device = [desktop(0), desktop(1), phone(0), phone(1)][device];
                vec![Step::CloseAllOf { whose: Whose::Device(device), reason }]
            }
            Draw::LogOut => vec![Step::CloseAllOf { whose: Whose::Account, reason: CloseReason::LoggedOut }],
            Draw::Revoke { key: number } => vec![Step::CloseAllOf { whose: Whose::ApiKey(key(number)), reason: CloseReason::Revoked }],
            Draw::Pass { time } => {
                self.pass(time);
                vec![Step::Timeout]
            }
            Draw::PassToNextEnd { off_ms } => {
                let end = self.model.next_end().unwrap_or(self.model.now) + MS * u32::try_from(off_ms).unwrap();
                // One millisecond before, exactly, or one after.
                self.pass(end.saturating_sub(MS).saturating_sub(self.model.now));
                vec![Step::Timeout]
            }
        }
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let mut effects = Effects::default();
        self.harness.core.handle(self.harness.now, input(step), &mut effects);
        let mut seen = Vec::new();
        while let Some(effect) = effects.pop() {
            if let Effect::ArmGrace { desktop, generation } = effect {
                let socket = self.sockets.iter().find(|socket| connection(**socket) == generation);
                self.waits.push((desktop, *socket.unwrap()));
            }
            seen.push(line(effect, self.harness.now.monotonic - self.model.now));
        }
        let mut expected = self.model.step(step);
        seen.sort_unstable();
        expected.sort_unstable();
        let core = &self.harness.core;
        prop_assert_eq!(seen, expected, "{:?}\n{:#?}", step, &self.model.facts);
        prop_assert_eq!(core.observe(), self.model.observe(), "{:?}", step);
        prop_assert_eq!(core.presence(), self.model.presence(), "{:?}", step);
        prop_assert_eq!(core.check_invariants(), Ok(()));
        prop_assert_eq!(self.harness.process.open(), self.model.observe().pending, "{:?}", step);
        let left = self.model.observe();
        prop_assert_eq!(core.is_idle(), left.registrations + left.desktops + left.phones + left.waiting + left.sessions == 0);
        let start = self.harness.now.monotonic - self.model.now;
        let timeout = core.next_timeout().map(|(at, _)| at - start);
        prop_assert_eq!(timeout.is_some(), self.model.next_end().is_some());
        prop_assert!(timeout <= self.model.next_end() && timeout.is_none_or(|at| at > self.model.now), "{:?}", timeout);
        Ok(())
    }
}

fn input(step: &Step) -> Input {
    match *step {
        Step::Register { socket, route, resume } => {
            let mut register = Box::new(register(route));
            if let Some((begun_by, right)) = resume {
                let token = if right { token(begun_by) } else { "wrong".into() };
                *register = Register { session_id: Some(session(begun_by).to_string()), resume_token: Some(token), ..*register };
            }
            Input::Register { socket, role: role(route), header_target: None, register, fresh: fresh(socket), api_key: api_key(socket) }
        }
        Step::LookedUp { socket, rows } => {
            let all = [desktop(0), desktop(1), phone(0), phone(1)].map(row).to_vec();
            let (required, devices) = match rows {
                Rows::Good => (Ok(Version::new(1, 7)), Ok(all)),
                Rows::Missing => (Ok(Version::new(1, 7)), Ok(vec![])),
                Rows::Unavailable => (Ok(Version::new(1, 7)), Err(Unavailable)),
                Rows::PolicyUnavailable => (Err(Unavailable), Ok(all)),
            };
            Input::LookedUp { socket, required, devices }
        }
        Step::Call { socket, id, method, params } => Input::Call { socket, call: call(id, method, params) },
        Step::Respond { socket, client, id, is_final } => {
            Input::Response { socket, response: response(&client.to_string(), id, 1, is_final) }
        }
        Step::Interest { socket, session, active, generation: fresh } => {
            Input::Interest { socket, interest: interest(SESSIONS[session].0, active), generation: generation(fresh) }
        }
        Step::Frame { socket, session, generation: shown } => {
            Input::Timeline { socket, frame: timeline(SESSIONS[session].0, generation(shown), 1) }
        }
        Step::Event { socket } => Input::Event { socket, event: regular(1) },
        Step::NotForwarded { socket, id } => Input::NotForwarded { socket, id: RequestId::new(id) },
        Step::Closed { socket } => Input::SocketClosed { socket },
        Step::Retire { socket, reason } => Input::Retire { socket, reason },
        Step::Grace { desktop, socket } => Input::GraceElapsed { desktop, generation: connection(socket) },
        Step::CloseAllOf { whose, reason } => Input::CloseAllOf { whose, reason },
        Step::Timeout => Input::Timeout,
    }
}

/// Like [`describe`], with what a registration answer says, and with the end of a lease.
fn line(effect: Effect, start: Instant) -> String {
    if let Effect::SetLease { lease: Some(term), .. } = &effect {
        let until = term.deadline - start;
        return format!("{} until {}", describe(effect), until.as_millis());
    }
    let Effect::Registered { socket, answer, .. } = &effect else { return describe(effect) };
    let answer = json(answer);
    let payload = &answer["payload"];
    let begun_by = SocketId(payload["resumeToken"].as_str().unwrap().trim_start_matches("token-").parse().unwrap());
    assert_eq!(payload["sessionId"], session(begun_by).to_string());
    let target = payload.get("target").map(|target| format!(" {}", describe_status(target))).unwrap_or_default();
    format!("{socket} {} session {begun_by}{target}", answer["type"].as_str().unwrap())
}

proptest! {
    #[test]
    fn the_core_does_what_the_model_does(history in vec(draws(), 1..120)) {
        let mut pair = Pair::new();
        let everyone = (0..6).map(|route| Draw::Open { route, resume: None });
        for draw in everyone.chain(history) {
            for step in pair.choose(&draw) {
                pair.run(&step)?;
            }
        }
    }
}
