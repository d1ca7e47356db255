//! The reference that the core is held against: a flat list of facts that every question searches from end to end. No index, no
//! count, no timer, no generation kept apart; written to share nothing with the core but the rules.
#![expect(clippy::wildcard_enum_match_arm, reason = "a fact is picked out of many; the model has nothing to say of the others")]

use super::{
    Observed,
    testing::{key, name},
};
use crate::user_router::message::{SocketId, Whose};
use relay_protocol::{
    close::CloseReason,
    device::Presence,
    id::{ApiKeyId, DeviceId, Route},
};
use std::{collections::BTreeMap, time::Duration};

pub(super) const LIFE: [(&str, Duration); 3] = [
    ("system.ping", Duration::from_millis(90)),
    ("run.chatLoad", Duration::from_millis(120)),
    ("run.chatOutboxSubmit", Duration::from_millis(1_860)),
];
pub(super) const TTL: Duration = Duration::from_millis(2_000);
/// Of a lease.
pub(super) const LEASE: Duration = Duration::from_millis(60);
/// Sessions as phones and desktops write them, with their base.
pub(super) const SESSIONS: [(&str, &str); 3] = [("s", "s"), (" s::skills-agent", "s"), ("t", "t")];
pub(super) const PER_CLIENT: usize = 2;
pub(super) const PER_DESKTOP: usize = 3;
pub(super) const PER_USER: usize = 4;
pub(super) const KEYS: usize = 2;

/// The API key that opened a socket: of three in a row one is opened with each key, and one without.
pub(super) fn api_key(socket: SocketId) -> Option<ApiKeyId> {
    let number = usize::try_from(socket.0).unwrap() % (KEYS + 1);
    (number < KEYS).then(|| key(number))
}

/// One thing that is so.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fact {
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
    /// The session that one socket's registration began, and another's resumed last, may be resumed.
    Resumable { route: Route, begun_by: SocketId, used_by: SocketId, until: Duration },
    /// A phone's connection has a lease.
    Watches { phone: Route, socket: SocketId, session: &'static str, generation: u64, epoch: u64, until: Duration },
    /// A desktop's connection was last told this of a session: until when there is interest.
    Knows { socket: SocketId, session: &'static str, until: Duration },
    /// What was last said of a desktop.
    Told { desktop: DeviceId, status: Presence, reason: &'static str },
}

/// One step, with everything chosen.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Register { socket: SocketId, route: Route, resume: Option<(SocketId, bool)> },
    LookedUp { socket: SocketId, rows: Rows },
    Call { socket: SocketId, id: &'static str, method: &'static str, params: u32 },
    Respond { socket: SocketId, client: Route, id: &'static str, is_final: bool },
    Interest { socket: SocketId, session: usize, active: bool, generation: u64 },
    Frame { socket: SocketId, session: usize, generation: u64 },
    Event { socket: SocketId },
    NotForwarded { socket: SocketId, id: &'static str },
    Closed { socket: SocketId },
    Retire { socket: SocketId, reason: CloseReason },
    Grace { desktop: DeviceId, socket: SocketId },
    CloseAllOf { whose: Whose, reason: CloseReason },
    Timeout,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Rows {
    Good,
    Missing,
    Unavailable,
    PolicyUnavailable,
}

#[derive(Default)]
pub(super) struct Model {
    pub(super) now: Duration,
    pub(super) facts: Vec<Fact>,
    revision: u64,
    last_epoch: u64,
    updates: u64,
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

    pub(super) fn presence(&self) -> BTreeMap<DeviceId, Presence> {
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
        self.store(desktop, before, reason);
    }

    fn store(&mut self, device: DeviceId, before: Presence, reason: &'static str) {
        let status = self.presence_of(device);
        if status != before {
            self.say(format!("write {} {status} {reason}", name(device)));
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

    pub(super) fn step(&mut self, step: &Step) -> Vec<String> {
        let now = self.now;
        let expired = self.take(|fact| matches!(fact, Fact::Open { until, .. } if *until <= now));
        self.refuse(expired, -32012);
        self.take(|fact| matches!(fact, Fact::Resumable { until, .. } if *until <= now));
        for lease in self.take(|fact| matches!(fact, Fact::Watches { until, .. } if *until <= now)) {
            self.say_ended(&lease);
        }
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
            Step::Interest { socket, session, active, generation } => self.interest(socket, SESSIONS[session].1, active, generation),
            Step::Frame { socket, session, generation } => self.frame(socket, SESSIONS[session].1, generation),
            Step::Event { socket } => self.event(socket),
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
            Step::CloseAllOf { whose, reason } => self.close_all_of(whose, reason),
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
        self.facts.push(Fact::Resumable { route, begun_by, used_by: socket, until: self.now + TTL });

        let before = self.presence_of(route.device());
        if let Some(old) = self.holder(route) {
            self.take(|fact| *fact == Fact::Holds { socket: old, route });
            self.facts.push(Fact::Replaced { socket: old });
            self.say(format!("{old} close replaced"));
            let records = self.take(|fact| matches!(fact, Fact::Open { desktop, .. } if *desktop == old));
            self.refuse(records, -32011);
            self.end_lease(route);
        }
        let target = match route {
            Route::Desktop(_) => String::new(),
            Route::Phone { desktop, .. } => format!(" {}", self.told(desktop)),
        };
        self.say(format!("{socket} {kind} session {begun_by}{target}"));
        self.take(|fact| matches!(fact, Fact::Waits { desktop, .. } if *desktop == route.device()));
        self.facts.push(Fact::Holds { socket, route });
        match route {
            Route::Desktop(desktop) => {
                for (_, session) in [SESSIONS[0], SESSIONS[2]] {
                    self.tell_of(desktop, session);
                }
                self.desktop_is_now(desktop, before, "registered");
                if before == Presence::Disconnected {
                    self.say(format!("push {} online", name(desktop)));
                }
            }
            Route::Phone { phone, .. } => self.store(phone, before, "registered"),
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

    fn watches(&self, of: impl Fn(Route, &'static str) -> bool) -> Vec<(SocketId, u64, u64, Duration)> {
        let watches = self.facts.iter().filter_map(|fact| match fact {
            Fact::Watches { phone, socket, session, generation, epoch, until } if of(*phone, session) => {
                Some((*socket, *generation, *epoch, *until))
            }
            _ => None,
        });
        watches.collect()
    }

    /// The generation of a desktop's session.
    pub(super) fn generation(&self, desktop: DeviceId, session: &str) -> Option<u64> {
        self.watches(|phone, watched| phone.desktop() == desktop && watched == session).first().map(|(_, generation, ..)| *generation)
    }

    fn say_ended(&mut self, lease: &Fact) {
        let Fact::Watches { socket, .. } = lease else { panic!("{lease:?} is no lease") };
        self.say(format!("{socket} lease none"));
    }

    fn interest(&mut self, socket: SocketId, session: &'static str, active: bool, fresh: u64) {
        let Some(phone @ Route::Phone { desktop, .. }) = self.route(socket) else { return self.say("dropped StaleSocket".into()) };
        let own = self.watches(|watcher, watched| watcher == phone && watched == session).first().copied();
        if active != own.is_some() {
            if active || own.is_some() {
                self.end_lease(phone);
            }
        } else if !active {
            return;
        }
        if active {
            let (generation, epoch) = match own {
                Some((_, generation, epoch, _)) => (generation, epoch),
                None => {
                    self.last_epoch += 1;
                    (self.generation(desktop, session).unwrap_or(fresh), self.last_epoch)
                }
            };
            self.take(|fact| matches!(fact, Fact::Watches { phone: watcher, .. } if *watcher == phone));
            let until = self.now + LEASE;
            self.facts.push(Fact::Watches { phone, socket, session, generation, epoch, until });
            self.say(format!("{socket} lease {epoch} until {}", until.as_millis()));
            self.tell_of(desktop, session);
        }
    }

    fn end_lease(&mut self, phone: Route) {
        for lease in self.take(|fact| matches!(fact, Fact::Watches { phone: watcher, .. } if *watcher == phone)) {
            self.say_ended(&lease);
            let Fact::Watches { session, .. } = lease else { continue };
            self.tell_of(phone.desktop(), session);
        }
    }

    /// A desktop that has been told something else is told until when there is interest. What it was told ends by itself.
    fn tell_of(&mut self, desktop: DeviceId, session: &'static str) {
        let Some(to) = self.holder(Route::Desktop(desktop)) else { return };
        let is = self.watches(|phone, watched| phone.desktop() == desktop && watched == session);
        let until = is.iter().map(|(.., until)| *until).max();
        let now = self.now;
        let known = self.take(|fact| matches!(fact, Fact::Knows { socket, session: of, .. } if *socket == to && *of == session));
        let known = known.iter().find_map(|fact| if let Fact::Knows { until, .. } = fact { Some(*until) } else { None });
        if let Some(until) = until {
            self.facts.push(Fact::Knows { socket: to, session, until });
        }
        if until == known.filter(|until| *until > now) {
            return;
        }
        self.updates += 1;
        self.say(match (until, is.first()) {
            (Some(until), Some((_, generation, ..))) => {
                format!("{to} interest {session} g{generation} {} r{}", (until - now).as_millis(), self.updates)
            }
            _ => format!("{to} interest {session} ended r{}", self.updates),
        });
    }

    fn frame(&mut self, socket: SocketId, session: &'static str, shown: u64) {
        let Some(Route::Desktop(desktop)) = self.route(socket) else { return self.say("dropped StaleSocket".into()) };
        let watches = self.watches(|phone, watched| phone.desktop() == desktop && watched == session);
        let is_watched = !watches.is_empty();
        let reached: Vec<_> = watches.into_iter().filter(|(_, generation, ..)| *generation == shown).collect();
        if reached.is_empty() {
            self.say(format!("dropped {}", if is_watched { "StaleGeneration" } else { "NoLease" }));
        }
        for (phone, _, epoch, _) in reached {
            self.say(format!("{phone} timeline 1 from {} under {epoch}", name(desktop)));
        }
    }

    fn event(&mut self, socket: SocketId) {
        let Some(Route::Desktop(desktop)) = self.route(socket) else { return self.say("dropped StaleSocket".into()) };
        for fact in self.facts.clone() {
            if let Fact::Holds { socket, route: Route::Phone { desktop: selected, .. } } = fact
                && selected == desktop
            {
                self.say(format!("{socket} event 1 from {}", name(desktop)));
            }
        }
    }

    /// A connection ends, and its device may come back.
    fn lose(&mut self, socket: SocketId, reason: &'static str) {
        let Some(route) = self.route(socket) else { return };
        let before = self.presence_of(route.device());
        self.take(|fact| *fact == Fact::Holds { socket, route });
        match route {
            Route::Phone { phone, .. } => {
                self.end_lease(route);
                self.store(phone, before, reason);
            }
            Route::Desktop(desktop) => {
                let records = self.take(|fact| matches!(fact, Fact::Open { desktop, .. } if *desktop == socket));
                self.refuse(records, -32011);
                self.facts.push(Fact::Waits { desktop, socket });
                self.desktop_is_now(desktop, before, reason);
                self.say(format!("arm {} {socket}", name(desktop)));
            }
        }
    }

    fn close_all_of(&mut self, whose: Whose, reason: CloseReason) {
        let is_of = |device: DeviceId, socket: SocketId| match whose {
            Whose::Device(own) => device == own,
            Whose::Account => true,
            Whose::ApiKey(own) => api_key(socket) == Some(own),
        };
        let before = self.presence();
        self.take(|fact| matches!(fact, Fact::Resumable { route, used_by, .. } if is_of(route.device(), *used_by)));
        self.take(|fact| matches!(fact, Fact::Waits { desktop, socket } if is_of(*desktop, *socket)));
        let closed = self.take(|fact| match fact {
            Fact::Registering { socket, route, .. } | Fact::Holds { socket, route } => is_of(route.device(), *socket),
            _ => false,
        });
        // The relay tells each phone what becomes of its requests even as it closes it: the close comes behind.
        self.facts.extend(closed.iter().filter(|fact| matches!(fact, Fact::Holds { .. })).cloned());
        for fact in &closed {
            let (Fact::Registering { socket, .. } | Fact::Holds { socket, .. }) = fact else { continue };
            self.say(format!("{socket} close {}", reason.text()));
            let records = self.take(|fact| matches!(fact, Fact::Open { desktop, .. } if desktop == socket));
            self.refuse(records, -32010);
        }
        self.take(|fact| closed.contains(fact));
        let mut routes: Vec<_> =
            closed.iter().filter_map(|fact| if let Fact::Holds { route, .. } = fact { Some(*route) } else { None }).collect();
        routes.sort_unstable();
        for route in routes {
            self.end_lease(route);
        }
        let reason = if reason == CloseReason::DeviceForgotten { "deviceForgotten" } else { "loggedOut" };
        for (device, before) in before {
            if self.presence_of(device) != Presence::Disconnected {
                continue;
            }
            if name(device).starts_with('d') {
                self.desktop_is_now(device, before, reason);
            } else {
                self.store(device, before, reason);
            }
        }
    }

    fn count(&self, of: impl Fn(&Fact) -> bool) -> usize {
        self.facts.iter().filter(|fact| of(fact)).count()
    }

    pub(super) fn observe(&self) -> Observed {
        Observed {
            registrations: self.count(|fact| matches!(fact, Fact::Registering { .. })),
            desktops: self.count(|fact| matches!(fact, Fact::Holds { route: Route::Desktop(_), .. })),
            phones: self.count(|fact| matches!(fact, Fact::Holds { route: Route::Phone { .. }, .. })),
            replaced: self.count(|fact| matches!(fact, Fact::Replaced { .. })),
            pending: self.count(|fact| matches!(fact, Fact::Open { .. })),
            waiting: self.count(|fact| matches!(fact, Fact::Waits { .. })),
            sessions: self.count(|fact| matches!(fact, Fact::Resumable { .. })),
            leases: self.count(|fact| matches!(fact, Fact::Watches { .. })),
        }
    }

    /// The earliest end of a request, a session or a lease.
    pub(super) fn next_end(&self) -> Option<Duration> {
        let ends = self.facts.iter().filter_map(|fact| match fact {
            Fact::Open { until, .. } | Fact::Resumable { until, .. } | Fact::Watches { until, .. } => Some(*until),
            _ => None,
        });
        ends.min()
    }
}
