//! A store in memory and a relay that records, for handler tests.

use super::{
    Api, Mount,
    auth::{AdminToken, Authenticator, TokenRules, mint},
    handshakes::Handshakes,
    port::RelayPort,
};
use crate::secrets::Secret;
use actix_web::web;
use async_trait::async_trait;
use relay_actors::{
    clock::EpochMs,
    device_socket::Rate,
    relay::{ConnectionInfo, RouterUnavailable},
    store::{Device, DevicePatch, DeviceWrite, MinimumProtocolRule, StatusWrite, Store, StoreError, Upserted},
};
use relay_protocol::{
    close::CloseReason,
    device::{DeviceFacts, Presence},
    id::{DeviceId, RelayInstanceId, UserId},
};
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

#[derive(Default)]
struct StoreState {
    rows: Vec<(Device, bool)>,
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

    async fn look_up(&self, _ids: &[DeviceId]) -> Result<Vec<DeviceFacts>, StoreError> {
        Ok(Vec::new())
    }

    async fn write_statuses(&self, _writes: &[StatusWrite], _instance: RelayInstanceId) -> Result<(), StoreError> {
        Ok(())
    }

    async fn disconnect_stale(&self, _instance: RelayInstanceId, _at: EpochMs) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn minimum_protocol_rules(&self) -> Result<Vec<MinimumProtocolRule>, StoreError> {
        Ok(Vec::new())
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
    pub(crate) router_away: bool,
    pub(crate) presence: BTreeMap<DeviceId, Presence>,
    pub(crate) connections: Vec<ConnectionInfo>,
    pub(crate) closed: Vec<(UserId, DeviceId, CloseReason)>,
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
            authenticator: Authenticator::new(&rules()).unwrap(),
            admin_token: AdminToken::new(&Secret::new(ADMIN_TOKEN)),
            handshakes: Handshakes::new(Rate { burst: 3, per_second: 1 }, Vec::new()),
        };
        Fixture { store, relay, api: web::Data::new(api) }
    }

    /// The API by itself, for a whole server.
    pub(crate) fn into_api(self) -> Api {
        Arc::into_inner(self.api.into_inner()).unwrap()
    }
}

pub(crate) fn rules() -> TokenRules {
    TokenRules { secret: Secret::new("k".repeat(32)), issuer: None, audience: None }
}

/// An `Authorization` header for this account.
pub(crate) fn bearer_of(user: &str) -> (&'static str, String) {
    let token = mint(&rules(), user.parse().unwrap(), Duration::from_secs(60), EpochMs::now()).unwrap();
    ("Authorization", format!("Bearer {token}"))
}

pub(crate) fn no_device_link() -> Mount {
    Arc::new(|_| {})
}
