//! The SQL of each store call, and what its rows mean. Each call is one statement, whatever the size of the batch, and atomic
//! under concurrency by itself: no decision is made here on what an earlier statement read.
//!
//! Statements that lock several rows take them in the order of their ids, so that two of them wait for each other and never both.

use crate::{
    clock::EpochMs,
    store::{Device, DevicePatch, DeviceWrite, MinimumProtocolRule, StatusWrite, StoreError, Upserted},
};
use relay_protocol::{
    device::{DeviceFacts, Presence, Role},
    id::{DeviceId, RelayInstanceId, UserId},
};
use std::collections::BTreeMap;
use tokio_postgres::{
    Row,
    types::{FromSql, ToSql},
};
use uuid::Uuid;

/// A statement with its parameters.
pub(super) struct Call {
    pub(super) sql: &'static str,
    pub(super) parameters: Vec<Box<dyn ToSql + Send + Sync>>,
}

macro_rules! call {
    ($sql:expr $(, $parameter:expr)* $(,)?) => {
        Call { sql: $sql, parameters: vec![$(Box::new($parameter)),*] }
    };
}

// Columns by name: a prepared `*` fails for good when a newer relay, beside this one during a deploy, adds a column.
macro_rules! device_columns {
    () => {
        "id, user_id, role, name, platform, app_version, relay_eligible, status, status_at, created_at, updated_at"
    };
}

/// The row of another account matches neither branch, and comes back as no row.
const UPSERT_DEVICE: &str = concat!(
    "INSERT INTO devices AS stored (id, user_id, role, name, platform, app_version, relay_eligible, created_at, updated_at) \
     VALUES ($1, $2, $3, $4, $5, $6, coalesce($7::boolean, true), $8, $8) \
     ON CONFLICT (id) DO UPDATE SET role = excluded.role, name = excluded.name, platform = excluded.platform, \
     app_version = excluded.app_version, updated_at = excluded.updated_at, forgotten_at = NULL, \
     relay_eligible = coalesce($7::boolean, stored.relay_eligible OR stored.forgotten_at IS NOT NULL), \
     status = CASE WHEN stored.forgotten_at IS NULL THEN stored.status ELSE 'disconnected' END, \
     status_at = CASE WHEN stored.forgotten_at IS NULL THEN stored.status_at END, \
     status_instance = CASE WHEN stored.forgotten_at IS NULL THEN stored.status_instance END, \
     registrations = CASE WHEN stored.forgotten_at IS NULL THEN stored.registrations + 1 ELSE 1 END \
     WHERE stored.user_id = excluded.user_id RETURNING registrations, ",
    device_columns!()
);

pub(super) const DEVICES_OF: &str =
    concat!("SELECT ", device_columns!(), " FROM devices WHERE user_id = $1 AND forgotten_at IS NULL ORDER BY created_at, id");

const PATCH_DEVICE: &str = concat!(
    "UPDATE devices SET name = coalesce($3::text, name), relay_eligible = coalesce($4::boolean, relay_eligible), updated_at = $5 \
     WHERE id = $1 AND user_id = $2 AND forgotten_at IS NULL RETURNING ",
    device_columns!()
);

const FORGET_DEVICE: &str =
    "UPDATE devices SET forgotten_at = $3, updated_at = $3 WHERE id = $1 AND user_id = $2 AND forgotten_at IS NULL RETURNING id";

pub(super) const LOOK_UP: &str =
    "SELECT id, user_id, role, relay_eligible FROM devices WHERE id = ANY($1::uuid[]) AND forgotten_at IS NULL";

const WRITE_STATUSES: &str = "WITH locked AS MATERIALIZED (SELECT id FROM devices WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE) \
     UPDATE devices SET status = latest.status, status_at = latest.at, status_instance = $4::uuid \
     FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS latest (id, status, at) JOIN locked ON locked.id = latest.id \
     WHERE devices.id = latest.id";

/// The conditions stand twice: a row may have changed between the moment that the statement sees and the lock.
const DISCONNECT_STALE: &str = "WITH locked AS MATERIALIZED (SELECT id FROM devices WHERE status <> 'disconnected' \
     AND status_instance IS DISTINCT FROM $1::uuid AND forgotten_at IS NULL ORDER BY id LIMIT $3::bigint FOR NO KEY UPDATE), \
     ended AS (UPDATE devices SET status = 'disconnected', status_at = $2, status_instance = $1::uuid FROM locked \
     WHERE devices.id = locked.id AND devices.status <> 'disconnected' AND devices.status_instance IS DISTINCT FROM $1::uuid \
     AND devices.forgotten_at IS NULL RETURNING 1) SELECT count(*) AS ended FROM ended";

const MINIMUM_PROTOCOL_RULES: &str =
    "SELECT minimum_relay_protocol_version FROM compatibility_rules WHERE minimum_relay_protocol_version IS NOT NULL ORDER BY id";

pub(super) fn upsert_device(write: DeviceWrite, now: EpochMs) -> Call {
    let DeviceWrite { id, user, role, name, platform, app_version, relay_eligible } = write;
    call!(UPSERT_DEVICE, id.0, user.0, role.as_str(), name, platform, app_version, relay_eligible, now.0)
}

pub(super) fn devices_of(user: UserId) -> Call {
    call!(DEVICES_OF, user.0)
}

pub(super) fn patch_device(user: UserId, id: DeviceId, patch: DevicePatch, now: EpochMs) -> Call {
    call!(PATCH_DEVICE, id.0, user.0, patch.name, patch.relay_eligible, now.0)
}

pub(super) fn forget_device(user: UserId, id: DeviceId, now: EpochMs) -> Call {
    call!(FORGET_DEVICE, id.0, user.0, now.0)
}

pub(super) fn look_up(ids: &[DeviceId]) -> Call {
    call!(LOOK_UP, ids.iter().map(|id| id.0).collect::<Vec<Uuid>>())
}

/// Of several writes for one device the last is sent.
pub(super) fn write_statuses(writes: &[StatusWrite], instance: RelayInstanceId) -> Call {
    let latest: BTreeMap<DeviceId, &StatusWrite> = writes.iter().map(|write| (write.device, write)).collect();
    let ids: Vec<Uuid> = latest.keys().map(|device| device.0).collect();
    let statuses: Vec<&'static str> = latest.values().map(|write| write.status.as_str()).collect();
    let times: Vec<i64> = latest.values().map(|write| write.at.0).collect();
    call!(WRITE_STATUSES, ids, statuses, times, instance.0)
}

pub(super) fn disconnect_stale(instance: RelayInstanceId, at: EpochMs, devices_max: i64) -> Call {
    call!(DISCONNECT_STALE, instance.0, at.0, devices_max)
}

pub(super) fn minimum_protocol_rules() -> Call {
    call!(MINIMUM_PROTOCOL_RULES)
}

/// Reads a table, so that a database whose schema was dropped does not count as there.
pub(super) fn ping() -> Call {
    call!("SELECT max(version) FROM schema_migrations")
}

pub(super) fn upserted(row: &Row) -> Result<Upserted, StoreError> {
    Ok(Upserted { device: device(row)?, created: column::<i64>(row, "registrations")? == 1 })
}

pub(super) fn facts(row: &Row) -> Result<DeviceFacts, StoreError> {
    Ok(DeviceFacts {
        id: DeviceId(column(row, "id")?),
        user: UserId(column(row, "user_id")?),
        role: column::<&str>(row, "role")?.parse().map_err(|error: <Role as std::str::FromStr>::Err| unreadable("role", error))?,
        relay_eligible: column(row, "relay_eligible")?,
    })
}

pub(super) fn device(row: &Row) -> Result<Device, StoreError> {
    Ok(Device {
        facts: facts(row)?,
        name: column(row, "name")?,
        platform: column(row, "platform")?,
        app_version: column(row, "app_version")?,
        status: column::<&str>(row, "status").and_then(presence)?,
        status_at: column::<Option<i64>>(row, "status_at")?.map(EpochMs),
        created_at: EpochMs(column(row, "created_at")?),
        updated_at: EpochMs(column(row, "updated_at")?),
    })
}

pub(super) fn minimum_protocol_rule(row: &Row) -> Result<MinimumProtocolRule, StoreError> {
    Ok(MinimumProtocolRule { minimum_relay_protocol_version: column(row, "minimum_relay_protocol_version")? })
}

pub(super) fn column<'row, T: FromSql<'row>>(row: &'row Row, name: &str) -> Result<T, StoreError> {
    row.try_get(name).map_err(|error| unreadable(name, error))
}

fn presence(text: &str) -> Result<Presence, StoreError> {
    let all = [Presence::Online, Presence::Reconnecting, Presence::Disconnected];
    all.into_iter().find(|presence| presence.as_str() == text).ok_or_else(|| unreadable("status", "unknown word"))
}

fn unreadable(column: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError::Unavailable(format!("column {column} cannot be read: {error}"))
}
