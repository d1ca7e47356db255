//! What the process holds now, read for `GET /metrics`: from where it is kept anyway, so nothing has to be counted up and down beside it.

use crate::{
    clock,
    counters::Counter,
    device_socket::{EventFates, SocketTable},
    directory::Directory,
    persistence::Statement,
};
use relay_protocol::{device::Role, error::BoundScope, id::UserId};
use std::{collections::HashMap, time::Duration};

/// How much there is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Registered sockets of desktops.
    pub desktops: usize,
    /// Registered sockets of phones.
    pub phones: usize,
    /// Sockets without a registration.
    pub unregistered: usize,
    /// Accounts with live state.
    pub accounts: usize,
    /// Phones with a timeline lease that is not over.
    pub leases: usize,
    /// Requests that wait for their answer.
    pub open_requests: usize,
    /// How many there may be, in the order of [`BoundScope::ALL`].
    pub open_requests_max: [usize; BoundScope::ALL.len()],
    /// Whole messages of sockets that wait for their account's router, or are being handled.
    pub mailbox_messages: usize,
    /// Those of the account that has most.
    pub mailbox_messages_largest: usize,
    /// Bytes in outbound lanes.
    pub outbound: Bytes,
    /// Bytes of messages that are unfinished, or that wait for a router.
    pub inbound: Bytes,
    /// Look-ups of registrations that storage has not answered.
    pub lookups_open: usize,
    /// Devices whose newest status is not stored.
    pub statuses_unwritten: usize,
    /// How long the one that has waited longest has waited.
    pub status_lag: Duration,
    /// Statements whose last run failed.
    pub failing: Vec<Statement>,
    /// What became of events, since the start.
    pub events: Events,
}

/// Bytes that are held, and how many may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Held now.
    pub held: usize,
    /// The bound; it may be passed by one message for a moment.
    pub max: usize,
}

/// Events of desktops, one for each phone that they were for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// See [`EventFates::delivered`].
    pub delivered: u64,
    /// See [`EventFates::coalesced`].
    pub coalesced: u64,
    /// See [`EventFates::lease_ended`].
    pub lease_ended: u64,
    /// See [`EventFates::closed`].
    pub closed: u64,
}

impl Events {
    fn of(fates: &EventFates) -> Self {
        let [delivered, coalesced, lease_ended, closed] =
            [&fates.delivered, &fates.coalesced, &fates.lease_ended, &fates.closed].map(Counter::get);
        Events { delivered, coalesced, lease_ended, closed }
    }
}

impl Readings {
    /// Goes over all sockets once.
    pub(crate) fn of(sockets: &SocketTable, directory: &Directory) -> Self {
        let now = clock::now();
        let (persistence, core) = (directory.services().persistence_state(), directory.core_config());
        let mut readings = Readings {
            accounts: directory.len(),
            open_requests: core.process.open(),
            open_requests_max: BoundScope::ALL.map(|scope| core.bound(scope)),
            outbound: Bytes { held: sockets.outbound().held(), max: sockets.outbound().bytes_max() },
            inbound: Bytes { held: sockets.inbound().held(), max: sockets.inbound().bytes_max() },
            lookups_open: persistence.lookups_open,
            statuses_unwritten: persistence.statuses_queued + persistence.statuses_in_flight,
            status_lag: persistence.statuses_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
            failing: persistence.failing.keys().copied().collect(),
            events: Events::of(sockets.fates()),
            ..Readings::default()
        };
        let mut by_account: HashMap<UserId, usize> = HashMap::new();
        for link in sockets.snapshot() {
            match (link.registration(), link.role) {
                (None, _) => readings.unregistered += 1,
                (Some(_), Role::Desktop) => readings.desktops += 1,
                (Some(_), Role::Mobile) => readings.phones += 1,
            }
            readings.leases += usize::from(link.lane.has_lease(now));
            let waiting = link.waiting_messages();
            if waiting > 0 {
                readings.mailbox_messages += waiting;
                let of_account = by_account.entry(link.identity.user).or_default();
                *of_account += waiting;
                readings.mailbox_messages_largest = readings.mailbox_messages_largest.max(*of_account);
            }
        }
        readings
    }
}
