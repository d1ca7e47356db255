//! All decisions of the user router: who holds which route, which request waits for which answer, who is shown as present. No I/O,
//! no clock, no randomness; what it knows came in as an [`Input`], what it wants leaves as an [`Effect`].
//!
//! The actor beside it calls [`UserCore::handle`] for each message, runs the effects in order, and sets one timer by
//! [`UserCore::next_timeout`]. What is due at a step's time ends before the step's own input is looked at, so a late timer never
//! lengthens a deadline.
//!
//! | file | owns |
//! | --- | --- |
//! | `registrations` | registrations whose look-up is running; the order of the checks; the answer |
//! | `routes` | live connections, by route and by socket |
//! | `calls`, `pending` | requests and responses; the records between them, their bounds and deadlines |
//! | `process` | the bound that all routers of the process share |
//! | `closes` | how a connection ends: closed, retired, forgotten |
//! | `leases` | which phones watch which session, and what desktops are told of it |
//! | `events` | what desktops say to their phones, by socket and by push |
//! | `presence` | what phones are told of desktops |
//! | `sessions` | resume sessions |
//! | `invariants` | what must hold after every step, R1 to R11 |

mod calls;
mod closes;
mod events;
mod invariants;
mod leases;
mod pending;
mod presence;
mod process;
mod registrations;
mod routes;
mod sessions;

#[cfg(test)]
mod calls_test;
#[cfg(test)]
mod closes_test;
#[cfg(test)]
mod delivery_test;
#[cfg(test)]
mod leases_test;
#[cfg(test)]
mod model;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod presence_test;
#[cfg(test)]
mod push_test;
#[cfg(test)]
mod registrations_test;
#[cfg(test)]
mod spans_test;
#[cfg(test)]
mod testing;

use super::message::{Effect, Input, Now};
use crate::{counters::Counters, drain::Drain, spans::Spans};
pub use invariants::Broken;
use leases::Leases;
use pending::Pending;
use presence::Statuses;
pub use process::ProcessPending;
use registrations::{Registration, Registrations};
use relay_protocol::{
    device::Presence,
    error::BoundScope,
    id::{DeviceId, RelayInstanceId, UserId},
    limits,
};
use routes::Routes;
use sessions::Sessions;
use std::{
    collections::{BTreeMap, VecDeque},
    hash::RandomState,
    sync::Arc,
    time::{Duration, Instant},
};

/// A wait that the clock cannot express becomes this one.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// What one account's router is told when it is made.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// The account.
    pub user: UserId,
    /// This process, as clients know it.
    pub instance: RelayInstanceId,
    /// Keys the fingerprints of requests, so that a client cannot make two of them look alike.
    pub hashing: RandomState,
    /// Revisions of presence and of timeline interest count up from here. Above any that an earlier router of this account used, since
    /// clients ignore lower ones from one instance: milliseconds since the process started will do.
    pub revision_base: u64,
    /// A resume session's life from its last RPC.
    pub resume_ttl: Duration,
    /// A record's life where no other rule names one.
    pub pending_default: Duration,
    /// A record's life for the initial timeline loads.
    pub pending_load: Duration,
    /// A record's life for an outbox submit.
    pub pending_outbox: Duration,
    /// A lease's life from its last renewal.
    pub interest_ttl: Duration,
    /// Open requests of one phone route.
    pub per_client: usize,
    /// Open requests to one desktop.
    pub per_desktop: usize,
    /// Open requests of the account.
    pub per_user: usize,
    /// Open requests of the process: the bound and the count, shared by its routers.
    pub process: ProcessPending,
    /// Whether the process is leaving: then nothing new is taken on.
    pub drain: Drain,
    /// What is counted: written only, no decision reads it.
    pub counters: Arc<Counters>,
    /// Where spans go, if they are recorded. The core only asks whether they are.
    pub spans: Option<Spans>,
}

impl CoreConfig {
    /// The account's configuration with the default of each limit.
    pub fn new(user: UserId, instance: RelayInstanceId, hashing: RandomState) -> Self {
        CoreConfig {
            user,
            instance,
            hashing,
            revision_base: 0,
            resume_ttl: limits::RESUME_TTL,
            pending_default: limits::PENDING_DEFAULT,
            pending_load: limits::PENDING_LOAD,
            pending_outbox: limits::PENDING_OUTBOX,
            interest_ttl: limits::TIMELINE_INTEREST_TTL,
            per_client: limits::PENDING_PER_CLIENT_MAX,
            per_desktop: limits::PENDING_PER_DESKTOP_MAX,
            per_user: limits::PENDING_PER_USER_MAX,
            process: ProcessPending::default(),
            drain: Drain::default(),
            counters: Arc::default(),
            spans: None,
        }
    }
}

impl CoreConfig {
    /// How many open requests there may be, by this bound.
    pub fn bound(&self, scope: BoundScope) -> usize {
        match scope {
            BoundScope::Process => self.process.limit(),
            BoundScope::User => self.per_user,
            BoundScope::Desktop => self.per_desktop,
            BoundScope::Client => self.per_client,
        }
    }
}

/// Effects in the order in which they must be run.
#[derive(Debug, Default)]
pub struct Effects {
    queue: VecDeque<Effect>,
}

impl Effects {
    /// Adds one at the end.
    pub fn push(&mut self, effect: Effect) {
        self.queue.push_back(effect);
    }

    /// Takes the one that is next.
    pub fn pop(&mut self) -> Option<Effect> {
        self.queue.pop_front()
    }
}

/// How much a router holds; for metrics and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Registrations whose look-up is running.
    pub registrations: usize,
    /// Live connections of desktops.
    pub desktops: usize,
    /// Live connections of phones.
    pub phones: usize,
    /// Replaced sockets that have not ended yet.
    pub replaced: usize,
    /// Open requests.
    pub pending: usize,
    /// Desktops within the reconnect wait.
    pub waiting: usize,
    /// Resume sessions.
    pub sessions: usize,
    /// Leases of phones.
    pub leases: usize,
}

/// The core of one account's router.
#[derive(Debug)]
pub struct UserCore {
    config: CoreConfig,
    registrations: Registrations,
    routes: Routes,
    pending: Pending,
    leases: Leases,
    statuses: Statuses,
    sessions: Sessions,
}

impl UserCore {
    /// A router that has seen nothing yet.
    pub fn new(config: CoreConfig) -> Self {
        UserCore {
            registrations: Registrations::default(),
            routes: Routes::default(),
            pending: Pending::default(),
            leases: Leases::new(config.revision_base),
            statuses: Statuses::new(config.instance, config.revision_base),
            sessions: Sessions::new(config.resume_ttl),
            config,
        }
    }

    /// Takes one step. `now` must not run backwards from step to step.
    pub fn handle(&mut self, now: Now, input: Input, effects: &mut Effects) {
        self.end_what_is_due(now.monotonic, effects);
        match input {
            Input::Register { socket, role, header_target, register, fresh, api_key } => {
                self.on_register(socket, Registration { role, header_target, register, fresh, api_key }, effects);
            }
            Input::LookedUp { socket, required, devices } => self.on_looked_up(now, socket, required, devices, effects),
            Input::Call { socket, call } => self.on_call(now.monotonic, socket, call, effects),
            Input::Response { socket, response } => self.on_response(now.monotonic, socket, &response, effects),
            Input::Interest { socket, interest, generation } => self.on_interest(now, socket, &interest, generation, effects),
            Input::Timeline { socket, frame } => self.on_timeline(socket, &frame, effects),
            Input::Event { socket, event } => self.on_event(socket, &event, effects),
            Input::Notification { socket, notification } => self.on_notification(socket, notification, effects),
            Input::Notified { socket, answer } => self.on_notified(socket, answer, effects),
            Input::NotForwarded { socket, id } => self.on_not_forwarded(now.monotonic, socket, &id, effects),
            Input::SocketClosed { socket } => self.on_socket_closed(now, socket, effects),
            Input::Retire { socket, reason } => self.on_retire(now, socket, reason, effects),
            Input::GraceElapsed { desktop, generation } => self.on_grace_elapsed(now.wall, desktop, generation, effects),
            Input::CloseAllOf { whose, reason } => self.on_close_all_of(now, whose, reason, effects),
            Input::Clear => self.on_clear(),
            Input::Timeout => {}
        }
        debug_assert_eq!(self.check_invariants(), Ok(()));
    }

    /// When [`Input::Timeout`] is wanted at the latest, and why. It may be earlier than anything ends.
    pub fn next_timeout(&self) -> Option<(Instant, &'static str)> {
        let record = self.pending.next_deadline().map(|at| (at, "request deadline"));
        let session = self.sessions.next_sweep().map(|at| (at, "resume session expiry"));
        let lease = self.leases.next_deadline().map(|at| (at, "timeline lease"));
        [record, session, lease].into_iter().flatten().min()
    }

    /// Whether nothing would be lost by letting this router go: no connection, no registration, no reconnect wait, no session.
    /// Open requests and leases need no mention, since each belongs to a live connection.
    pub fn is_idle(&self) -> bool {
        self.registrations.is_empty() && self.routes.is_empty() && self.statuses.waiting() == 0 && self.sessions.is_empty()
    }

    /// Live presence of the account's devices. A device that is missing is disconnected; a phone is online or missing.
    pub fn presence(&self) -> BTreeMap<DeviceId, Presence> {
        let mut presence: BTreeMap<_, _> = self.statuses.present().collect();
        presence.extend(self.routes.phones().map(|(route, _)| (route.device(), Presence::Online)));
        presence
    }

    /// How much this router holds.
    pub fn observe(&self) -> Observed {
        let phones = self.routes.phones().count();
        Observed {
            registrations: self.registrations.len(),
            desktops: self.routes.len() - phones,
            phones,
            replaced: self.routes.replaced(),
            pending: self.pending.len(),
            waiting: self.statuses.waiting(),
            sessions: self.sessions.len(),
            leases: self.leases.len(),
        }
    }

    fn end_what_is_due(&mut self, now: Instant, effects: &mut Effects) {
        self.expire_records(now, effects);
        self.expire_leases(now, effects);
        self.sessions.sweep(now);
    }
}

/// The end of a wait.
fn after(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).unwrap_or_else(|| now + LONGEST_WAIT)
}
