//! What HTTP handlers ask of the running actors, as a trait: a test records instead.

use async_trait::async_trait;
use relay_actors::{
    clock::EpochMs,
    counters::Counters,
    processes::SeenProcesses,
    push::{NotTested, Tested},
    readings::Readings,
    relay::{ConnectionInfo, Load, Progress, Relay, RouterUnavailable, StorageHealth},
    store::{PushClaim, StoreError},
};
use relay_protocol::{
    close::CloseReason,
    device::Presence,
    id::{ApiKeyId, ConnectionId, DeviceId, RelayInstanceId, UserId},
    push::PushAddress,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The running actors. [`Relay`] documents each call.
#[async_trait]
pub trait RelayPort: Send + Sync + 'static {
    /// See [`Relay::instance_id`].
    fn instance_id(&self) -> RelayInstanceId;

    /// See [`Relay::is_draining`].
    fn is_draining(&self) -> bool;

    /// See [`Relay::begin_drain`]; the progress then.
    fn begin_drain(&self, end_process: bool) -> Progress;

    /// See [`Relay::progress`].
    fn progress(&self) -> Progress;

    /// See [`Relay::started`].
    fn started(&self) -> (EpochMs, Duration);

    /// See [`Relay::load`].
    fn load(&self) -> Load;

    /// See [`Relay::close_connection`].
    fn close_connection(&self, connection: ConnectionId) -> bool;

    /// See [`Relay::presence`].
    async fn presence(&self, user: UserId) -> Result<BTreeMap<DeviceId, Presence>, RouterUnavailable>;

    /// See [`Relay::close_device`].
    async fn close_device(&self, user: UserId, device: DeviceId, reason: CloseReason) -> Result<(), RouterUnavailable>;

    /// See [`Relay::log_out`].
    async fn log_out(&self, user: UserId) -> Result<(), RouterUnavailable>;

    /// See [`Relay::revoke`].
    async fn revoke(&self, user: UserId, api_key: ApiKeyId) -> Result<(), RouterUnavailable>;

    /// See [`Relay::claim_push_token`].
    async fn claim_push_token(&self, user: UserId, device: DeviceId, address: PushAddress) -> Result<PushClaim, StoreError>;

    /// See [`Relay::release_push_tokens`].
    async fn release_push_tokens(&self, user: UserId, device: Option<DeviceId>) -> Result<u64, StoreError>;

    /// See [`Relay::test_push`].
    async fn test_push(&self, device: DeviceId) -> Result<Tested, NotTested>;

    /// See [`Relay::storage_health`].
    fn storage_health(&self) -> StorageHealth;

    /// See [`Relay::processes`].
    fn processes(&self) -> SeenProcesses;

    /// See [`Relay::counters`].
    fn counters(&self) -> Arc<Counters>;

    /// See [`Relay::readings`].
    fn readings(&self) -> Readings;

    /// See [`Relay::connections`].
    fn connections(&self, user: Option<UserId>) -> Vec<ConnectionInfo>;
}

#[async_trait]
impl RelayPort for Relay {
    fn instance_id(&self) -> RelayInstanceId {
        Relay::instance_id(self)
    }

    fn is_draining(&self) -> bool {
        Relay::is_draining(self)
    }

    fn begin_drain(&self, end_process: bool) -> Progress {
        Relay::begin_drain(self, end_process);
        Relay::progress(self)
    }

    fn progress(&self) -> Progress {
        Relay::progress(self)
    }

    fn started(&self) -> (EpochMs, Duration) {
        Relay::started(self)
    }

    fn load(&self) -> Load {
        Relay::load(self)
    }

    fn close_connection(&self, connection: ConnectionId) -> bool {
        Relay::close_connection(self, connection)
    }

    async fn presence(&self, user: UserId) -> Result<BTreeMap<DeviceId, Presence>, RouterUnavailable> {
        Relay::presence(self, user).await
    }

    async fn close_device(&self, user: UserId, device: DeviceId, reason: CloseReason) -> Result<(), RouterUnavailable> {
        Relay::close_device(self, user, device, reason).await
    }

    async fn log_out(&self, user: UserId) -> Result<(), RouterUnavailable> {
        Relay::log_out(self, user).await
    }

    async fn revoke(&self, user: UserId, api_key: ApiKeyId) -> Result<(), RouterUnavailable> {
        Relay::revoke(self, user, api_key).await
    }

    async fn claim_push_token(&self, user: UserId, device: DeviceId, address: PushAddress) -> Result<PushClaim, StoreError> {
        Relay::claim_push_token(self, user, device, address).await
    }

    async fn release_push_tokens(&self, user: UserId, device: Option<DeviceId>) -> Result<u64, StoreError> {
        Relay::release_push_tokens(self, user, device).await
    }

    async fn test_push(&self, device: DeviceId) -> Result<Tested, NotTested> {
        Relay::test_push(self, device).await
    }

    fn storage_health(&self) -> StorageHealth {
        Relay::storage_health(self)
    }

    fn processes(&self) -> SeenProcesses {
        Relay::processes(self)
    }

    fn counters(&self) -> Arc<Counters> {
        Relay::counters(self).clone()
    }

    fn readings(&self) -> Readings {
        Relay::readings(self)
    }

    fn connections(&self, user: Option<UserId>) -> Vec<ConnectionInfo> {
        Relay::connections(self, user)
    }
}
