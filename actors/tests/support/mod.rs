//! Actors driven directly: no HTTP, no sockets, paused time. A device here is a link whose lane the test reads itself.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses a part of this, and nobody else does")]

use actix::{Actor, Addr};
use async_trait::async_trait;
use relay_actors::{
    clock::{self, EpochMs},
    counters::Counters,
    device_socket::{Link, MessageProgress, OpenSocket, Pulled, SocketTable},
    directory::Directory,
    mailbox,
    persistence::{Persistence, PersistenceConfig},
    push::{Gateways, Push},
    store::{
        ApiKey, ApiKeyHash, CompatibilityRule, Device, DevicePatch, DeviceWrite, LiveProcess, MinimumProtocolRule, PresenceChange,
        ProcessRecord, PushClaim, PushTarget, StatusWrite, Store, StoreError, Upserted,
    },
    supervisor::{Supervisor, SupervisorConfig, SweepLimits},
    user_router::{
        actor::{Registering, RouterConfig, Step, UserRouter},
        core::{CoreConfig, ProcessPending},
        message::Input,
    },
};
use relay_protocol::{
    compatibility::{RuleId, RuleSpec},
    device::{DeviceFacts, Presence, Role},
    envelope::Inbound,
    id::{ApiKeyId, DeviceId, RelayInstanceId, UserId},
    identity::Identity,
    limits,
    push::PushAddress,
    rpc::Request,
};
use serde_json::{Value, json};
use std::{
    hash::RandomState,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Waker},
    time::{Duration, Instant},
};
use tokio::{sync::watch, time::sleep};
use uuid::Uuid;

pub const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Devices in memory, so that paused time meets no I/O. It can be told to panic, as no real backend should.
#[derive(Default)]
pub struct MemoryStore {
    pub devices: Mutex<Vec<DeviceFacts>>,
    pub statuses: Mutex<Vec<StatusWrite>>,
    pub stale_ended: AtomicBool,
    pub panics: AtomicBool,
    /// Statuses cannot be written.
    pub away: AtomicBool,
    /// Look-ups wait until this is false again.
    pub stalls: watch::Sender<bool>,
    pub processes: Arc<ProcessTable>,
    /// Whatever the account.
    pub push_targets: Mutex<Vec<PushTarget>>,
}

/// How much later than a call that came after it a renewal is done that had to wait.
pub const OVERTAKEN_BY: Duration = Duration::from_millis(10);

/// The rows of relay processes, in paused time.
#[derive(Default)]
pub struct ProcessTable {
    /// With when each was written and when it expires.
    pub rows: Mutex<Vec<(ProcessRecord, Instant, Instant)>>,
    /// When it was renewed by whom, answered or not.
    pub renewals: Mutex<Vec<(Instant, RelayInstanceId)>>,
    pub away: AtomicBool,
    /// Calls wait until this is false again.
    pub stalls: watch::Sender<bool>,
}

impl ProcessTable {
    async fn renew(&self, own: ProcessRecord, good_for: Duration) -> Result<Vec<LiveProcess>, StoreError> {
        let now = clock::now();
        self.renewals.lock().unwrap().push((now, own.instance));
        if *self.stalls.borrow() {
            self.answers().await?;
            // Whatever was asked on another connection since is done before.
            sleep(OVERTAKEN_BY).await;
        }
        self.answers().await?;
        let mut rows = self.rows.lock().unwrap();
        rows.retain(|(record, _, expires)| record.instance != own.instance && *expires > now);
        rows.push((own, now, now + good_for));
        Ok(rows.iter().map(|(record, at, _)| LiveProcess { record: record.clone(), last_seen: now - *at }).collect())
    }

    async fn remove(&self, instance: RelayInstanceId) -> Result<(), StoreError> {
        self.answers().await?;
        self.rows.lock().unwrap().retain(|(record, ..)| record.instance != instance);
        Ok(())
    }

    async fn answers(&self) -> Result<(), StoreError> {
        self.stalls.subscribe().wait_for(|stalls| !stalls).await.unwrap();
        if self.away.load(Relaxed) { Err(StoreError::Unavailable("away".into())) } else { Ok(()) }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn upsert_device(&self, _: DeviceWrite, _: EpochMs) -> Result<Upserted, StoreError> {
        Err(StoreError::Unavailable("not part of these tests".into()))
    }

    async fn devices_of(&self, _: UserId) -> Result<Vec<Device>, StoreError> {
        Ok(Vec::new())
    }

    async fn patch_device(&self, _: UserId, _: DeviceId, _: DevicePatch, _: EpochMs) -> Result<Option<Device>, StoreError> {
        Ok(None)
    }

    async fn forget_device(&self, _: UserId, _: DeviceId, _: EpochMs) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn look_up(&self, ids: &[DeviceId]) -> Result<Vec<DeviceFacts>, StoreError> {
        assert!(!self.panics.swap(false, Relaxed), "the store was told to panic");
        self.stalls.subscribe().wait_for(|stalls| !stalls).await.unwrap();
        Ok(self.devices.lock().unwrap().iter().filter(|row| ids.contains(&row.id)).cloned().collect())
    }

    async fn write_statuses(&self, writes: &[StatusWrite], _: RelayInstanceId) -> Result<(), StoreError> {
        if self.away.load(Relaxed) {
            return Err(StoreError::Unavailable("away".into()));
        }
        self.statuses.lock().unwrap().extend_from_slice(writes);
        Ok(())
    }

    async fn disconnect_stale(&self, _: RelayInstanceId, _: EpochMs) -> Result<u64, StoreError> {
        self.stale_ended.store(true, Relaxed);
        Ok(0)
    }

    async fn presence_history(&self, _: DeviceId, _: Option<EpochMs>, _: u32) -> Result<Vec<PresenceChange>, StoreError> {
        Ok(Vec::new())
    }

    async fn claim_push_token(&self, _: UserId, _: DeviceId, _: PushAddress, _: EpochMs) -> Result<PushClaim, StoreError> {
        Ok(PushClaim::NoSuchDevice)
    }

    async fn release_push_tokens(&self, _: UserId, _: Option<DeviceId>) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn push_targets(&self, _: UserId) -> Result<Vec<PushTarget>, StoreError> {
        if self.away.load(Relaxed) {
            return Err(StoreError::Unavailable("away".into()));
        }
        Ok(self.push_targets.lock().unwrap().clone())
    }

    async fn push_target(&self, _: DeviceId) -> Result<Option<PushTarget>, StoreError> {
        Ok(self.push_targets.lock().unwrap().first().cloned())
    }

    async fn drop_push_token(&self, device: DeviceId, claimed_at: EpochMs) -> Result<bool, StoreError> {
        let mut targets = self.push_targets.lock().unwrap();
        let before = targets.len();
        targets.retain(|target| (target.device, target.claimed_at) != (device, claimed_at));
        Ok(targets.len() < before)
    }

    async fn minimum_protocol_rules(&self) -> Result<Vec<MinimumProtocolRule>, StoreError> {
        Ok(Vec::new())
    }

    async fn compatibility_rules(&self) -> Result<Vec<CompatibilityRule>, StoreError> {
        Ok(Vec::new())
    }

    async fn add_compatibility_rule(&self, _: RuleSpec, _: EpochMs, _: u32) -> Result<Option<RuleId>, StoreError> {
        Ok(None)
    }

    async fn remove_compatibility_rule(&self, _: RuleId) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn create_api_key(&self, _: ApiKey, _: ApiKeyHash, _: u32) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn api_keys_of(&self, _: UserId) -> Result<Vec<ApiKey>, StoreError> {
        Ok(Vec::new())
    }

    async fn api_key(&self, _: ApiKeyHash) -> Result<Option<ApiKey>, StoreError> {
        Ok(None)
    }

    async fn revoke_api_key(&self, _: UserId, _: ApiKeyId, _: EpochMs) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn renew_process(&self, own: ProcessRecord, good_for: Duration) -> Result<Vec<LiveProcess>, StoreError> {
        // What has been asked for is done, whether or not somebody waits for the answer.
        let table = self.processes.clone();
        tokio::spawn(async move { table.renew(own, good_for).await }).await.unwrap()
    }

    async fn remove_process(&self, instance: RelayInstanceId) -> Result<(), StoreError> {
        self.processes.remove(instance).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The running actors, on the test's own arbiter.
pub struct Rig {
    pub store: Arc<MemoryStore>,
    pub sockets: Arc<SocketTable>,
    pub directory: Arc<Directory>,
    pub counters: Arc<Counters>,
    pub process: ProcessPending,
    pub supervisor: Addr<Supervisor>,
    pub user: UserId,
}

impl Rig {
    pub fn start() -> Self {
        Self::with_gateways(Gateways::new())
    }

    pub fn with_gateways(gateways: Gateways) -> Self {
        let (store, sockets, counters) =
            (Arc::new(MemoryStore::default()), Arc::new(SocketTable::default()), Arc::new(Counters::default()));
        let (user, instance) = (UserId(Uuid::new_v4()), RelayInstanceId(Uuid::new_v4()));
        let core = CoreConfig::new(user, instance, RandomState::new());
        let process = core.process.clone();
        let config = SupervisorConfig { sweep: SweepLimits::default(), reconnect_grace: limits::RECONNECT_GRACE };
        let (supervisor, directory) = Supervisor::launch(
            config,
            RouterConfig { core, mailbox_capacity: 64 },
            sockets.clone(),
            counters.clone(),
            {
                let store = store.clone();
                move |shared| Persistence::new(store.clone(), instance, PersistenceConfig::default(), shared).start()
            },
            {
                let (gateways, counters) = (gateways, counters.push.clone());
                move |services| Push::new(gateways.clone(), services, counters.clone()).start()
            },
        );
        Rig { store, sockets, directory, counters, process, supervisor, user }
    }

    /// A device row.
    pub fn device(&self, role: Role) -> DeviceId {
        let id = DeviceId(Uuid::new_v4());
        self.store.devices.lock().unwrap().push(DeviceFacts { id, user: self.user, role, relay_eligible: true });
        id
    }

    /// A socket that has not registered.
    pub fn open(&self, role: Role) -> Peer {
        let socket = self.sockets.open(Identity::of_jwt(self.user), role, limits::OUTBOUND_BYTES_MAX, None);
        Peer { socket: Some(socket), router: None }
    }

    /// A registered desktop.
    pub async fn desktop(&self, device: DeviceId) -> Peer {
        let mut peer = self.open(Role::Desktop);
        peer.register(self, device, None).await;
        assert_eq!(peer.next()["type"], "registered");
        peer
    }

    /// A registered phone.
    pub async fn phone(&self, device: DeviceId, desktop: DeviceId) -> Peer {
        let mut peer = self.open(Role::Mobile);
        peer.register(self, device, Some(desktop)).await;
        assert_eq!(peer.next()["type"], "registered");
        peer
    }

    /// The last stored status of a device.
    pub fn stored(&self, device: DeviceId) -> Option<Presence> {
        self.store.statuses.lock().unwrap().iter().rev().find(|write| write.device == device).map(|write| write.status)
    }
}

/// Lets every actor do what it can do now.
pub async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Moves paused time.
pub async fn advance(duration: Duration) {
    settle().await;
    tokio::time::advance(duration).await;
    settle().await;
}

/// A device's socket, without a socket.
pub struct Peer {
    pub socket: Option<OpenSocket>,
    pub router: Option<Addr<UserRouter>>,
}

impl Peer {
    pub fn link(&self) -> &Arc<Link> {
        self.socket.as_ref().unwrap().link()
    }

    pub async fn register(&mut self, rig: &Rig, device: DeviceId, target: Option<DeviceId>) {
        let payload = json!({"deviceId": device, "relayProtocolVersion": "1.7", "targetDesktopDeviceId": target});
        self.register_with(rig, &payload).await;
    }

    pub async fn register_with(&mut self, rig: &Rig, payload: &Value) {
        let frame = json!({"type": "register", "payload": payload}).to_string();
        let Ok(Inbound::Register(register)) = Inbound::parse(frame.into()) else { panic!("no register frame") };
        assert!(self.link().begin_registration());
        let registering = Registering { link: self.link().clone(), header_target: None, register };
        self.router = Some(rig.directory.register(registering));
        settle().await;
    }

    pub async fn request(&self, id: &str, method: &str) {
        let mut payload = json!({"id": id, "method": method, "params": {"n": 1}, "traceparent": TRACE});
        if relay_protocol::contract::find(method).is_some_and(|method| method.mutation) {
            payload["idempotencyKey"] = "key".into();
        }
        let frame = json!({"type": "rpc.request", "payload": payload}).to_string();
        let Ok(Inbound::Request(Request::Call(call))) = Inbound::parse(frame.into()) else { panic!("no call") };
        self.step(Input::Call { socket: self.link().id, call }).await;
    }

    /// Answers a forwarded request.
    pub async fn answer(&self, request: &Value, result: Value) {
        let payload = json!({"clientId": request["payload"]["clientId"], "id": request["payload"]["id"], "result": result});
        let frame = json!({"type": "rpc.response", "payload": payload}).to_string();
        let Ok(Inbound::Response(response)) = Inbound::parse(frame.into()) else { panic!("no response") };
        self.step(Input::Response { socket: self.link().id, response }).await;
    }

    /// A byte comes from it, so that the sweep does not take it for silent.
    pub fn hear(&self) {
        self.link().activity.on_input(clock::now(), MessageProgress { unfinished: false, grew: false });
    }

    async fn step(&self, input: Input) {
        mailbox::offer(self.router.as_ref().unwrap(), Step(input)).unwrap();
        settle().await;
    }

    /// The socket ends, as its actor's drop tells it.
    pub async fn close(&mut self) {
        let socket = self.link().id;
        self.link().set_ended();
        if let Some(router) = &self.router {
            mailbox::deliver(router, Step(Input::SocketClosed { socket }));
        }
        self.socket = None;
        settle().await;
    }

    /// Every frame that is on the lane now: JSON for text, code and reason for a close frame.
    pub fn frames(&self) -> Vec<Value> {
        let mut bytes = Vec::new();
        while let Pulled::Slice(slice) = self.link().lane.pull(clock::now(), &Context::from_waker(Waker::noop())) {
            bytes.extend_from_slice(&slice);
        }
        let mut frames = Vec::new();
        let mut rest = bytes.as_slice();
        while let [first, length, after @ ..] = rest {
            let (length, after) = match length {
                126 => (usize::from(u16::from_be_bytes([after[0], after[1]])), &after[2..]),
                short => (usize::from(*short), after),
            };
            let (payload, next) = after.split_at(length);
            match first & 0xf {
                0x1 => frames.push(serde_json::from_slice(payload).unwrap()),
                0x8 => frames
                    .push(json!({"close": u16::from_be_bytes([payload[0], payload[1]]), "reason": str::from_utf8(&payload[2..]).unwrap()})),
                _ping_or_pong => {}
            }
            rest = next;
        }
        frames
    }

    /// The one frame that is on the lane now.
    pub fn next(&self) -> Value {
        let mut frames = self.frames();
        assert_eq!(frames.len(), 1, "{frames:?}");
        frames.remove(0)
    }

    /// The error number of the one response that is on the lane now.
    pub fn refusal(&self) -> i64 {
        let frame = self.next();
        frame["payload"]["error"]["code"].as_i64().unwrap_or_else(|| panic!("{frame}"))
    }

    /// The one device-status event that is on the lane now: status and reason.
    pub fn status(&self) -> (String, String) {
        let frame = self.next();
        assert_eq!((&frame["type"], &frame["payload"]["eventType"]), (&json!("event"), &json!("device-status")), "{frame}");
        let text = |key: &str| frame["payload"]["payload"][key].as_str().unwrap().to_owned();
        (text("status"), text("reason"))
    }
}
