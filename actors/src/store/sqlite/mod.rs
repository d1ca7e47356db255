//! The embedded backend: one SQLite file in the data directory.
//!
//! Two threads, one connection each: a writer, so that writes of this process queue up instead of finding the file locked, and
//! a read-only reader, which write-ahead logging lets answer while anybody writes. Other processes may use the file at the
//! same time (a second relay during a deploy, `relay compat`, a backup).

mod api_keys;
mod compatibility;
mod history;
mod open;
mod processes;
mod push_tokens;
mod statements;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use open::BUSY_TIMEOUT;
pub use open::{OpenError, migrate};

use crate::{
    clock::EpochMs,
    store::{
        ApiKey, ApiKeyHash, CompatibilityRule, Device, DevicePatch, DeviceWrite, LiveProcess, MinimumProtocolRule, PresenceChange,
        ProcessRecord, PushClaim, PushTarget, StatusWrite, Store, StoreError, Upserted, migrate::MigrationReport,
    },
};
use async_trait::async_trait;
use relay_protocol::{
    compatibility::{RuleId, RuleSpec},
    device::DeviceFacts,
    id::{ApiKeyId, DeviceId, RelayInstanceId, UserId},
    push::PushAddress,
};
use std::{path::Path, time::Duration};
use worker::Worker;

/// The store on one SQLite file. Dropping it waits for the statements that run, and joins its threads.
pub struct SqliteStore {
    reader: Worker,
    writer: Worker,
    migrations: MigrationReport,
}

impl SqliteStore {
    /// Opens the file, creating it with mode 0600 in a directory that exists, and migrates it. Blocks: for start-up only.
    ///
    /// # Errors
    /// [`OpenError`] when the file cannot be used, or was not migrated.
    pub fn open(path: &Path) -> Result<SqliteStore, OpenError> {
        let opened = open::open(path, open::MIGRATIONS)?;
        Ok(SqliteStore {
            reader: Worker::start("store-reader", opened.reader).map_err(OpenError::Thread)?,
            writer: Worker::start("store-writer", opened.writer).map_err(OpenError::Thread)?,
            migrations: opened.migrations,
        })
    }

    /// What opening found and applied.
    pub fn migrations(&self) -> &MigrationReport {
        &self.migrations
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn upsert_device(&self, write: DeviceWrite, now: EpochMs) -> Result<Upserted, StoreError> {
        self.writer.run(move |connection| statements::upsert_device(connection, &write, now)).await
    }

    async fn devices_of(&self, user: UserId) -> Result<Vec<Device>, StoreError> {
        self.reader.run(move |connection| Ok(statements::devices_of(connection, user)?)).await
    }

    async fn patch_device(&self, user: UserId, id: DeviceId, patch: DevicePatch, now: EpochMs) -> Result<Option<Device>, StoreError> {
        self.writer.run(move |connection| Ok(statements::patch_device(connection, user, id, &patch, now)?)).await
    }

    async fn forget_device(&self, user: UserId, id: DeviceId, now: EpochMs) -> Result<bool, StoreError> {
        self.writer.run(move |connection| Ok(statements::forget_device(connection, user, id, now)?)).await
    }

    async fn look_up(&self, ids: &[DeviceId]) -> Result<Vec<DeviceFacts>, StoreError> {
        let ids = statements::id_list(ids);
        self.reader.run(move |connection| Ok(statements::look_up(connection, &ids)?)).await
    }

    async fn write_statuses(&self, writes: &[StatusWrite], instance: RelayInstanceId) -> Result<(), StoreError> {
        let writes = statements::status_list(writes);
        self.writer.run(move |connection| Ok(statements::write_statuses(connection, &writes, instance)?)).await
    }

    async fn disconnect_stale(&self, instance: RelayInstanceId, at: EpochMs) -> Result<u64, StoreError> {
        self.writer.run(move |connection| Ok(statements::disconnect_stale(connection, instance, at)? as u64)).await
    }

    async fn presence_history(&self, device: DeviceId, before: Option<EpochMs>, limit: u32) -> Result<Vec<PresenceChange>, StoreError> {
        self.reader.run(move |connection| Ok(history::read(connection, device, before, limit)?)).await
    }

    async fn claim_push_token(&self, user: UserId, device: DeviceId, address: PushAddress, now: EpochMs) -> Result<PushClaim, StoreError> {
        self.writer.run(move |connection| Ok(push_tokens::claim(connection, user, device, &address, now)?)).await
    }

    async fn release_push_tokens(&self, user: UserId, device: Option<DeviceId>) -> Result<u64, StoreError> {
        self.writer.run(move |connection| Ok(push_tokens::release(connection, user, device)? as u64)).await
    }

    async fn push_targets(&self, user: UserId) -> Result<Vec<PushTarget>, StoreError> {
        self.reader.run(move |connection| Ok(push_tokens::targets(connection, user)?)).await
    }

    async fn push_target(&self, device: DeviceId) -> Result<Option<PushTarget>, StoreError> {
        self.reader.run(move |connection| Ok(push_tokens::target_of(connection, device)?)).await
    }

    async fn drop_push_token(&self, device: DeviceId, claimed_at: EpochMs) -> Result<bool, StoreError> {
        self.writer.run(move |connection| Ok(push_tokens::drop_claim(connection, device, claimed_at)?)).await
    }

    async fn minimum_protocol_rules(&self) -> Result<Vec<MinimumProtocolRule>, StoreError> {
        self.reader.run(|connection| Ok(statements::minimum_protocol_rules(connection)?)).await
    }

    async fn compatibility_rules(&self) -> Result<Vec<CompatibilityRule>, StoreError> {
        self.reader.run(|connection| Ok(compatibility::list(connection)?)).await
    }

    async fn add_compatibility_rule(&self, spec: RuleSpec, now: EpochMs, rules_max: u32) -> Result<Option<RuleId>, StoreError> {
        self.writer.run(move |connection| Ok(compatibility::add(connection, &spec, now, rules_max)?)).await
    }

    async fn remove_compatibility_rule(&self, id: RuleId) -> Result<bool, StoreError> {
        self.writer.run(move |connection| Ok(compatibility::remove(connection, id)?)).await
    }

    async fn create_api_key(&self, key: ApiKey, hash: ApiKeyHash, live_max: u32) -> Result<bool, StoreError> {
        self.writer.run(move |connection| Ok(api_keys::create(connection, &key, hash, live_max)?)).await
    }

    async fn api_keys_of(&self, user: UserId) -> Result<Vec<ApiKey>, StoreError> {
        self.reader.run(move |connection| Ok(api_keys::list(connection, user)?)).await
    }

    async fn api_key(&self, hash: ApiKeyHash) -> Result<Option<ApiKey>, StoreError> {
        self.reader.run(move |connection| Ok(api_keys::find(connection, hash)?)).await
    }

    async fn revoke_api_key(&self, user: UserId, id: ApiKeyId, now: EpochMs) -> Result<bool, StoreError> {
        self.writer.run(move |connection| Ok(api_keys::revoke(connection, user, id, now)?)).await
    }

    async fn renew_process(&self, own: ProcessRecord, good_for: Duration) -> Result<Vec<LiveProcess>, StoreError> {
        self.writer.run(move |connection| Ok(processes::renew(connection, &own, good_for)?)).await
    }

    async fn remove_process(&self, instance: RelayInstanceId) -> Result<(), StoreError> {
        self.writer.run(move |connection| Ok(processes::remove(connection, instance)?)).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.reader.run(|connection| Ok(statements::ping(connection)?)).await
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        StoreError::Unavailable(error.to_string())
    }
}
