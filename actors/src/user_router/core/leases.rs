//! Which phones watch which session of which desktop (device-lane section 6).
//!
//! A phone route holds one lease at a time, for a minute from its last renewal. A session has a generation while some phone has a lease of
//! it: desktops put it into their timeline frames, and what shows another one reaches nobody. A desktop is told of its sessions, never of
//! the phones.

use super::{Effects, UserCore, after};
use crate::user_router::message::{DropReason, Effect, LeaseEpoch, LeaseTerm, Now, SocketId};
use relay_protocol::{
    event::{self, BaseSession, Interest},
    id::{AuthorizationGeneration, DeviceId, RelayInstanceId, Route},
};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// A session of one desktop.
pub(super) type Watched = (DeviceId, BaseSession);

#[derive(Debug)]
pub(super) struct Leases {
    pub(super) by_session: BTreeMap<Watched, Interested>,
    pub(super) by_phone: BTreeMap<Route, BaseSession>,
    /// Each lease at its end.
    pub(super) deadlines: BTreeSet<(Instant, Route)>,
    last_epoch: u64,
    /// Counts what desktops were told.
    revision: u64,
}

/// The phones with a lease of one session; at least one.
#[derive(Debug)]
pub(super) struct Interested {
    pub(super) generation: AuthorizationGeneration,
    pub(super) leases: BTreeMap<Route, Lease>,
    /// The deadline that the desktop's connection knows.
    told: Option<Instant>,
}

/// One phone's lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) socket: SocketId,
    pub(super) term: LeaseTerm,
}

impl Leases {
    pub(super) fn new(revision: u64) -> Self {
        Leases { by_session: BTreeMap::new(), by_phone: BTreeMap::new(), deadlines: BTreeSet::new(), last_epoch: 0, revision }
    }

    /// The phones with a lease of a session, if there is one.
    pub(super) fn of(&self, watched: &Watched) -> Option<&Interested> {
        self.by_session.get(watched)
    }

    /// Takes a lease, or renews the one that the phone has of this session.
    fn take(
        &mut self,
        phone: Route,
        socket: SocketId,
        session: BaseSession,
        generation: AuthorizationGeneration,
        deadline: Instant,
    ) -> LeaseTerm {
        let next_epoch = LeaseEpoch(self.last_epoch + 1);
        let new = || Interested { generation, leases: BTreeMap::new(), told: None };
        let interested = self.by_session.entry((phone.desktop(), session.clone())).or_insert_with(new);
        let lease = Lease { socket, term: LeaseTerm { epoch: next_epoch, deadline } };
        let lease = match interested.leases.get_mut(&phone) {
            Some(held) => {
                self.deadlines.remove(&(held.term.deadline, phone));
                held.term.deadline = deadline;
                *held
            }
            None => {
                self.last_epoch = next_epoch.0;
                self.by_phone.insert(phone, session);
                *interested.leases.entry(phone).or_insert(lease)
            }
        };
        self.deadlines.insert((deadline, phone));
        lease.term
    }

    /// Ends the phone's lease, if it has one: whose it was, and of what.
    fn end(&mut self, phone: Route) -> Option<(Lease, Watched)> {
        let watched = (phone.desktop(), self.by_phone.remove(&phone)?);
        let interested = self.by_session.get_mut(&watched)?;
        let lease = interested.leases.remove(&phone)?;
        self.deadlines.remove(&(lease.term.deadline, phone));
        Some((lease, watched))
    }

    fn pop_due(&mut self, now: Instant) -> Option<(Lease, Watched)> {
        let (deadline, phone) = *self.deadlines.first()?;
        if deadline > now { None } else { self.end(phone) }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    pub(super) fn len(&self) -> usize {
        self.by_phone.len()
    }

    /// A session without a lease has no generation.
    fn forget_if_unwatched(&mut self, watched: &Watched) {
        if self.by_session.get(watched).is_some_and(|interested| interested.leases.is_empty()) {
            self.by_session.remove(watched);
        }
    }
}

impl Interested {
    fn deadline(&self) -> Option<Instant> {
        self.leases.values().map(|lease| lease.term.deadline).max()
    }
}

/// What a desktop is told of one session.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Update<'a> {
    app_session_id: &'a str,
    active: bool,
    expires_at: Option<i64>,
    expires_in_ms: Option<u64>,
    authorization_generation: Option<AuthorizationGeneration>,
    revision: u64,
    relay_instance_id: RelayInstanceId,
}

impl UserCore {
    /// Only the connection that holds its route has a say: what a replaced one still sends changes nothing.
    pub(super) fn on_interest(
        &mut self,
        now: Now,
        socket: SocketId,
        interest: &Interest,
        generation: AuthorizationGeneration,
        effects: &mut Effects,
    ) {
        let Some(phone @ Route::Phone { desktop, .. }) = self.routes.live(socket).map(|live| live.route) else {
            return effects.push(Effect::Dropped(DropReason::StaleSocket));
        };
        let Interest { session, active } = interest;
        match (*active, self.leases.by_phone.get(&phone) == Some(session)) {
            // A renewal.
            (true, true) => {}
            // Another session's lease ends when this one begins, and this one's when it is given up.
            (true, false) | (false, true) => self.end_lease(now, phone, effects),
            (false, false) => return,
        }
        if *active {
            let deadline = after(now.monotonic, self.config.interest_ttl);
            let term = self.leases.take(phone, socket, session.clone(), generation, deadline);
            effects.push(Effect::SetLease { socket, lease: Some(term) });
            self.tell_of(now, &(desktop, session.clone()), effects);
        }
    }

    /// The phone's connection ends, or looks at something else.
    pub(super) fn end_lease(&mut self, now: Now, phone: Route, effects: &mut Effects) {
        let Some((lease, watched)) = self.leases.end(phone) else { return };
        effects.push(Effect::SetLease { socket: lease.socket, lease: None });
        self.tell_of(now, &watched, effects);
        self.leases.forget_if_unwatched(&watched);
    }

    /// The desktop has had the deadline since the last renewal, and stops by itself.
    pub(super) fn expire_leases(&mut self, now: Instant, effects: &mut Effects) {
        while let Some((lease, watched)) = self.leases.pop_due(now) {
            effects.push(Effect::SetLease { socket: lease.socket, lease: None });
            self.leases.forget_if_unwatched(&watched);
        }
    }

    /// A desktop's new connection knows nothing yet.
    pub(super) fn tell_of_all(&mut self, now: Now, desktop: DeviceId, effects: &mut Effects) {
        let watched: Vec<_> = self.leases.by_session.keys().filter(|(of, _)| *of == desktop).cloned().collect();
        for watched in watched {
            if let Some(interested) = self.leases.by_session.get_mut(&watched) {
                interested.told = None;
            }
            self.tell_of(now, &watched, effects);
        }
    }

    /// Tells the desktop of the session's leases if it does not know it like that. One that is away learns it when it is back.
    fn tell_of(&mut self, now: Now, watched: &Watched, effects: &mut Effects) {
        let (desktop, session) = watched;
        let Some(socket) = self.routes.socket_of(&Route::Desktop(*desktop)) else { return };
        let Some(interested) = self.leases.by_session.get_mut(watched) else { return };
        let deadline = interested.deadline();
        if deadline == interested.told {
            return;
        }
        interested.told = deadline;
        self.leases.revision = self.leases.revision.saturating_add(1);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now.monotonic));
        let payload = Update {
            app_session_id: session.as_str(),
            active: left.is_some(),
            expires_at: left.map(|left| now.wall.plus(left).0),
            expires_in_ms: left.map(in_ms),
            authorization_generation: left.map(|_| interested.generation),
            revision: self.leases.revision,
            relay_instance_id: self.config.instance,
        };
        effects.push(Effect::Send { socket, text: event::of_relay(event::INTEREST_UPDATED, &payload) });
    }
}

fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
