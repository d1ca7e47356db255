//! The backend for production: a PostgreSQL server, version 14 or newer.
//!
//! One pool of connections, driven by a thread of its own: a connection is a task, and must neither wait for a busy worker nor end
//! with one. Every call is one statement of `statements`, prepared once per connection, with arrays for lists. `pool` bounds
//! each call in time and keeps dead connections away from callers, `open` waits for the server at start and migrates.

mod api_keys;
mod compatibility;
mod error;
mod migrate;
mod open;
mod pool;
mod processes;
mod push_tokens;
mod settings;
mod statements;
#[cfg(test)]
mod tests;
mod tls;
mod tls_stream;

pub use open::OpenError;
pub(crate) use pool::{ANSWER_TIMEOUT, CALL_TIMEOUT, STATEMENT_TIMEOUT};
pub use settings::{Settings, SettingsError};

use crate::{
    clock::EpochMs,
    store::{
        ApiKey, ApiKeyHash, CompatibilityRule, Device, DevicePatch, DeviceWrite, LiveProcess, MinimumProtocolRule, PresenceChange,
        ProcessRecord, PushClaim, PushTarget, StatusWrite, Store, StoreError, Upserted, migrate::MigrationReport,
    },
};
use async_trait::async_trait;
use pool::StatementPool;
use relay_protocol::{
    compatibility::{RuleId, RuleSpec},
    device::DeviceFacts,
    id::{ApiKeyId, DeviceId, RelayInstanceId, UserId},
    push::PushAddress,
};
use std::{
    num::NonZero,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::Duration,
};

/// Devices that one statement of `disconnect_stale` ends. In one statement, the devices of a large relay could take longer than its
/// deadline, and then would at every attempt: of each device the whole history is walked to find what is too old.
const STALE_BATCH_DEVICES_MAX: i64 = 500;

/// The store on one PostgreSQL database.
pub struct PostgresStore {
    pool: StatementPool,
    migrations: MigrationReport,
    /// Status writes so far.
    status_writes: AtomicI64,
}

impl PostgresStore {
    /// Connects and migrates. Waits up to 30 s for a server that is not there yet or has no room; what waiting does not help fails
    /// at once. Dropping the future ends the wait.
    ///
    /// # Errors
    /// [`OpenError`] when the database cannot be used, or was not migrated.
    pub async fn open(settings: &Settings, pool_size: NonZero<u16>) -> Result<PostgresStore, OpenError> {
        let (pool, migrations) = open::open(settings, pool_size, migrate::MIGRATIONS, open::START_WAIT).await?;
        Ok(PostgresStore::new(pool, migrations))
    }

    fn new(pool: StatementPool, migrations: MigrationReport) -> Self {
        PostgresStore { pool, migrations, status_writes: AtomicI64::new(0) }
    }

    /// What opening found and applied.
    pub fn migrations(&self) -> &MigrationReport {
        &self.migrations
    }
}

/// Brings the database's schema up to date without opening a store, for `relay migrate`.
///
/// # Errors
/// As [`PostgresStore::open`].
pub async fn migrate(settings: &Settings) -> Result<MigrationReport, OpenError> {
    open::open(settings, NonZero::<u16>::MIN, migrate::MIGRATIONS, open::START_WAIT).await.map(|(_pool, migrations)| migrations)
}

#[async_trait]
impl Store for PostgresStore {
    async fn upsert_device(&self, write: DeviceWrite, now: EpochMs) -> Result<Upserted, StoreError> {
        let id = write.id;
        if let Some(row) = self.pool.query(statements::upsert_device(write, now)).await?.first() {
            return statements::upserted(row);
        }
        let is_known = !self.pool.query(statements::is_known(id)).await?.is_empty();
        Err(if is_known { StoreError::OtherAccount } else { StoreError::TooManyDevices })
    }

    async fn devices_of(&self, user: UserId) -> Result<Vec<Device>, StoreError> {
        self.pool.query(statements::devices_of(user)).await?.iter().map(statements::device).collect()
    }

    async fn patch_device(&self, user: UserId, id: DeviceId, patch: DevicePatch, now: EpochMs) -> Result<Option<Device>, StoreError> {
        self.pool.query(statements::patch_device(user, id, patch, now)).await?.first().map(statements::device).transpose()
    }

    async fn forget_device(&self, user: UserId, id: DeviceId, now: EpochMs) -> Result<bool, StoreError> {
        Ok(!self.pool.query(statements::forget_device(user, id, now)).await?.is_empty())
    }

    async fn look_up(&self, ids: &[DeviceId]) -> Result<Vec<DeviceFacts>, StoreError> {
        self.pool.query(statements::look_up(ids)).await?.iter().map(statements::facts).collect()
    }

    async fn write_statuses(&self, writes: &[StatusWrite], instance: RelayInstanceId) -> Result<(), StoreError> {
        let number = self.status_writes.fetch_add(1, Relaxed) + 1;
        self.pool.query(statements::write_statuses(writes, instance, number)).await.map(|_no_rows| ())
    }

    async fn disconnect_stale(&self, instance: RelayInstanceId, at: EpochMs) -> Result<u64, StoreError> {
        let mut ended = 0;
        loop {
            let rows = self.pool.query(statements::disconnect_stale(instance, at, STALE_BATCH_DEVICES_MAX)).await?;
            let batch: i64 = rows.first().map_or(Ok(0), |row| statements::column(row, "ended"))?;
            ended += u64::try_from(batch).unwrap_or(0);
            if batch == 0 {
                return Ok(ended);
            }
        }
    }

    async fn presence_history(&self, device: DeviceId, before: Option<EpochMs>, limit: u32) -> Result<Vec<PresenceChange>, StoreError> {
        self.pool.query(statements::presence_history(device, before, limit)).await?.iter().map(statements::presence_change).collect()
    }

    async fn claim_push_token(&self, user: UserId, device: DeviceId, address: PushAddress, now: EpochMs) -> Result<PushClaim, StoreError> {
        push_tokens::claimed(&self.pool.query(push_tokens::claim(user, device, address, now)).await?)
    }

    async fn release_push_tokens(&self, user: UserId, device: Option<DeviceId>) -> Result<u64, StoreError> {
        Ok(self.pool.query(push_tokens::release(user, device)).await?.len() as u64)
    }

    async fn push_targets(&self, user: UserId) -> Result<Vec<PushTarget>, StoreError> {
        self.pool.query(push_tokens::targets(user)).await?.iter().map(push_tokens::target).collect()
    }

    async fn push_target(&self, device: DeviceId) -> Result<Option<PushTarget>, StoreError> {
        self.pool.query(push_tokens::target_of(device)).await?.first().map(push_tokens::target).transpose()
    }

    async fn drop_push_token(&self, device: DeviceId, claimed_at: EpochMs) -> Result<bool, StoreError> {
        Ok(!self.pool.query(push_tokens::drop_claim(device, claimed_at)).await?.is_empty())
    }

    async fn create_api_key(&self, key: ApiKey, hash: ApiKeyHash, live_max: u32) -> Result<bool, StoreError> {
        Ok(!self.pool.query(api_keys::create(key, hash, live_max)).await?.is_empty())
    }

    async fn api_keys_of(&self, user: UserId) -> Result<Vec<ApiKey>, StoreError> {
        self.pool.query(api_keys::list(user)).await?.iter().map(api_keys::api_key).collect()
    }

    async fn api_key(&self, hash: ApiKeyHash) -> Result<Option<ApiKey>, StoreError> {
        self.pool.query(api_keys::find(hash)).await?.first().map(api_keys::api_key).transpose()
    }

    async fn revoke_api_key(&self, user: UserId, id: ApiKeyId, now: EpochMs) -> Result<bool, StoreError> {
        Ok(!self.pool.query(api_keys::revoke(user, id, now)).await?.is_empty())
    }

    async fn minimum_protocol_rules(&self) -> Result<Vec<MinimumProtocolRule>, StoreError> {
        self.pool.query(statements::minimum_protocol_rules()).await?.iter().map(statements::minimum_protocol_rule).collect()
    }

    async fn compatibility_rules(&self) -> Result<Vec<CompatibilityRule>, StoreError> {
        self.pool.query(compatibility::list()).await?.iter().map(compatibility::rule).collect()
    }

    async fn add_compatibility_rule(&self, spec: RuleSpec, now: EpochMs, rules_max: u32) -> Result<Option<RuleId>, StoreError> {
        self.pool.query(compatibility::add(spec, now, rules_max)).await?.first().map(compatibility::id).transpose()
    }

    async fn remove_compatibility_rule(&self, id: RuleId) -> Result<bool, StoreError> {
        Ok(!self.pool.query(compatibility::remove(id)).await?.is_empty())
    }

    async fn renew_process(&self, own: ProcessRecord, good_for: Duration) -> Result<Vec<LiveProcess>, StoreError> {
        self.pool.query(processes::renew(own, good_for)).await?.iter().map(processes::live_process).collect()
    }

    async fn remove_process(&self, instance: RelayInstanceId) -> Result<(), StoreError> {
        self.pool.query(processes::remove(instance)).await.map(|_no_rows| ())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.pool.query(statements::ping()).await.map(|_version| ())
    }
}
