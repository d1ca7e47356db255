//! The SQL of each store call. Lists go in as one JSON parameter, so that a batch of any size is one statement.

use super::{history, push_tokens};
use crate::{
    clock::EpochMs,
    store::{Device, DevicePatch, DeviceWrite, MinimumProtocolRule, StatusWrite, StoreError, Upserted},
};
use relay_protocol::{
    device::{DeviceFacts, Presence, PresenceReason},
    id::{DeviceId, RelayInstanceId, UserId},
    limits::DEVICES_PER_ACCOUNT_MAX,
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, types::Type};
use std::{collections::BTreeMap, str::FromStr};

const UPDATE_DEVICE: &str = "UPDATE devices SET role = ?2, name = ?3, platform = ?4, app_version = ?5, \
     relay_eligible = coalesce(?6, iif(forgotten_at IS NULL, relay_eligible, 1)), \
     status = iif(forgotten_at IS NULL, status, 'disconnected'), status_at = iif(forgotten_at IS NULL, status_at, NULL), \
     status_instance = iif(forgotten_at IS NULL, status_instance, NULL), forgotten_at = NULL, updated_at = ?7 \
     WHERE id = ?1 RETURNING *";

const INSERT_DEVICE: &str = "INSERT INTO devices (id, role, name, platform, app_version, relay_eligible, updated_at, created_at, user_id) \
     VALUES (?1, ?2, ?3, ?4, ?5, coalesce(?6, 1), ?7, ?7, ?8) RETURNING *";

pub(super) const DEVICES_OF: &str = "SELECT * FROM devices WHERE user_id = ?1 AND forgotten_at IS NULL ORDER BY created_at, id";

pub(super) const COUNT_DEVICES_EVER: &str = "SELECT count(*) FROM devices WHERE user_id = ?1";

pub(super) const LOOK_UP: &str =
    "SELECT id, user_id, role, relay_eligible FROM devices WHERE id IN (SELECT value FROM json_each(?1)) AND forgotten_at IS NULL";

pub(super) fn upsert_device(connection: &mut Connection, write: &DeviceWrite, now: EpochMs) -> Result<Upserted, StoreError> {
    let transaction = writing(connection)?;
    let stored: Option<(UserId, bool)> = transaction
        .prepare_cached("SELECT user_id, forgotten_at IS NOT NULL AS forgotten FROM devices WHERE id = ?1")?
        .query_one([write.id.to_string()], |row| Ok((parsed(row, "user_id")?, row.get("forgotten")?)))
        .optional()?;
    if stored.is_some_and(|(owner, _forgotten)| owner != write.user) {
        return Err(StoreError::OtherAccount);
    }
    if stored.is_none() && count_devices_ever(&transaction, write.user)? >= DEVICES_PER_ACCOUNT_MAX {
        return Err(StoreError::TooManyDevices);
    }
    let (id, role) = (write.id.to_string(), write.role.as_str());
    let device = match stored {
        Some(_own) => transaction
            .prepare_cached(UPDATE_DEVICE)?
            .query_one((id, role, &write.name, &write.platform, &write.app_version, write.relay_eligible, now.0), device)?,
        None => transaction.prepare_cached(INSERT_DEVICE)?.query_one(
            (id, role, &write.name, &write.platform, &write.app_version, write.relay_eligible, now.0, write.user.to_string()),
            device,
        )?,
    };
    transaction.commit()?;
    Ok(Upserted { device, created: stored.is_none_or(|(_owner, forgotten)| forgotten) })
}

/// Forgotten ones too.
fn count_devices_ever(connection: &Connection, user: UserId) -> rusqlite::Result<u32> {
    connection.prepare_cached(COUNT_DEVICES_EVER)?.query_one([user.to_string()], |row| row.get(0))
}

pub(super) fn devices_of(connection: &Connection, user: UserId) -> rusqlite::Result<Vec<Device>> {
    connection.prepare_cached(DEVICES_OF)?.query_map([user.to_string()], device)?.collect()
}

pub(super) fn patch_device(
    connection: &Connection,
    user: UserId,
    id: DeviceId,
    patch: &DevicePatch,
    now: EpochMs,
) -> rusqlite::Result<Option<Device>> {
    connection
        .prepare_cached(
            "UPDATE devices SET name = coalesce(?3, name), relay_eligible = coalesce(?4, relay_eligible), updated_at = ?5 \
             WHERE id = ?1 AND user_id = ?2 AND forgotten_at IS NULL RETURNING *",
        )?
        .query_one((id.to_string(), user.to_string(), &patch.name, patch.relay_eligible, now.0), device)
        .optional()
}

pub(super) fn forget_device(connection: &mut Connection, user: UserId, id: DeviceId, now: EpochMs) -> rusqlite::Result<bool> {
    let transaction = writing(connection)?;
    let changed = transaction
        .prepare_cached("UPDATE devices SET forgotten_at = ?3, updated_at = ?3 WHERE id = ?1 AND user_id = ?2 AND forgotten_at IS NULL")?
        .execute((id.to_string(), user.to_string(), now.0))?;
    if changed > 0 {
        history::forget(&transaction, id)?;
        push_tokens::forget(&transaction, id)?;
    }
    transaction.commit()?;
    Ok(changed > 0)
}

/// The parameter of [`look_up`].
pub(super) fn id_list(ids: &[DeviceId]) -> String {
    serde_json::Value::from_iter(ids.iter().map(DeviceId::to_string)).to_string()
}

pub(super) fn look_up(connection: &Connection, ids: &str) -> rusqlite::Result<Vec<DeviceFacts>> {
    connection.prepare_cached(LOOK_UP)?.query_map([ids], facts)?.collect()
}

/// The parameter of [`write_statuses`]: the last write of each device.
pub(super) fn status_list(writes: &[StatusWrite]) -> String {
    let latest: BTreeMap<DeviceId, &StatusWrite> = writes.iter().map(|write| (write.device, write)).collect();
    let item =
        |write: &StatusWrite| serde_json::json!([write.device.to_string(), write.status.as_str(), write.at.0, write.reason.as_str()]);
    serde_json::Value::from_iter(latest.into_values().map(item)).to_string()
}

pub(super) fn write_statuses(connection: &mut Connection, writes: &str, instance: RelayInstanceId) -> rusqlite::Result<()> {
    let transaction = writing(connection)?;
    transaction
        .prepare_cached(
            "UPDATE devices SET status = latest.value ->> 1, status_at = latest.value ->> 2, status_instance = ?2 \
             FROM json_each(?1) AS latest WHERE devices.id = latest.value ->> 0",
        )?
        .execute((writes, instance.to_string()))?;
    history::record(&transaction, writes, instance)?;
    transaction.commit()
}

pub(super) fn disconnect_stale(connection: &mut Connection, instance: RelayInstanceId, at: EpochMs) -> rusqlite::Result<usize> {
    let transaction = writing(connection)?;
    let ended: Vec<DeviceId> = transaction
        .prepare_cached(
            "UPDATE devices SET status = 'disconnected', status_at = ?2, status_instance = ?1 \
             WHERE status <> 'disconnected' AND status_instance IS DISTINCT FROM ?1 AND forgotten_at IS NULL \
             AND NOT EXISTS (SELECT 1 FROM relay_processes AS live WHERE live.instance = devices.status_instance \
             AND live.expires_at > unixepoch('subsec') * 1000) RETURNING id",
        )?
        .query_map((instance.to_string(), at.0), |row| parsed(row, "id"))?
        .collect::<rusqlite::Result<_>>()?;
    let change =
        |device: &DeviceId| StatusWrite { device: *device, status: Presence::Disconnected, reason: PresenceReason::GraceElapsed, at };
    history::record(&transaction, &status_list(&ended.iter().map(change).collect::<Vec<_>>()), instance)?;
    transaction.commit()?;
    Ok(ended.len())
}

pub(super) fn minimum_protocol_rules(connection: &Connection) -> rusqlite::Result<Vec<MinimumProtocolRule>> {
    connection
        .prepare_cached(
            "SELECT minimum_relay_protocol_version FROM compatibility_rules WHERE minimum_relay_protocol_version IS NOT NULL ORDER BY id",
        )?
        .query_map((), |row| Ok(MinimumProtocolRule { minimum_relay_protocol_version: row.get(0)? }))?
        .collect()
}

/// Reads from the file: `SELECT 1` alone would succeed on a file that is gone.
pub(super) fn ping(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached("SELECT max(version) FROM schema_migrations")?.query_one((), |row| row.get::<_, Option<u32>>(0))?;
    Ok(())
}

/// Takes the write lock at once: a transaction that reads first and then wants to write may be refused for good when another
/// process wrote in between.
pub(super) fn writing(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

fn facts(row: &Row<'_>) -> rusqlite::Result<DeviceFacts> {
    Ok(DeviceFacts {
        id: parsed(row, "id")?,
        user: parsed(row, "user_id")?,
        role: parsed(row, "role")?,
        relay_eligible: row.get("relay_eligible")?,
    })
}

fn device(row: &Row<'_>) -> rusqlite::Result<Device> {
    Ok(Device {
        facts: facts(row)?,
        name: row.get("name")?,
        platform: row.get("platform")?,
        app_version: row.get("app_version")?,
        status: parsed(row, "status")?,
        status_at: row.get::<_, Option<i64>>("status_at")?.map(EpochMs),
        created_at: EpochMs(row.get("created_at")?),
        updated_at: EpochMs(row.get("updated_at")?),
    })
}

/// A column whose text has a type of its own.
pub(super) fn parsed<T>(row: &Row<'_>, column: &str) -> rusqlite::Result<T>
where
    T: FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let text: String = row.get(column)?;
    text.parse().map_err(|error| match row.as_ref().column_index(column) {
        Ok(index) => rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error)),
        Err(unknown_column) => unknown_column,
    })
}
