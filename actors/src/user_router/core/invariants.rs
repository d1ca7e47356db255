//! What must hold after every step. Checked in debug builds by [`UserCore::handle`], and by the model test.

use super::{
    UserCore,
    leases::{Interested, Watched},
    presence::State,
};
use relay_protocol::id::Route;
use std::collections::{BTreeMap, BTreeSet};

/// A rule of this router that its state breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// R1: at most one live connection per route, and both indexes name the same ones.
    OneConnectionPerRoute,
    /// R2: a socket is registering, live or replaced, never two of these.
    OneStatePerSocket,
    /// R3: open requests belong to the current connection of their desktop, and each connected desktop has a place for them.
    RecordsOfCurrentGeneration,
    /// R4: an open request was sent by a phone that selected this desktop.
    RecordsOfOwnPhones,
    /// R5: the count of each phone route equals its open requests, and no count is zero.
    CountsEqualRecords,
    /// R6: no bound is exceeded.
    WithinBounds,
    /// R7: each open request has exactly its entry among the deadlines.
    DeadlinesEqualRecords,
    /// R8: a desktop is online exactly while it is connected; one that waits is not.
    OnlineWhileConnected,
    /// R9: no session expires before the next sweep, and there is a sweep while there are sessions.
    SweepBeforeExpiry,
    /// R10: the session of a connected route is under the API key of its connection.
    SessionOfConnection,
    /// R11: each lease is that of the live connection of a phone, and has its entries by phone and among the deadlines; each session that
    /// is kept has a lease.
    LeasesOfConnections,
}

impl UserCore {
    /// The first rule that is broken.
    ///
    /// # Errors
    /// A [`Broken`] is a defect of this router; no input may cause one.
    pub fn check_invariants(&self) -> Result<(), Broken> {
        let rules = [
            (self.has_one_connection_per_route(), Broken::OneConnectionPerRoute),
            (self.has_one_state_per_socket(), Broken::OneStatePerSocket),
            (self.has_records_of_current_generation(), Broken::RecordsOfCurrentGeneration),
            (self.has_records_of_own_phones(), Broken::RecordsOfOwnPhones),
            (self.has_counts_equal_to_records(), Broken::CountsEqualRecords),
            (self.is_within_bounds(), Broken::WithinBounds),
            (self.has_deadlines_equal_to_records(), Broken::DeadlinesEqualRecords),
            (self.is_online_while_connected(), Broken::OnlineWhileConnected),
            (self.sweeps_before_expiry(), Broken::SweepBeforeExpiry),
            (self.has_sessions_of_connections(), Broken::SessionOfConnection),
            (self.has_leases_of_connections(), Broken::LeasesOfConnections),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, broken)| Err(broken))
    }

    fn has_one_connection_per_route(&self) -> bool {
        let routes = &self.routes;
        routes.by_route.len() == routes.by_socket.len()
            && routes.by_route.iter().all(|(route, socket)| routes.by_socket.get(socket).is_some_and(|live| live.route == *route))
    }

    fn has_one_state_per_socket(&self) -> bool {
        let (registering, live, replaced) = (&self.registrations.by_socket, &self.routes.by_socket, &self.routes.replaced);
        registering.keys().all(|socket| !live.contains_key(socket) && !replaced.contains(socket))
            && replaced.iter().all(|socket| !live.contains_key(socket))
    }

    fn has_records_of_current_generation(&self) -> bool {
        let current = self.routes.by_socket.values().filter_map(|live| match live.route {
            Route::Desktop(desktop) => Some((desktop, live.connection)),
            Route::Phone { .. } => None,
        });
        let generations = self.pending.generations.iter().map(|(desktop, generation)| (*desktop, generation.connection));
        current.collect::<BTreeMap<_, _>>() == generations.collect()
    }

    fn has_records_of_own_phones(&self) -> bool {
        self.pending.generations.iter().all(|(desktop, generation)| {
            generation.records.values().all(|record| matches!(record.client, Route::Phone { desktop: target, .. } if target == *desktop))
        })
    }

    fn has_counts_equal_to_records(&self) -> bool {
        let mut counted = BTreeMap::new();
        for record in self.pending.generations.values().flat_map(|generation| generation.records.values()) {
            *counted.entry(record.client).or_insert(0) += 1;
        }
        counted == self.pending.per_client
    }

    fn is_within_bounds(&self) -> bool {
        self.pending.len() <= self.config.per_user
            && self.pending.generations.values().all(|generation| generation.records.len() <= self.config.per_desktop)
            && self.pending.per_client.values().all(|count| *count <= self.config.per_client)
    }

    fn has_deadlines_equal_to_records(&self) -> bool {
        let records = self
            .pending
            .generations
            .iter()
            .flat_map(|(desktop, generation)| generation.records.iter().map(|(id, record)| (record.deadline, (*desktop, id.clone()))));
        records.collect::<BTreeMap<_, _>>() == self.pending.deadlines
    }

    fn is_online_while_connected(&self) -> bool {
        let online = self.statuses.states().filter(|(_, state)| *state == State::Online).map(|(desktop, _)| desktop);
        online.eq(self.pending.generations.keys().copied())
    }

    fn sweeps_before_expiry(&self) -> bool {
        let earliest = self.sessions.by_route.values().map(|session| session.expires).min();
        match (earliest, self.sessions.next_sweep) {
            (Some(earliest), Some(sweep)) => sweep <= earliest,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    fn has_sessions_of_connections(&self) -> bool {
        let session_of = |route| self.sessions.by_route.get(route);
        self.routes.by_socket.values().all(|live| session_of(&live.route).is_none_or(|session| session.api_key == live.api_key))
    }

    fn has_leases_of_connections(&self) -> bool {
        let leases = || {
            let of = |((desktop, session), interested): (&'_ Watched, &'_ Interested)| {
                interested.leases.iter().map(|(phone, lease)| (*phone, *desktop, session.clone(), *lease)).collect::<Vec<_>>()
            };
            self.leases.by_session.iter().flat_map(of)
        };
        let of_phones = leases().map(|(phone, _, session, _)| (phone, session));
        let ends = leases().map(|(phone, _, _, lease)| (lease.term.deadline, phone));
        self.leases.by_session.values().all(|interested| !interested.leases.is_empty())
            && of_phones.collect::<BTreeMap<_, _>>() == self.leases.by_phone
            && leases().count() == self.leases.by_phone.len()
            && ends.collect::<BTreeSet<_>>() == self.leases.deadlines
            && leases().all(|(phone, desktop, _, lease)| phone.desktop() == desktop && self.routes.socket_of(&phone) == Some(lease.socket))
    }
}
