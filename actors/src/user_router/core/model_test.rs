//! The core against a plain model, over random histories with stale events.
//!
//! The model is a flat list of facts that every question searches from end to end: no index, no count, no timer, no generation
//! kept apart. Both get the same steps; after each, what they let out, who is present, and what they hold must be the same.
//! `PROPTEST_CASES` scales the number of histories.
#![expect(clippy::wildcard_enum_match_arm, reason = "a fact is picked out of many; the model has nothing to say of the others")]

use super::{
    Effects, Observed,
    testing::{
        Harness, MS, call, connection, describe, describe_status, desktop, fresh, json, name, phone, register, response, role, route, row,
        session, token,
    },
};
use crate::user_router::message::{Effect, Input, SocketId, Unavailable};
use proptest::{collection::vec, prelude::*, sample::select};
use relay_protocol::{
    close::CloseReason,
    device::Presence,
    id::{DeviceId, Route},
    register::Register,
    rpc::RequestId,
    version::Version,
};
use std::{collections::BTreeMap, time::Duration};

const LIFE: [(&str, Duration); 3] = [
    ("system.ping", Duration::from_millis(90)),
    ("run.chatLoad", Duration::from_millis(120)),
    ("run.chatOutboxSubmit", Duration::from_millis(1_860)),
];
const TTL: Duration = Duration::from_millis(2_000);
const IDS: [&str; 4] = ["a", "b", " a", "c"];
const PER_CLIENT: usize = 2;
const PER_DESKTOP: usize = 3;
const PER_USER: usize = 4;

/// One thing that is so.
#[derive(Clone, Debug, PartialEq)]
enum Fact {
    /// The socket waits for its look-up.
    Registering { socket: SocketId, route: Route, resume: Option<(SocketId, bool)> },
    /// The socket holds the route. The connection is named after the socket.
    Holds { socket: SocketId, route: Route },
    /// The socket lost its route to another one and is not closed.
    Replaced { socket: SocketId },
    /// A request is open.
    Open { desktop: SocketId, id: String, written: &'static str, client: Route, content: (&'static str, u32), until: Duration },
    /// The desktop is within the wait that began when this socket closed.
    Waits { desktop: DeviceId, socket: SocketId },
    /// The session that this socket's registration began may be resumed.
    Resumable { route: Route, begun_by: SocketId, until: Duration },
    /// What was last said of a desktop.
    Told { desktop: DeviceId, status: Presence, reason: &'static str },
}

/// One step, with everything chosen.
#[derive(Clone, Debug)]
enum Step {
    Register { socket: SocketId, route: Route, resume: Option<(SocketId, bool)> },
    LookedUp { socket: SocketId, rows: Rows },
    Call { socket: SocketId, id: &'static str, method: &'static str, params: u32 },
    Respond { socket: SocketId, client: Route, id: &'static str, is_final: bool },
    NotForwarded { socket: SocketId, id: &'static str },
    Closed { socket: SocketId },
    Retire { socket: SocketId, reason: CloseReason },
    Grace { desktop: DeviceId, socket: SocketId },
    CloseDevice { device: DeviceId, reason: CloseReason },
    Timeout,
}

#[derive(Clone, Copy, Debug)]
enum Rows {
    Good,
    Missing,
    Unavailable,
    PolicyUnavailable,
}

#[derive(Default)]
struct Model {
    now: Duration,
    facts: Vec<Fact>,
    revision: u64,
    lines: Vec<String>,
}

impl Model {
    fn holder(&self, of: Route) -> Option<SocketId> {
        self.facts.iter().find_map(|fact| match fact {
            Fact::Holds { socket, route } if *route == of => Some(*socket),
            _ => None,
        })
    }

    fn route(&self, of: SocketId) -> Option<Route> {
        self.facts.iter().find_map(|fact| match fact {
            Fact::Holds { socket, route } if *socket == of => Some(*route),
            _ => None,
        })
    }

    /// Removes the facts that the test picks, and hands them back.
    fn take(&mut self, picks: impl Fn(&Fact) -> bool) -> Vec<Fact> {
        let (taken, left) = std::mem::take(&mut self.facts).into_iter().partition(picks);
        self.facts = left;
        taken
    }

    fn say(&mut self, line: String) {
        self.lines.push(line);
    }

    fn tell(&mut self, client: Route, line: &str) {
        match self.holder(client) {
            Some(socket) => self.say(format!("{socket} {line}")),
            None => self.say("dropped PhoneGone".into()),
        }
    }

    fn refuse(&mut self, records: Vec<Fact>, code: i32) {
        for record in records {
            let Fact::Open { written, client, .. } = record else { panic!("{record:?} is no request") };
            self.tell(client, &format!("refusal {written} {code}"));
        }
    }

    fn presence_of(&self, device: DeviceId) -> Presence {
        self.presence().get(&device).copied().unwrap_or(Presence::Disconnected)
    }

    fn presence(&self) -> BTreeMap<DeviceId, Presence> {
        let present = self.facts.iter().filter_map(|fact| match fact {
            Fact::Holds { route, .. } => Some((route.device(), Presence::Online)),
            Fact::Waits { desktop, .. } => Some((*desktop, Presence::Reconnecting)),
            _ => None,
        });
        present.collect()
    }

    /// Broadcasts what became of a desktop, and stores it if that is news.
    fn desktop_is_now(&mut self, desktop: DeviceId, before: Presence, reason: &'static str) {
        let status = self.presence_of(desktop);
        self.revision += 1;
        self.take(|fact| matches!(fact, Fact::Told { desktop: told, .. } if *told == desktop));
        self.facts.push(Fact::Told { desktop, status, reason });
        for fact in self.facts.clone() {
            if let Fact::Holds { socket, route: Route::Phone { .. } } = fact {
                self.say(format!("{socket} status {}", self.told(desktop)));
            }
        }
        self.store(desktop, before);
    }

    fn store(&mut self, device: DeviceId, before: Presence) {
        let status = self.presence_of(device);
        if status != before {
            self.say(format!("write {} {status}", name(device)));
        }
    }

    fn told(&self, of: DeviceId) -> String {
        let told = self.facts.iter().find_map(|fact| match fact {
            Fact::Told { desktop, status, reason } if *desktop == of => Some((*status, *reason)),
            _ => None,
        });
        let (status, reason) = told.unwrap_or((Presence::Disconnected, "graceElapsed"));
        format!("{} {status} {reason} {}", name(of), self.revision)
    }

    fn renew(&mut self, renewed: Route) {
        for fact in &mut self.facts {
            if let Fact::Resumable { route, until, .. } = fact
                && *route == renewed
            {
                *until = self.now + TTL;
            }
        }
    }

    fn step(&mut self, step: &Step) -> Vec<String> {
        let now = self.now;
        let expired = self.take(|fact| matches!(fact, Fact::Open { until, .. } if *until <= now));
        self.refuse(expired, -32012);
        self.take(|fact| matches!(fact, Fact::Resumable { until, .. } if *until <= now));
        match *step {
            Step::Register { socket, route, resume } => {
                self.say(match route {
                    Route::Desktop(desktop) => format!("{socket} look-up {}", name(desktop)),
                    Route::Phone { phone, desktop } => format!("{socket} look-up {} {}", name(phone), name(desktop)),
                });
                self.facts.push(Fact::Registering { socket, route, resume });
            }
            Step::LookedUp { socket, rows } => self.looked_up(socket, rows),
            Step::Call { socket, id, method, params } => self.call(socket, id, method, params),
            Step::Respond { socket, client, id, is_final } => self.respond(socket, client, id, is_final),
            Step::NotForwarded { socket, id } => {
                let records =
                    self.take(|fact| matches!(fact, Fact::Open { desktop, id: open, .. } if *desktop == socket && open == id.trim()));
                self.refuse(records, -32023);
            }
            Step::Closed { socket } => {
                self.take(|fact| matches!(fact, Fact::Registering { socket: own, .. } | Fact::Replaced { socket: own } if *own == socket));
                self.lose(socket, "socketClosed");
            }
            Step::Retire { socket, reason } => {
                let is_own = |fact: &Fact| matches!(fact, Fact::Registering { socket: own, .. } if *own == socket);
                if !self.take(is_own).is_empty() || self.route(socket).is_some() {
                    self.say(format!("{socket} close {}", reason.text()));
                }
                self.lose(socket, if reason == CloseReason::Silent { "silent" } else { "saturated" });
            }
            Step::Grace { desktop, socket } => {
                if !self.take(|fact| *fact == Fact::Waits { desktop, socket }).is_empty() {
                    self.desktop_is_now(desktop, Presence::Reconnecting, "graceElapsed");
                }
            }
            Step::CloseDevice { device, reason } => self.close_device(device, reason),
            Step::Timeout => {}
        }
        std::mem::take(&mut self.lines)
    }

    fn looked_up(&mut self, socket: SocketId, rows: Rows) {
        let asked = self.take(|fact| matches!(fact, Fact::Registering { socket: own, .. } if *own == socket));
        let Some(Fact::Registering { route, resume, .. }) = asked.into_iter().next() else { return };
        let resumable = |begun_by: SocketId, facts: &[Fact]| {
            facts.iter().any(|fact| matches!(fact, Fact::Resumable { route: own, begun_by: by, .. } if *own == route && *by == begun_by))
        };
        let failure = match (rows, resume) {
            (Rows::PolicyUnavailable, _) => Some("relayProtocolPolicyUnavailable"),
            (Rows::Unavailable, _) => Some("deviceLookupUnavailable"),
            (Rows::Missing, _) => Some("deviceNotFound"),
            (Rows::Good, Some((begun_by, right))) if !right || !resumable(begun_by, &self.facts) => Some("invalidResume"),
            (Rows::Good, _) => None,
        };
        if let Some(code) = failure {
            return self.say(format!("{socket} failed {code}"));
        }
        let (kind, begun_by) = match resume {
            Some((begun_by, _)) => ("resumed", begun_by),
            None => ("registered", socket),
        };
        self.take(|fact| matches!(fact, Fact::Resumable { route: own, .. } if *own == route));
        self.facts.push(Fact::Resumable { route, begun_by, until: self.now + TTL });

        let before = self.presence_of(route.device());
        if let Some(old) = self.holder(route) {
            self.take(|fact| *fact == Fact::Holds { socket: old, route });
            self.facts.push(Fact::Replaced { socket: old });
            self.say(format!("{old} close replaced"));
            let records = self.take(|fact| matches!(fact, Fact::Open { desktop, .. } if *desktop == old));
            self.refuse(records, -32011);
        }
        let target = match route {
            Route::Desktop(_) => String::new(),
            Route::Phone { desktop, .. } => format!(" {}", self.told(desktop)),
        };
        self.say(format!("{socket} {kind} session {begun_by}{target}"));
        self.take(|fact| matches!(fact, Fact::Waits { desktop, .. } if *desktop == route.device()));
        self.facts.push(Fact::Holds { socket, route });
        match route {
            Route::Desktop(desktop) => self.desktop_is_now(desktop, before, "registered"),
            Route::Phone { phone, .. } => self.store(phone, before),
        }
    }

    fn call(&mut self, socket: SocketId, id: &'static str, method: &'static str, params: u32) {
        let Some(client) = self.route(socket) else {
            let refused = self.facts.contains(&Fact::Replaced { socket });
            return self.say(if refused { format!("{socket} refusal {id} -32024") } else { "dropped StaleSocket".into() });
        };
        let Route::Phone { desktop: target, .. } = client else { return self.say("dropped StaleSocket".into()) };
        self.renew(client);
        let desktop = self.holder(Route::Desktop(target));
        let open: Vec<_> = self.facts.iter().filter(|fact| matches!(fact, Fact::Open { .. })).collect();
        let to_desktop = open.iter().filter(|fact| matches!(fact, Fact::Open { desktop: to, .. } if Some(*to) == desktop));
        let of_client = open.iter().filter(|fact| matches!(fact, Fact::Open { client: from, .. } if *from == client));
        let content = (method, params);
        let same_id = open.iter().find_map(|fact| match fact {
            Fact::Open { desktop: to, id: open, client: from, content: asked, .. } if Some(*to) == desktop && open == id.trim() => {
                Some(*from == client && *asked == content)
            }
            _ => None,
        });
        let is_full = open.len() >= PER_USER || to_desktop.count() >= PER_DESKTOP || of_client.count() >= PER_CLIENT;
        let code = match (desktop, same_id) {
            (None, _) if self.presence_of(target) == Presence::Reconnecting => -32011,
            (None, _) => -32010,
            (Some(_), Some(true)) => -32021,
            (Some(_), Some(false)) => -32022,
            (Some(_), None) if is_full => -32020,
            (Some(desktop), None) => {
                let life = LIFE.iter().find(|(of, _)| *of == method).unwrap().1;
                let until = self.now + life;
                self.facts.push(Fact::Open { desktop, id: id.trim().into(), written: id, client, content, until });
                return self.say(format!("{desktop} request {} from {}::{}", id.trim(), name(client.device()), name(target)));
            }
        };
        self.say(format!("{socket} refusal {id} {code}"));
    }

    fn respond(&mut self, socket: SocketId, to: Route, id: &str, is_final: bool) {
        let Some(route) = self.route(socket) else { return self.say("dropped StaleSocket".into()) };
        self.renew(route);
        let matching = |fact: &Fact| matches!(fact, Fact::Open { desktop, id: open, client, .. } if *desktop == socket && open == id.trim() && *client == to);
        let Some(Fact::Open { written, .. }) = self.facts.iter().find(|fact| matching(fact)).cloned() else {
            return self.say("dropped NoPendingRecord".into());
        };
        self.tell(to, &format!("reply {written} 1{}", if is_final { "" } else { " more" }));
        if is_final {
            self.take(matching);
        }
    }

    /// A connection ends, and its device may come back.
    fn lose(&mut self, socket: SocketId, reason: &'static str) {
        let Some(route) = self.route(socket) else { return };
        let before = self.presence_of(route.device());
        self.take(|fact| *fact == Fact::Holds { socket, route });
        match route {
            Route::Phone { phone, .. } => self.store(phone, before),
            Route::Desktop(desktop) => {
                let records = self.take(|fact| matches!(fact, Fact::Open { desktop, .. } if *desktop == socket));
                self.refuse(records, -32011);
                self.facts.push(Fact::Waits { desktop, socket });
                self.desktop_is_now(desktop, before, reason);
                self.say(format!("arm {} {socket}", name(desktop)));
            }
        }
    }

    fn close_device(&mut self, device: DeviceId, reason: CloseReason) {
        let before = self.presence_of(device);
        self.take(|fact| matches!(fact, Fact::Resumable { route, .. } if route.device() == device));
        self.take(|fact| matches!(fact, Fact::Waits { desktop, .. } if *desktop == device));
        let closed = self.take(|fact| match fact {
            Fact::Registering { route, .. } | Fact::Holds { route, .. } => route.device() == device,
            _ => false,
        });
        for fact in closed {
            let (Fact::Registering { socket, .. } | Fact::Holds { socket, .. }) = fact else { continue };
            self.say(format!("{socket} close {}", reason.text()));
            let records = self.take(|fact| matches!(fact, Fact::Open { desktop, .. } if *desktop == socket));
            self.refuse(records, -32010);
        }
        if before == Presence::Disconnected {
            return;
        }
        if name(device).starts_with('d') {
            self.desktop_is_now(device, before, if reason == CloseReason::LoggedOut { "loggedOut" } else { "deviceForgotten" });
        } else {
            self.store(device, before);
        }
    }

    fn count(&self, of: impl Fn(&Fact) -> bool) -> usize {
        self.facts.iter().filter(|fact| of(fact)).count()
    }

    fn observe(&self) -> Observed {
        Observed {
            registrations: self.count(|fact| matches!(fact, Fact::Registering { .. })),
            desktops: self.count(|fact| matches!(fact, Fact::Holds { route: Route::Desktop(_), .. })),
            phones: self.count(|fact| matches!(fact, Fact::Holds { route: Route::Phone { .. }, .. })),
            replaced: self.count(|fact| matches!(fact, Fact::Replaced { .. })),
            pending: self.count(|fact| matches!(fact, Fact::Open { .. })),
            waiting: self.count(|fact| matches!(fact, Fact::Waits { .. })),
            sessions: self.count(|fact| matches!(fact, Fact::Resumable { .. })),
        }
    }

    /// The earliest end of a request or a session.
    fn next_end(&self) -> Option<Duration> {
        let ends = self.facts.iter().filter_map(|fact| match fact {
            Fact::Open { until, .. } | Fact::Resumable { until, .. } => Some(*until),
            _ => None,
        });
        ends.min()
    }
}

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
    NotForwarded { socket: usize, id: usize },
    Closed { socket: usize },
    Retire { socket: usize, reason: CloseReason },
    Grace { wait: usize },
    CloseDevice { device: usize, reason: CloseReason },
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
        2 => (0..8_usize, 0..4_usize).prop_map(|(socket, id)| Draw::NotForwarded { socket, id }),
        4 => (0..12_usize).prop_map(|socket| Draw::Closed { socket }),
        1 => (0..12_usize, select(vec![CloseReason::Silent, CloseReason::Saturated]))
            .prop_map(|(socket, reason)| Draw::Retire { socket, reason }),
        4 => (0..3_usize).prop_map(|wait| Draw::Grace { wait }),
        1 => (0..4_usize, select(vec![CloseReason::LoggedOut, CloseReason::DeviceForgotten]))
            .prop_map(|(device, reason)| Draw::CloseDevice { device, reason }),
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
}

impl Pair {
    fn new() -> Self {
        let harness = Harness::with(|config| {
            config.resume_ttl = TTL;
            [(_, config.pending_default), (_, config.pending_load), (_, config.pending_outbox)] = LIFE;
            (config.per_client, config.per_desktop, config.per_user) = (PER_CLIENT, PER_DESKTOP, PER_USER);
        });
        Pair { harness, model: Model::default(), sockets: Vec::new(), waits: Vec::new() }
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
            Draw::NotForwarded { socket, id } => vec![Step::NotForwarded { socket: self.socket(socket), id: IDS[id] }],
            Draw::Closed { socket } => vec![Step::Closed { socket: self.socket(socket) }],
            Draw::Retire { socket, reason } => vec![Step::Retire { socket: self.socket(socket), reason }],
            Draw::Grace { wait } => {
                let wait = self.waits.iter().rev().nth(wait).or(self.waits.first());
                wait.map(|(desktop, socket)| Step::Grace { desktop: *desktop, socket: *socket }).into_iter().collect()
            }
            Draw::CloseDevice { device, reason } => {
                let device = [desktop(0), desktop(1), phone(0), phone(1)][device];
                vec![Step::CloseDevice { device, reason }]
            }
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
            seen.push(line(effect));
        }
        let mut expected = self.model.step(step);
        seen.sort_unstable();
        expected.sort_unstable();
        let core = &self.harness.core;
        prop_assert_eq!(seen, expected, "{:?}\n{:#?}", step, &self.model.facts);
        prop_assert_eq!(core.observe(), self.model.observe(), "{:?}", step);
        prop_assert_eq!(core.presence(), self.model.presence(), "{:?}", step);
        prop_assert_eq!(core.check_invariants(), Ok(()));
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
            Input::Register { socket, role: role(route), header_target: None, register, fresh: fresh(socket) }
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
        Step::NotForwarded { socket, id } => Input::NotForwarded { socket, id: RequestId::new(id) },
        Step::Closed { socket } => Input::SocketClosed { socket },
        Step::Retire { socket, reason } => Input::Retire { socket, reason },
        Step::Grace { desktop, socket } => Input::GraceElapsed { desktop, generation: connection(socket) },
        Step::CloseDevice { device, reason } => Input::CloseDevice { device, reason },
        Step::Timeout => Input::Timeout,
    }
}

/// Like [`describe`], with what a registration answer says.
fn line(effect: Effect) -> String {
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
