//! The persistence actor: everything that routers need of storage, so that no router ever waits for it.
//!
//! It owns the batches of device look-ups, the newest unwritten status of each device, the policy cache, and the one statement
//! after a start that ends what a dead process left online. Routers and the supervisor send it messages; HTTP handlers use the
//! store directly.
//!
//! Flow: messages become inputs of the pure core, which keeps at most one read of devices, one read of rules and one write in
//! flight. Whatever arrives meanwhile goes into the next batch, so the number of statements grows with time, not with devices.
//! A failed look-up is answered as unavailable at once; a failed write stays queued and is retried, newest status per device. A read
//! that failed is repeated for nobody, until it works: so the end of an outage is noticed though no device registers.
//!
//! A panic ends the actor. What is not stored yet is in [`Shared`], where the next one finds it.

mod actor;
mod core;
mod message;
mod push_tokens;
mod shared;
#[cfg(test)]
mod tests;

pub use actor::Persistence;
pub use core::Statement;
pub use message::{Flush, LookUp, LookedUp, LookupUnavailable, PersistenceStopped, PolicyUnavailable, ReconcileStale, WriteStatus};
pub use push_tokens::{ClaimPushToken, DropPushToken, PushTargetOf, PushTargets, ReleasePushTokens};
pub use shared::Shared;

use crate::store::{postgres, sqlite};
use relay_protocol::limits::POLICY_CACHE;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// A look-up that storage has not answered by then is answered as unavailable: half of the time that a socket has to register.
const LOOKUP_DEADLINE: Duration = Duration::from_secs(5);
/// A write that storage has not answered by then counts as failed. Longer than any backend's own limit on a statement, so that it is
/// the backend that says so, and knows how to keep a write that lands late from what a later one has stored.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// First wait after a failed statement; it doubles with each further failure.
const RETRY_INITIAL: Duration = Duration::from_millis(250);
/// Longest wait after a failed statement: how late a recovered storage is noticed. With the statement itself it must stay below
/// [`RECOVERY_MAX`].
const RETRY_MAX: Duration = Duration::from_secs(1);
/// A storage that is back is in use by then. Case C65.
const RECOVERY_MAX: Duration = Duration::from_secs(2);
/// Look-ups that may be open at once: a reconnect storm of a whole relay, at about 200 bytes each.
const LOOKUPS_MAX: usize = 16_384;
/// Devices of one look-up statement.
const LOOKUP_BATCH_DEVICES_MAX: usize = 1_000;
/// Devices of one status statement.
const STATUS_BATCH_DEVICES_MAX: usize = 1_000;

const _: () = assert!(LOOKUP_DEADLINE.as_millis() < relay_protocol::limits::REGISTER_TIMEOUT.as_millis());
const _: () = assert!(RETRY_INITIAL.as_millis() < RETRY_MAX.as_millis() && RETRY_MAX.as_millis() < RECOVERY_MAX.as_millis());
const _: () = assert!(sqlite::BUSY_TIMEOUT.as_millis() < WRITE_TIMEOUT.as_millis());
const _: () = assert!(postgres::ANSWER_TIMEOUT.as_millis() < LOOKUP_DEADLINE.as_millis());
// A statement may begin at the very end of its call, and its server may not notice that nobody waits any more.
const _: () = assert!(postgres::CALL_TIMEOUT.as_millis() + postgres::STATEMENT_TIMEOUT.as_millis() < WRITE_TIMEOUT.as_millis());

/// Times and bounds of the persistence actor. The defaults are for production.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistenceConfig {
    /// `--policy-cache`: how old the rules may be when a registration is judged by them. Device-lane section 3.
    pub policy_cache: Duration,
    /// A look-up is answered as unavailable when it is this old.
    pub lookup_deadline: Duration,
    /// A write counts as failed when it is this old.
    pub write_timeout: Duration,
    /// Wait after the first failure of a statement; doubles with each further one.
    pub retry_initial: Duration,
    /// Longest wait after a failed statement.
    pub retry_max: Duration,
    /// Open look-ups; one more is answered as unavailable. Also the capacity of the mailbox.
    pub lookups_max: usize,
    /// Devices of one look-up statement; a single look-up of more goes alone.
    pub lookup_batch_devices_max: usize,
    /// Devices of one status statement.
    pub status_batch_devices_max: usize,
}

impl Default for PersistenceConfig {
    fn default() -> Self {
        PersistenceConfig {
            policy_cache: POLICY_CACHE,
            lookup_deadline: LOOKUP_DEADLINE,
            write_timeout: WRITE_TIMEOUT,
            retry_initial: RETRY_INITIAL,
            retry_max: RETRY_MAX,
            lookups_max: LOOKUPS_MAX,
            lookup_batch_devices_max: LOOKUP_BATCH_DEVICES_MAX,
            status_batch_devices_max: STATUS_BATCH_DEVICES_MAX,
        }
    }
}

/// What the actor is busy with, for the admin page and metrics. Instants are of `relay_actors::clock`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistenceState {
    /// Look-ups not answered yet.
    pub lookups_open: usize,
    /// Whether a read of devices is running.
    pub lookup_in_flight: bool,
    /// Whether a read of the rules is running.
    pub rules_in_flight: bool,
    /// Devices whose newest status waits for its statement.
    pub statuses_queued: usize,
    /// Devices in the running status statement.
    pub statuses_in_flight: usize,
    /// When the device that has waited longest for its status to be stored began to wait: the lag of the stored presence.
    pub statuses_since: Option<Instant>,
    /// Whether statuses of an earlier process are still to be ended.
    pub stale_pending: bool,
    /// Statements whose last run failed, and since when they fail.
    pub failing: BTreeMap<Statement, Instant>,
}
