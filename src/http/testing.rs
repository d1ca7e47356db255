//! A store in memory and a relay that records, for handler tests.

use super::{
    Api, Mount,
    auth::{AdminToken, Authenticator, TokenRules, mint},
    compatibility::PolicyCache,
    default_headers,
    handshakes::Handshakes,
    port::RelayPort,
    public_routes,
};
use crate::{secrets::Secret, telemetry::LogFilter};
use actix_web::{App, test, web};
use async_trait::async_trait;
use relay_actors::{
    clock::EpochMs,
    counters::Counters,
    device_socket::Rate,
    processes::SeenProcesses,
    push::{NotTested, Tested},
    readings::Readings,
    relay::{ConnectionInfo, Load, Progress, RouterUnavailable, StorageHealth},
    store::{
        ApiKey, ApiKeyHash, CompatibilityRule, Device, DevicePatch, DeviceWrite, LiveProcess, MinimumProtocolRule, PresenceChange,
        ProcessRecord, PushClaim, PushTarget, StatusWrite, Store, StoreError, Upserted,
    },
};
use relay_protocol::{
    close::CloseReason,
    compatibility::{RuleId, RuleSpec},
    device::{DeviceFacts, Presence},
    id::{ApiKeyId, ConnectionId, DeviceId, RelayInstanceId, UserId},
    push::PushAddress,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

pub(crate) const ALICE: &str = "a11ce000-0000-4000-8000-000000000001";
pub(crate) const BOB: &str = "b0b00000-0000-4000-8000-000000000002";
pub(crate) const DESKTOP: &str = "de5c0000-0000-4000-8000-000000000003";
pub(crate) const PHONE: &str = "f0e00000-0000-4000-8000-000000000004";
pub(crate) const ADMIN_TOKEN: &str = "the-admin-token-of-these-tests-0123456789";

/// Devices in memory, with the contract of `Store` as far as HTTP uses it.
#[derive(Default)]
pub(crate) struct MemoryStore {
    state: Mutex<StoreState>,
}

type Hook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct StoreState {
    rows: Vec<(Device, bool)>,
    history: Vec<(DeviceId, PresenceChange)>,
    full: bool,
    keys: Vec<(ApiKey, ApiKeyHash)>,
    rules: Vec<CompatibilityRule>,
    /// Reads of the rules so far.
    rule_reads: usize,
    /// Look-ups of keys so far.
    key_look_ups: usize,
    behind_key_look_up: Option<Hook>,
    away: bool,
}

impl MemoryStore {
    pub(crate) fn set_away(&self, away: bool) {
        self.lock().away = away;
    }

    pub(crate) fn set_status(&self, id: &str, status: Presence, at: EpochMs) {
        let id: DeviceId = id.parse().unwrap();
        let mut state = self.lock();
        let row = state.rows.iter_mut().find(|(device, _)| device.facts.id == id).unwrap();
        (row.0.status, row.0.status_at) = (status, Some(at));
    }

    /// No account may have another device.
    pub(crate) fn set_full(&self) {
        self.lock().full = true;
    }

    pub(crate) fn add_change(&self, id: &str, change: PresenceChange) {
        self.lock().history.push((id.parse().unwrap(), change));
    }

    /// Runs this when the next look-up of a key has found what it finds, and before it answers.
    pub(crate) fn behind_next_key_look_up(&self, hook: impl FnOnce() + Send + 'static) {
        self.lock().behind_key_look_up = Some(Box::new(hook));
    }

    /// Forgets every key.
    pub(crate) fn clear_keys(&self) {
        self.lock().keys.clear();
    }

    /// How many keys have been looked up so far.
    pub(crate) fn key_look_ups(&self) -> usize {
        self.lock().key_look_ups
    }

    /// How often the compatibility rules have been read so far.
    pub(crate) fn rule_reads(&self) -> usize {
        self.lock().rule_reads
    }

    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap()
    }

    fn here(&self) -> Result<MutexGuard<'_, StoreState>, StoreError> {
        let state = self.lock();
        if state.away { Err(StoreError::Unavailable("secret detail".into())) } else { Ok(state) }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn upsert_device(&self, write: DeviceWrite, now: EpochMs) -> Result<Upserted, StoreError> {
        let mut state = self.here()?;
        let known = state.rows.iter().position(|(device, _)| device.facts.id == write.id);
        if known.is_some_and(|index| state.rows[index].0.facts.user != write.user) {
            return Err(StoreError::OtherAccount);
        }
        if known.is_none() && state.full {
            return Err(StoreError::TooManyDevices);
        }
        let before = known.map(|index| state.rows.remove(index));
        let device = Device {
            facts: DeviceFacts {
                id: write.id,
                user: write.user,
                role: write.role,
                relay_eligible: write.relay_eligible.unwrap_or(before.as_ref().is_none_or(|(device, _)| device.facts.relay_eligible)),
            },
            name: write.name,
            platform: write.platform,
            app_version: write.app_version,
            status: before.as_ref().map_or(Presence::Disconnected, |(device, _)| device.status),
            status_at: before.as_ref().and_then(|(device, _)| device.status_at),
            created_at: before.as_ref().map_or(now, |(device, _)| device.created_at),
            updated_at: now,
        };
        state.rows.push((device.clone(), false));
        Ok(Upserted { device, created: before.is_none_or(|(_, forgotten)| forgotten) })
    }

    async fn devices_of(&self, user: UserId) -> Result<Vec<Device>, StoreError> {
        let state = self.here()?;
        Ok(state
            .rows
            .iter()
            .filter(|(device, forgotten)| device.facts.user == user && !forgotten)
            .map(|(device, _)| device.clone())
            .collect())
    }

    async fn patch_device(&self, user: UserId, id: DeviceId, patch: DevicePatch, now: EpochMs) -> Result<Option<Device>, StoreError> {
        let mut state = self.here()?;
        let Some((device, _)) = state.rows.iter_mut().find(|(device, gone)| device.facts.id == id && device.facts.user == user && !gone)
        else {
            return Ok(None);
        };
        device.name = patch.name.unwrap_or_else(|| device.name.clone());
        device.facts.relay_eligible = patch.relay_eligible.unwrap_or(device.facts.relay_eligible);
        device.updated_at = now;
        Ok(Some(device.clone()))
    }

    async fn forget_device(&self, user: UserId, id: DeviceId, _now: EpochMs) -> Result<bool, StoreError> {
        let mut state = self.here()?;
        let row = state.rows.iter_mut().find(|(device, gone)| device.facts.id == id && device.facts.user == user && !gone);
        Ok(row.map(|(_, forgotten)| *forgotten = true).is_some())
    }

    async fn look_up(&self, ids: &[DeviceId]) -> Result<Vec<DeviceFacts>, StoreError> {
        let state = self.here()?;
        let is_asked_for = |device: &Device| ids.contains(&device.facts.id);
        Ok(state.rows.iter().filter(|(device, gone)| is_asked_for(device) && !gone).map(|(device, _)| device.facts.clone()).collect())
    }

    async fn write_statuses(&self, _writes: &[StatusWrite], _instance: RelayInstanceId) -> Result<(), StoreError> {
        Ok(())
    }

    async fn disconnect_stale(&self, _instance: RelayInstanceId, _at: EpochMs) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn presence_history(&self, id: DeviceId, before: Option<EpochMs>, limit: u32) -> Result<Vec<PresenceChange>, StoreError> {
        let state = self.here()?;
        let mut changes: Vec<_> = state.history.iter().filter(|(device, _)| *device == id).map(|(_, change)| *change).collect();
        changes.retain(|change| before.is_none_or(|before| change.at < before));
        changes.sort_by_key(|change| std::cmp::Reverse(change.at));
        changes.truncate(limit as usize);
        Ok(changes)
    }

    async fn claim_push_token(&self, _: UserId, _: DeviceId, _: PushAddress, _: EpochMs) -> Result<PushClaim, StoreError> {
        Err(StoreError::Unavailable("asked of the relay".into()))
    }

    async fn release_push_tokens(&self, _: UserId, _: Option<DeviceId>) -> Result<u64, StoreError> {
        Err(StoreError::Unavailable("asked of the relay".into()))
    }

    async fn push_targets(&self, _: UserId) -> Result<Vec<PushTarget>, StoreError> {
        Err(StoreError::Unavailable("asked of the relay".into()))
    }

    async fn push_target(&self, _: DeviceId) -> Result<Option<PushTarget>, StoreError> {
        Err(StoreError::Unavailable("asked of the relay".into()))
    }

    async fn drop_push_token(&self, _: DeviceId, _: EpochMs) -> Result<bool, StoreError> {
        Err(StoreError::Unavailable("asked of the relay".into()))
    }

    async fn minimum_protocol_rules(&self) -> Result<Vec<MinimumProtocolRule>, StoreError> {
        Ok(Vec::new())
    }

    async fn compatibility_rules(&self) -> Result<Vec<CompatibilityRule>, StoreError> {
        let mut state = self.here()?;
        state.rule_reads += 1;
        Ok(state.rules.clone())
    }

    async fn add_compatibility_rule(&self, spec: RuleSpec, now: EpochMs, rules_max: u32) -> Result<Option<RuleId>, StoreError> {
        let mut state = self.here()?;
        if state.rules.len() >= usize::try_from(rules_max).unwrap() {
            return Ok(None);
        }
        let id = RuleId(state.rules.last().map_or(1, |last| last.id.0 + 1));
        state.rules.push(CompatibilityRule { id, spec, created_at: now });
        Ok(Some(id))
    }

    async fn remove_compatibility_rule(&self, id: RuleId) -> Result<bool, StoreError> {
        let mut state = self.here()?;
        let before = state.rules.len();
        state.rules.retain(|rule| rule.id != id);
        Ok(state.rules.len() < before)
    }

    async fn create_api_key(&self, key: ApiKey, hash: ApiKeyHash, live_max: u32) -> Result<bool, StoreError> {
        let mut state = self.here()?;
        let live = state.keys.iter().filter(|(own, _)| own.user == key.user).count();
        let has_room = live < usize::try_from(live_max).unwrap();
        if has_room {
            state.keys.push((key, hash));
        }
        Ok(has_room)
    }

    async fn api_keys_of(&self, user: UserId) -> Result<Vec<ApiKey>, StoreError> {
        Ok(self.here()?.keys.iter().map(|(key, _)| key).filter(|key| key.user == user).cloned().collect())
    }

    async fn api_key(&self, hash: ApiKeyHash) -> Result<Option<ApiKey>, StoreError> {
        let mut state = self.here()?;
        state.key_look_ups += 1;
        let found = state.keys.iter().find(|(_, own)| *own == hash).map(|(key, _)| key.clone());
        let hook = state.behind_key_look_up.take();
        drop(state);
        if let Some(hook) = hook {
            hook();
        }
        Ok(found)
    }

    async fn revoke_api_key(&self, user: UserId, id: ApiKeyId, _now: EpochMs) -> Result<bool, StoreError> {
        let mut state = self.here()?;
        let index = state.keys.iter().position(|(key, _)| key.id == id && key.user == user);
        Ok(index.map(|index| state.keys.remove(index)).is_some())
    }

    async fn renew_process(&self, _own: ProcessRecord, _good_for: Duration) -> Result<Vec<LiveProcess>, StoreError> {
        Ok(Vec::new())
    }

    async fn remove_process(&self, _instance: RelayInstanceId) -> Result<(), StoreError> {
        Ok(())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.here().map(|_| ())
    }
}

/// Answers what a test set, and keeps what it was asked to close.
#[derive(Default)]
pub(crate) struct RelayRecorder {
    state: Mutex<RelayState>,
}

#[derive(Default)]
pub(crate) struct RelayState {
    pub(crate) draining: bool,
    pub(crate) ends_process: bool,
    pub(crate) progress: Progress,
    pub(crate) load: Load,
    pub(crate) router_away: bool,
    pub(crate) presence: BTreeMap<DeviceId, Presence>,
    pub(crate) connections: Vec<ConnectionInfo>,
    pub(crate) storage: StorageHealth,
    pub(crate) closed: Vec<(UserId, DeviceId, CloseReason)>,
    pub(crate) logged_out: Vec<UserId>,
    pub(crate) revoked: Vec<(UserId, ApiKeyId)>,
    /// Push tokens that were claimed, and whose were released.
    pub(crate) claims: Vec<(UserId, DeviceId, PushAddress)>,
    pub(crate) releases: Vec<(UserId, Option<DeviceId>)>,
    /// What the next claims lead to; without, the token is claimed.
    pub(crate) claim: Option<Result<PushClaim, StoreError>>,
    /// What a test of a phone's push leads to.
    pub(crate) tested: Option<Result<Tested, NotTested>>,
    pub(crate) processes: SeenProcesses,
    pub(crate) counters: Arc<Counters>,
    pub(crate) readings: Readings,
}

impl RelayRecorder {
    pub(crate) fn state(&self) -> MutexGuard<'_, RelayState> {
        self.state.lock().unwrap()
    }
}

#[async_trait]
impl RelayPort for RelayRecorder {
    fn instance_id(&self) -> RelayInstanceId {
        RelayInstanceId(uuid::Uuid::nil())
    }

    fn is_draining(&self) -> bool {
        self.state().draining
    }

    fn begin_drain(&self, end_process: bool) -> Progress {
        let mut state = self.state();
        state.draining = true;
        state.ends_process |= end_process;
        state.progress
    }

    fn progress(&self) -> Progress {
        self.state().progress
    }

    fn started(&self) -> (EpochMs, Duration) {
        (EpochMs(1_789_214_400_000), Duration::from_secs(90))
    }

    fn load(&self) -> Load {
        self.state().load.clone()
    }

    fn close_connection(&self, connection: ConnectionId) -> bool {
        let mut state = self.state();
        let before = state.connections.len();
        state.connections.retain(|known| known.connection_id != connection);
        state.connections.len() < before
    }

    async fn presence(&self, _user: UserId) -> Result<BTreeMap<DeviceId, Presence>, RouterUnavailable> {
        let state = self.state();
        if state.router_away { Err(RouterUnavailable) } else { Ok(state.presence.clone()) }
    }

    async fn close_device(&self, user: UserId, device: DeviceId, reason: CloseReason) -> Result<(), RouterUnavailable> {
        let mut state = self.state();
        if state.router_away {
            return Err(RouterUnavailable);
        }
        state.closed.push((user, device, reason));
        Ok(())
    }

    async fn log_out(&self, user: UserId) -> Result<(), RouterUnavailable> {
        let mut state = self.state();
        if state.router_away {
            return Err(RouterUnavailable);
        }
        state.logged_out.push(user);
        Ok(())
    }

    async fn revoke(&self, user: UserId, api_key: ApiKeyId) -> Result<(), RouterUnavailable> {
        let mut state = self.state();
        if state.router_away {
            return Err(RouterUnavailable);
        }
        state.revoked.push((user, api_key));
        Ok(())
    }

    async fn claim_push_token(&self, user: UserId, device: DeviceId, address: PushAddress) -> Result<PushClaim, StoreError> {
        let mut state = self.state();
        state.claims.push((user, device, address));
        state.claim.clone().unwrap_or(Ok(PushClaim::Claimed { moved_from: None }))
    }

    async fn release_push_tokens(&self, user: UserId, device: Option<DeviceId>) -> Result<u64, StoreError> {
        let mut state = self.state();
        state.releases.push((user, device));
        match &state.claim {
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(_)) | None => Ok(1),
        }
    }

    async fn test_push(&self, _device: DeviceId) -> Result<Tested, NotTested> {
        self.state().tested.clone().unwrap_or(Err(NotTested::NoToken))
    }

    fn storage_health(&self) -> StorageHealth {
        self.state().storage.clone()
    }

    fn processes(&self) -> SeenProcesses {
        self.state().processes.clone()
    }

    fn counters(&self) -> Arc<Counters> {
        self.state().counters.clone()
    }

    fn readings(&self) -> Readings {
        self.state().readings.clone()
    }

    fn connections(&self, user: Option<UserId>) -> Vec<ConnectionInfo> {
        self.state().connections.iter().filter(|connection| user.is_none_or(|user| connection.user == user)).cloned().collect()
    }
}

/// An API over fakes, and the fakes.
pub(crate) struct Fixture {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) relay: Arc<RelayRecorder>,
    pub(crate) api: web::Data<Api>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let (store, relay) = (Arc::new(MemoryStore::default()), Arc::new(RelayRecorder::default()));
        let api = Api {
            store: store.clone(),
            relay: relay.clone(),
            authenticator: Authenticator::new(&rules(), store.clone()).unwrap(),
            admin_token: AdminToken::new(&Secret::new(ADMIN_TOKEN)),
            handshakes: Handshakes::new(Rate { burst: 3, per_second: 1 }, Vec::new()),
            policy: PolicyCache::new(Duration::from_secs(60)),
            log: LogFilter::detached("info"),
            certificate: None,
        };
        Fixture { store, relay, api: web::Data::new(api) }
    }

    /// The API by itself, for a whole server.
    pub(crate) fn into_api(self) -> Api {
        Arc::into_inner(self.api.into_inner()).unwrap()
    }
}

pub(crate) fn rules() -> TokenRules {
    TokenRules { secret: Some(Secret::new("k".repeat(32))), ..TokenRules::default() }
}

/// An `Authorization` header for this account.
pub(crate) fn bearer_of(user: &str) -> (&'static str, String) {
    let token = mint(&rules(), user.parse().unwrap(), Duration::from_secs(60), EpochMs::now()).unwrap();
    ("Authorization", format!("Bearer {token}"))
}

pub(crate) fn no_device_link() -> Mount {
    Arc::new(|_| {})
}

/// What came back: status, body (null if empty), and the headers that matter.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
    pub(crate) challenge: Option<String>,
    pub(crate) allow: Option<String>,
}

impl Answer {
    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    pub(crate) fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_default()
    }
}

pub(crate) async fn call_with(
    fixture: &Fixture,
    authorization: Option<(&'static str, String)>,
    method: &str,
    path: &str,
    body: String,
) -> Answer {
    let app = App::new().wrap(default_headers()).configure(|config| public_routes(config, fixture.api.clone(), &no_device_link()));
    let app = test::init_service(app).await;
    let mut request = test::TestRequest::with_uri(path).method(method.parse().unwrap()).set_payload(body);
    if let Some(header) = authorization {
        request = request.insert_header(header);
    }
    let response = test::call_service(&app, request.to_request()).await;
    let header = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (challenge, allow) = (header("www-authenticate"), header("allow"));
    assert_eq!(header("cache-control").as_deref(), Some("no-store"));
    let status = response.status().as_u16();
    let body = test::read_body(response).await;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Answer { status, body, challenge, allow }
}

pub(crate) async fn call(fixture: &Fixture, user: &str, method: &str, path: &str, body: Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    call_with(fixture, Some(bearer_of(user)), method, path, body).await
}

/// Makes an API key of this account with these scopes: its id, and an `Authorization` header with it.
pub(crate) async fn api_key_of(fixture: &Fixture, user: &str, scopes: &str) -> (String, (&'static str, String)) {
    let scopes: Vec<&str> = scopes.split(',').collect();
    let made = call(fixture, user, "POST", "/api/api-keys", json!({"scopes": scopes})).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let text = |field: &str| made.body[field].as_str().unwrap().to_owned();
    (text("apiKeyId"), ("Authorization", format!("Bearer {}", text("apiKey"))))
}
