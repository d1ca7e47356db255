//! The handle that HTTP handlers hold: what they may ask of the running actors.

use crate::{
    clock::{self, EpochMs},
    counters::Counters,
    device_socket::{Link, SocketTable, Sockets},
    directory::Directory,
    drain::{Drain, Phase},
    mailbox::{self, NoAnswer},
    persistence::{ClaimPushToken, Flush, ReleasePushTokens, Statement},
    processes::{Heartbeat, KnownProcesses, Renewal, SeenProcesses},
    push::{self, NotTested, TestPush, Tested},
    readings::Readings,
    store::{ProcessRecord, PushClaim, Store, StoreError},
    user_router::message::{Input, Whose},
};
use relay_protocol::{
    close::CloseReason,
    device::{Presence, Role},
    id::{ApiKeyId, ConnectionId, DeviceId, RelayInstanceId, Route, UserId},
    push::{Provider, PushAddress},
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long an HTTP handler waits for a router, which answers from memory.
const ROUTER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a leaving process waits for alerts that it has accepted: providers answer within a second, and one that is away must not
/// hold up a deployment.
const LAST_ALERTS_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an HTTP handler waits for what is stored of a push token; the persistence actor has its own, shorter deadline.
const PUSH_TOKEN_TIMEOUT: Duration = Duration::from_secs(12);

/// How long an operator's test of a phone may take, the provider's own deadline included.
const TEST_PUSH_TIMEOUT: Duration = Duration::from_secs(75);

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

/// How far the process is with leaving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Routing work that has not ended; once the drain has begun, what was in progress by then.
    pub in_flight: usize,
    /// Open sockets, registered or not.
    pub sockets_left: usize,
    /// Time since the drain began, until it was done.
    pub elapsed: Duration,
}

/// How long each part of a drain may take.
#[derive(Clone, Copy, Debug)]
pub struct DrainLimits {
    /// Routing work in progress.
    pub work: Duration,
    /// Each of: sockets to go, routers to handle their ends, statuses to be stored.
    pub step: Duration,
}

/// What the process holds, as `GET /admin/status` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Registered sockets of desktops.
    pub desktops: usize,
    /// Registered sockets of phones.
    pub phones: usize,
    /// Sockets that have not registered.
    pub unregistered: usize,
    /// Accounts with a router.
    pub accounts: usize,
    /// Open requests.
    pub pending: usize,
    /// Phones with a lease of a timeline.
    pub leases: usize,
}

fn no_persistence() -> StoreError {
    StoreError::Unavailable("the persistence actor did not answer".to_owned())
}

/// A handle on the running relay. Cheap to clone.
#[derive(Clone)]
pub struct Relay {
    instance: RelayInstanceId,
    started: (Instant, EpochMs),
    sockets: Sockets,
    drain: Drain,
    processes: KnownProcesses,
}

impl Relay {
    /// A handle on these sockets and routers, which start now.
    pub fn new(instance: RelayInstanceId, sockets: Sockets) -> Self {
        let drain = sockets.directory.drain().clone();
        Relay { instance, started: (clock::now(), EpochMs::now()), sockets, drain, processes: KnownProcesses::default() }
    }

    /// When it started, by the wall clock of then, and how long ago that was.
    pub fn started(&self) -> (EpochMs, Duration) {
        (self.started.1, clock::now().saturating_duration_since(self.started.0))
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

    /// Takes no new sockets, registrations and requests from now on; [`Relay::drain`] does the rest. With `end_process` the process
    /// ends once it is drained, whoever asked first.
    pub fn begin_drain(&self, end_process: bool) {
        self.drain.begin(clock::now());
        if end_process {
            self.drain.end_process();
        }
    }

    /// Waits until the process is drained and is to end.
    pub async fn may_end(&self) {
        self.drain.process_may_end().await;
    }

    /// Waits until this phase of leaving is over.
    pub async fn left(&self, phase: Phase) {
        self.drain.left(phase).await;
    }

    /// Whether the supervisor, which shares its thread with storage's actor, handles a message within this time.
    pub async fn supervisor_answers(&self, timeout: Duration) -> bool {
        self.directory().supervisor_answers(timeout).await
    }

    /// How far the process is with leaving.
    pub fn progress(&self) -> Progress {
        let Relay { drain, .. } = self;
        let phase = drain.phase();
        Progress { phase, in_flight: drain.in_flight(), sockets_left: self.open_sockets(), elapsed: drain.elapsed(clock::now()) }
    }

    /// Waits until the drain begins, and goes through its phases: routing work in progress ends; the sockets are closed and go, their
    /// routers handle that and let go of everything, and what is left to store is stored. For one caller.
    pub async fn drain(&self, limits: DrainLimits) {
        self.drain.reached(Phase::Draining).await;
        let Progress { in_flight, sockets_left, .. } = self.progress();
        tracing::info!(in_flight, sockets_left, "draining");
        if tokio::time::timeout(limits.work, self.drain.work_has_ended()).await.is_err() {
            tracing::warn!(in_flight = self.drain.in_flight(), "routing work in progress is cut off");
        }
        self.drain.enter(Phase::Closing, clock::now());
        let Progress { sockets_left, elapsed, .. } = self.progress();
        tracing::info!(sockets_left, elapsed_ms = elapsed.as_millis(), "closing sockets");
        self.close_all(limits.step).await;
        self.drain.enter(Phase::Drained, clock::now());
        tracing::info!(elapsed_ms = self.progress().elapsed.as_millis(), "drained");
    }

    async fn close_all(&self, timeout: Duration) {
        self.close_sockets();
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
        if tokio::time::timeout(timeout, self.directory().clear(timeout)).await.is_err() {
            tracing::warn!("some routers did not answer in time");
        }
        self.send_last_alerts(timeout.min(LAST_ALERTS_TIMEOUT)).await;
        let persistence = self.directory().services().persistence();
        if mailbox::ask(&persistence, Flush, timeout).await != Ok(Ok(())) {
            tracing::warn!("some statuses could not be stored in time");
        }
    }

    /// Alerts that were accepted are sent; nobody else knows of them.
    async fn send_last_alerts(&self, timeout: Duration) {
        let Some(push) = self.directory().services().push() else { return };
        if mailbox::ask(&push, push::Leave, timeout).await == Err(NoAnswer::TimedOut) {
            let counters = &self.counters().push;
            let alerts = Provider::ALL.map(|provider| counters.queue(provider)).map(|queue| queue.alerts.get() + queue.in_flight.get());
            tracing::warn!(alerts = alerts.iter().sum::<u64>(), "some alerts could not be sent in time");
        }
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

    /// Closes one registered connection; its device may come back and resume. False when there is none with this id.
    pub fn close_connection(&self, connection: ConnectionId) -> bool {
        let sockets = self.table().snapshot();
        let is_it = |link: &&Arc<Link>| link.registration().is_some_and(|registration| registration.connection == connection);
        let Some(link) = sockets.iter().find(is_it) else { return false };
        link.lane.close(CloseReason::ClosedByOperator, clock::now());
        true
    }

    /// What the process holds now.
    pub fn load(&self) -> Load {
        let (now, directory) = (clock::now(), self.directory());
        let mut load = Load { accounts: directory.len(), pending: directory.pending(), ..Load::default() };
        for link in self.table().snapshot() {
            let count = match link.registration().map(|_| link.role) {
                None => &mut load.unregistered,
                Some(Role::Desktop) => &mut load.desktops,
                Some(Role::Mobile) => &mut load.phones,
            };
            *count += 1;
            load.leases += usize::from(link.lane.has_lease(now));
        }
        load
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

    /// Gives a push token to a phone of the account.
    ///
    /// # Errors
    /// Storage, or the actor in front of it, did not answer.
    pub async fn claim_push_token(&self, user: UserId, device: DeviceId, address: PushAddress) -> Result<PushClaim, StoreError> {
        let persistence = self.directory().services().persistence();
        let answer = mailbox::ask(&persistence, ClaimPushToken { user, device, address }, PUSH_TOKEN_TIMEOUT).await;
        answer.unwrap_or_else(|_no_answer| Err(no_persistence()))
    }

    /// Takes the push token of a device of the account away, or those of all of them; how many there were.
    ///
    /// # Errors
    /// As [`Relay::claim_push_token`].
    pub async fn release_push_tokens(&self, user: UserId, device: Option<DeviceId>) -> Result<u64, StoreError> {
        let persistence = self.directory().services().persistence();
        let answer = mailbox::ask(&persistence, ReleasePushTokens { user, device }, PUSH_TOKEN_TIMEOUT).await;
        answer.unwrap_or_else(|_no_answer| Err(no_persistence()))
    }

    /// Sends one alert to this phone, of whatever account, and says what its provider said.
    ///
    /// # Errors
    /// [`NotTested`]. Also `Unavailable` while the push actor is being started anew.
    pub async fn test_push(&self, device: DeviceId) -> Result<Tested, NotTested> {
        let push = self.directory().services().push().ok_or(NotTested::Unavailable)?;
        mailbox::ask(&push, TestPush { device }, TEST_PUSH_TIMEOUT).await.unwrap_or(Err(NotTested::Unavailable))
    }

    /// How storing goes.
    pub fn storage_health(&self) -> StorageHealth {
        let (now, state) = (clock::now(), self.directory().services().persistence_state());
        let failing_for = state.failing.iter().map(|(statement, since)| (*statement, now.saturating_duration_since(*since)));
        StorageHealth { failing_for: failing_for.collect(), unwritten_statuses: state.statuses_queued + state.statuses_in_flight }
    }

    /// What records this process, a program of this version on a host of this name, in storage, for as long as it is run. One for each
    /// process.
    pub fn heartbeat(&self, store: Arc<dyn Store>, version: &str, host: String, renewal: Renewal) -> Heartbeat {
        let own = ProcessRecord {
            instance: self.instance,
            version: version.to_owned(),
            host,
            pid: std::process::id(),
            started_at: self.started.1,
            is_draining: false,
        };
        Heartbeat {
            store,
            own,
            renewal,
            drain: self.drain.clone(),
            known: self.processes.clone(),
            services: self.directory().services().clone(),
        }
    }

    /// The relay processes of this storage, as its heartbeat was told last.
    pub fn processes(&self) -> SeenProcesses {
        self.processes.seen()
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
