//! What the persistence actor may be sent, and what it answers.

use crate::{clock::EpochMs, store::StatusWrite};
use actix::Message;
use relay_protocol::{device::DeviceFacts, id::DeviceId, version::Version};
use std::fmt;

/// Asks for the required protocol version and for the rows of these devices. Without devices no device statement is run.
#[derive(Clone, Debug, Message)]
#[rtype(result = "LookedUp")]
pub struct LookUp {
    /// The devices that a registration names; one or two.
    pub devices: Vec<DeviceId>,
}

/// The answer to [`LookUp`]. Always comes, at the latest at the look-up's deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookedUp {
    /// The lowest relay protocol version that may register.
    pub required: Result<Version, PolicyUnavailable>,
    /// The rows, in the order asked; unknown and forgotten devices are left out.
    pub devices: Result<Vec<DeviceFacts>, LookupUnavailable>,
}

impl LookedUp {
    /// Nothing could be found out.
    pub fn unavailable() -> Self {
        LookedUp { required: Err(PolicyUnavailable), devices: Err(LookupUnavailable) }
    }
}

/// The rules cannot be read and the cached ones are too old, or a rule's version does not parse: the registration error
/// `relayProtocolPolicyUnavailable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyUnavailable;

impl fmt::Display for PolicyUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the relay protocol policy cannot be read")
    }
}

impl std::error::Error for PolicyUnavailable {}

/// Storage failed, was too slow, or too many look-ups are open: the registration error `deviceLookupUnavailable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupUnavailable;

impl fmt::Display for LookupUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("storage cannot answer the device look-up")
    }
}

impl std::error::Error for LookupUnavailable {}

/// Stores a device's presence, some time. Of several for one device, the one that was sent last is stored in the end.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct WriteStatus(pub StatusWrite);

/// Ends what a dead process left online or reconnecting. Sent once by the supervisor, one reconnect wait after the start;
/// tried until it succeeds. Device-lane section 5.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct ReconcileStale {
    /// Since when those devices count as disconnected.
    pub at: EpochMs,
}

/// Answered when nothing is queued or in flight; with storage away that can take for ever, so ask with a timeout.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<(), PersistenceStopped>")]
pub struct Flush;

/// The actor ended before it had written everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistenceStopped;

impl fmt::Display for PersistenceStopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the persistence actor ended before everything was written")
    }
}

impl std::error::Error for PersistenceStopped {}
