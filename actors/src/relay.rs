//! The handle that HTTP handlers hold: what they may ask of the running actors.

use relay_protocol::{
    close::CloseReason,
    device::{Presence, Role},
    id::{ConnectionId, DeviceId, RelayInstanceId, Route, UserId},
};
use std::{collections::BTreeMap, fmt, time::Duration};

/// The account's router did not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterUnavailable;

impl fmt::Display for RouterUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the account's router did not answer in time")
    }
}

impl std::error::Error for RouterUnavailable {}

/// One registered socket, as `GET /admin/connections` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The connection generation.
    pub connection_id: ConnectionId,
    /// Its account.
    pub user: UserId,
    /// Its side.
    pub role: Role,
    /// Its route.
    pub route: Route,
    /// Time since it registered.
    pub connected_for: Duration,
    /// Time since its last inbound byte.
    pub silent_for: Duration,
    /// Bytes accepted for it that its transport has not taken.
    pub queued_bytes: usize,
}

/// A handle on the running relay. Cheap to clone.
#[derive(Clone)]
pub struct Relay {}

impl Relay {
    /// This process, as clients know it.
    pub fn instance_id(&self) -> RelayInstanceId {
        todo!()
    }

    /// Whether registrations are refused because the process is leaving.
    pub fn is_draining(&self) -> bool {
        todo!()
    }

    /// Live presence of the account's devices; a device that is not in the map is disconnected.
    ///
    /// # Errors
    /// [`RouterUnavailable`] when the account's router does not answer in time.
    pub async fn presence(&self, _user: UserId) -> Result<BTreeMap<DeviceId, Presence>, RouterUnavailable> {
        todo!()
    }

    /// Closes every socket of the device and ends its resume sessions. Done when the router has decided so; the sockets' ends follow.
    ///
    /// # Errors
    /// [`RouterUnavailable`] when the account's router does not answer in time.
    pub async fn close_device(&self, _user: UserId, _device: DeviceId, _reason: CloseReason) -> Result<(), RouterUnavailable> {
        todo!()
    }

    /// Registered sockets, of one account or of all, in order of registration.
    pub fn connections(&self, _user: Option<UserId>) -> Vec<ConnectionInfo> {
        todo!()
    }
}
