//! The handle that HTTP handlers hold: what they may ask of the running actors.

use crate::{
    clock,
    counters::Counters,
    device_socket::{Link, SocketTable, Sockets},
    directory::Directory,
    drain::Drain,
    mailbox,
    persistence::{Flush, Statement},
    readings::Readings,
    user_router::message::{Input, Whose},
};
use relay_protocol::{
    close::CloseReason,
    device::{Presence, Role},
    id::{ApiKeyId, ConnectionId, DeviceId, RelayInstanceId, Route, UserId},
};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

/// How long an HTTP handler waits for a router, which answers from memory.
const ROUTER_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a leaving process looks whether its sockets have gone.
const LEAVE_POLL_INTERVAL: Duration = Duration::from_millis(20);

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

/// How storing goes, as the routers see it; `GET /readyz` of the admin listener shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageHealth {
    /// Statements whose last run failed, and for how long they have been failing.
    pub failing_for: BTreeMap<Statement, Duration>,
    /// Devices whose newest status is not stored yet.
    pub unwritten_statuses: usize,
}

/// A handle on the running relay. Cheap to clone.
#[derive(Clone)]
pub struct Relay {
    instance: RelayInstanceId,
    sockets: Sockets,
    drain: Drain,
}

impl Relay {
    /// A handle on these sockets and routers; the routers read the same drain.
    pub fn new(instance: RelayInstanceId, sockets: Sockets, drain: Drain) -> Self {
        Relay { instance, sockets, drain }
    }

    /// This process, as clients know it.
    pub fn instance_id(&self) -> RelayInstanceId {
        self.instance
    }

    /// What device sockets are opened with.
    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    fn directory(&self) -> &Arc<Directory> {
        &self.sockets.directory
    }

    fn table(&self) -> &Arc<SocketTable> {
        &self.sockets.table
    }

    /// Whether the process is leaving and takes no new sockets.
    pub fn is_draining(&self) -> bool {
        self.drain.has_begun()
    }

    /// Takes no new sockets, registrations and requests from now on, and closes the open sockets with 1012.
    pub fn begin_drain(&self) {
        self.drain.begin();
        self.close_sockets();
    }

    /// Phones first: open requests stay unanswered, so when the end of a desktop reaches its router, no phone may take the
    /// refusals any more.
    fn close_sockets(&self) {
        let (now, sockets) = (clock::now(), self.table().snapshot());
        for role in [Role::Mobile, Role::Desktop] {
            for link in sockets.iter().filter(|link| link.role == role) {
                link.lane.close(CloseReason::RelayDraining, now);
            }
        }
    }

    /// Begins to drain, waits until the sockets have gone, then until their routers know, then until what is left to store is stored;
    /// each for at most `timeout`.
    pub async fn leave(&self, timeout: Duration) {
        self.begin_drain();
        let gone = async {
            while self.open_sockets() > 0 {
                tokio::time::sleep(LEAVE_POLL_INTERVAL).await;
                // One whose upgrade was being answered when the drain began was not among the first.
                self.close_sockets();
            }
        };
        if tokio::time::timeout(timeout, gone).await.is_err() {
            tracing::warn!(sockets = self.open_sockets(), "sockets are still open");
        }
        // The ends of the last sockets may still be on the way to their routers, and what those write about them behind them.
        if tokio::time::timeout(timeout, self.directory().settle(timeout)).await.is_err() {
            tracing::warn!("some routers did not answer in time");
        }
        let persistence = self.directory().services().persistence();
        if mailbox::ask(&persistence, Flush, timeout).await != Ok(Ok(())) {
            tracing::warn!("some statuses could not be stored in time");
        }
    }

    /// How many sockets are open, registered or not.
    pub fn open_sockets(&self) -> usize {
        self.table().len()
    }

    /// Live presence of the account's devices; a device that is not in the map is disconnected.
    ///
    /// # Errors
    /// [`RouterUnavailable`] when the account's router does not answer in time.
    pub async fn presence(&self, user: UserId) -> Result<BTreeMap<DeviceId, Presence>, RouterUnavailable> {
        self.directory().presence(user, ROUTER_TIMEOUT).await.map_err(|_no_answer| RouterUnavailable)
    }

    /// Closes every socket of the device and ends its resume sessions. Done when the router has decided so; the sockets' ends follow.
    ///
    /// # Errors
    /// [`RouterUnavailable`] when the account's router does not answer in time.
    pub async fn close_device(&self, user: UserId, device: DeviceId, reason: CloseReason) -> Result<(), RouterUnavailable> {
        self.close_all_of(user, Whose::Device(device), reason).await
    }

    /// Closes every socket of the account, registered or not, and ends all its resume sessions. Done as [`Relay::close_device`] is.
    ///
    /// # Errors
    /// [`RouterUnavailable`] when the account's router does not answer in time. The sockets are closed all the same.
    pub async fn log_out(&self, user: UserId) -> Result<(), RouterUnavailable> {
        let reason = CloseReason::LoggedOut;
        let barred = self.table().bar(|identity| identity.user == user, reason);
        self.close_barred(&barred, user, Whose::Account, reason).await
    }

    /// Closes every socket that the account's API key opened, registered or not, and ends its resume sessions. The key must have been
    /// revoked in storage before: a socket that opens meanwhile is judged by that, see [`SocketTable::bars`].
    ///
    /// # Errors
    /// As [`Relay::log_out`].
    pub async fn revoke(&self, user: UserId, api_key: ApiKeyId) -> Result<(), RouterUnavailable> {
        let reason = CloseReason::Revoked;
        let barred = self.table().bar(|identity| identity.user == user && identity.api_key == Some(api_key), reason);
        self.close_barred(&barred, user, Whose::ApiKey(api_key), reason).await
    }

    /// The router goes first, since it knows why the registered ones end. What it does not know, it will not take any more.
    async fn close_barred(&self, barred: &[Arc<Link>], user: UserId, whose: Whose, reason: CloseReason) -> Result<(), RouterUnavailable> {
        let told = self.close_all_of(user, whose, reason).await;
        let now = clock::now();
        for link in barred {
            link.lane.close(reason, now);
        }
        told
    }

    async fn close_all_of(&self, user: UserId, whose: Whose, reason: CloseReason) -> Result<(), RouterUnavailable> {
        self.directory().tell(user, Input::CloseAllOf { whose, reason }, ROUTER_TIMEOUT).await.map_err(|_no_answer| RouterUnavailable)
    }

    /// How storing goes.
    pub fn storage_health(&self) -> StorageHealth {
        let (now, state) = (clock::now(), self.directory().services().persistence_state());
        let failing_for = state.failing.iter().map(|(statement, since)| (*statement, now.saturating_duration_since(*since)));
        StorageHealth { failing_for: failing_for.collect(), unwritten_statuses: state.statuses_queued + state.statuses_in_flight }
    }

    /// What has been counted since the start.
    pub fn counters(&self) -> &Arc<Counters> {
        self.directory().counters()
    }

    /// What the process holds now.
    pub fn readings(&self) -> Readings {
        Readings::of(self.table(), self.directory())
    }

    /// Registered sockets, of one account or of all, in the order in which they opened.
    pub fn connections(&self, user: Option<UserId>) -> Vec<ConnectionInfo> {
        let now = clock::now();
        let sockets = self.table().snapshot();
        sockets
            .iter()
            .filter(|link| user.is_none_or(|user| user == link.identity.user))
            .filter_map(|link| {
                let registration = link.registration()?;
                Some(ConnectionInfo {
                    connection_id: registration.connection,
                    user: link.identity.user,
                    role: link.role,
                    route: registration.route,
                    connected_for: now.saturating_duration_since(registration.at),
                    silent_for: now.saturating_duration_since(link.activity.last_input()),
                    queued_bytes: link.lane.queued_bytes(),
                })
            })
            .collect()
    }
}
