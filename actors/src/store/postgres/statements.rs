//! The SQL of each store call, and what its rows mean. Each call is one statement, whatever the size of the batch, and atomic
//! under concurrency by itself: no decision is made here on what an earlier statement read. What counts the rows of an account takes
//! the account's lock first, since a statement does not see what others have not committed.
//!
//! Statements that lock several rows take them in the order of their ids, so that two of them wait for each other and never both.

use crate::{
    clock::EpochMs,
    store::{Device, DevicePatch, DeviceWrite, MinimumProtocolRule, PresenceChange, StatusWrite, StoreError, Upserted},
};
use relay_protocol::{
    device::{DeviceFacts, PresenceReason},
    id::{DeviceId, RelayInstanceId, UserId},
    limits::{DEVICES_PER_ACCOUNT_MAX, PRESENCE_HISTORY_MAX},
};
use std::{collections::BTreeMap, fmt, str::FromStr};
use tokio_postgres::{
    Row,
    types::{FromSql, ToSql},
};
use uuid::Uuid;

/// What statements that would not see each other take turns by.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lock {
    /// Whatever counts the rows of one account.
    Account(UserId),
    /// Whatever gives push tokens to devices or takes them away with the device.
    PushTokens,
}

/// A statement with its parameters.
pub(super) struct Call {
    pub(super) sql: &'static str,
    pub(super) parameters: Vec<Box<dyn ToSql + Send + Sync>>,
    /// Statements with the same lock run one after the other, each in a transaction of its own.
    pub(super) lock: Option<Lock>,
    /// Whether the statement has one more parameter, true when it is sent for the second time: what it finds done at its own time is
    /// its own doing, whose answer was lost, and is answered as such.
    pub(super) is_told_of_repeat: bool,
}

impl Call {
    pub(super) fn under_lock_of(self, user: UserId) -> Self {
        Call { lock: Some(Lock::Account(user)), ..self }
    }

    pub(super) fn under_lock_of_tokens(self) -> Self {
        Call { lock: Some(Lock::PushTokens), ..self }
    }

    pub(super) fn told_of_repeat(self) -> Self {
        Call { is_told_of_repeat: true, ..self }
    }
}

macro_rules! call {
    ($sql:expr $(, $parameter:expr)* $(,)?) => {
        Call { sql: $sql, parameters: vec![$(Box::new($parameter)),*], lock: None, is_told_of_repeat: false }
    };
}
pub(super) use call;

// Columns by name: a prepared `*` fails for good when a newer relay, beside this one during a deploy, adds a column.
macro_rules! device_columns {
    () => {
        "id, user_id, role, name, platform, app_version, relay_eligible, status, status_at, created_at, updated_at"
    };
}

/// The row of another account, and a new row of an account that has enough, come back as no row. A device that returns begins with
/// no history: what is left of its former one was written while it was being forgotten.
const UPSERT_DEVICE: &str = concat!(
    "WITH cleared AS (DELETE FROM presence_history USING devices WHERE devices.id = $1::uuid AND devices.user_id = $2::uuid \
     AND devices.forgotten_at IS NOT NULL AND presence_history.device_id = devices.id) \
     INSERT INTO devices AS stored (id, user_id, role, name, platform, app_version, relay_eligible, created_at, updated_at) \
     SELECT $1::uuid, $2::uuid, $3::text, $4::text, $5::text, $6::text, coalesce($7::boolean, true), $8::bigint, $8::bigint \
     WHERE EXISTS (SELECT FROM devices WHERE id = $1::uuid) OR (SELECT count(*) FROM devices WHERE user_id = $2::uuid) < $9::bigint \
     ON CONFLICT (id) DO UPDATE SET role = excluded.role, name = excluded.name, platform = excluded.platform, \
     app_version = excluded.app_version, updated_at = excluded.updated_at, forgotten_at = NULL, \
     relay_eligible = coalesce($7::boolean, stored.relay_eligible OR stored.forgotten_at IS NOT NULL), \
     status = CASE WHEN stored.forgotten_at IS NULL THEN stored.status ELSE 'disconnected' END, \
     status_at = CASE WHEN stored.forgotten_at IS NULL THEN stored.status_at END, \
     status_instance = CASE WHEN stored.forgotten_at IS NULL THEN stored.status_instance END, \
     registrations = CASE WHEN stored.forgotten_at IS NOT NULL THEN 1 \
     WHEN $10::boolean AND stored.updated_at = $8::bigint THEN stored.registrations ELSE stored.registrations + 1 END \
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

const FORGET_DEVICE: &str = "WITH forgotten AS (UPDATE devices SET forgotten_at = $3, updated_at = $3 \
     WHERE id = $1 AND user_id = $2 AND (forgotten_at IS NULL OR $4::boolean AND forgotten_at = $3) RETURNING id), \
     dropped AS (DELETE FROM presence_history USING forgotten WHERE device_id = forgotten.id), \
     untold AS (DELETE FROM push_tokens USING forgotten WHERE device_id = forgotten.id) SELECT id FROM forgotten";

const IS_KNOWN: &str = "SELECT FROM devices WHERE id = $1";

pub(super) const LOOK_UP: &str =
    "SELECT id, user_id, role, relay_eligible FROM devices WHERE id = ANY($1::uuid[]) AND forgotten_at IS NULL";

/// What is too old is found before the new rows are seen, hence the one less, unless the change is there already.
const WRITE_STATUSES: &str = "WITH locked AS MATERIALIZED (SELECT id FROM devices WHERE id = ANY($1::uuid[]) \
     AND (status_instance IS DISTINCT FROM $4::uuid OR status_write < $7::bigint) ORDER BY id FOR NO KEY UPDATE), \
     latest AS (SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[], $5::text[]) AS latest (id, status, at, reason) \
     JOIN locked USING (id)), \
     marked AS (UPDATE devices SET status = latest.status, status_at = latest.at, status_instance = $4::uuid, \
     status_write = $7::bigint FROM latest WHERE devices.id = latest.id RETURNING devices.id, devices.forgotten_at), \
     recorded AS (INSERT INTO presence_history (device_id, at, status, reason, instance) \
     SELECT id, latest.at, latest.status, latest.reason, $4::uuid FROM latest JOIN marked USING (id) WHERE marked.forgotten_at IS NULL \
     ON CONFLICT (device_id, at) DO UPDATE SET status = excluded.status, reason = excluded.reason, instance = excluded.instance), \
     stays AS (SELECT latest.id, (SELECT at FROM presence_history WHERE device_id = latest.id ORDER BY at DESC LIMIT 1 \
     OFFSET $6::bigint - CASE WHEN EXISTS (SELECT FROM presence_history WHERE device_id = latest.id AND at = latest.at) THEN 1 ELSE 2 END) \
     AS oldest FROM latest) \
     DELETE FROM presence_history AS old USING stays WHERE old.device_id = stays.id AND old.at < stays.oldest";

/// A row may have changed between the moment that the statement sees and the lock: then the lock judges the conditions again.
const DISCONNECT_STALE: &str = "WITH locked AS MATERIALIZED (SELECT id FROM devices WHERE status <> 'disconnected' \
     AND status_instance IS DISTINCT FROM $1::uuid AND forgotten_at IS NULL \
     AND NOT EXISTS (SELECT 1 FROM relay_processes AS live WHERE live.instance = devices.status_instance \
     AND live.expires_at > extract(epoch FROM clock_timestamp()) * 1000) ORDER BY id LIMIT $3::bigint FOR NO KEY UPDATE), \
     ended AS (UPDATE devices SET status = 'disconnected', status_at = $2, status_instance = $1::uuid, status_write = 0 FROM locked \
     WHERE devices.id = locked.id RETURNING devices.id), \
     recorded AS (INSERT INTO presence_history (device_id, at, status, reason, instance) \
     SELECT id, $2, 'disconnected', $4::text, $1::uuid FROM ended \
     ON CONFLICT (device_id, at) DO UPDATE SET status = excluded.status, reason = excluded.reason, instance = excluded.instance), \
     stays AS (SELECT ended.id, (SELECT at FROM presence_history WHERE device_id = ended.id ORDER BY at DESC LIMIT 1 \
     OFFSET $5::bigint - 2) AS oldest FROM ended), \
     pruned AS (DELETE FROM presence_history AS old USING stays WHERE old.device_id = stays.id AND old.at < stays.oldest) \
     SELECT count(*) AS ended FROM ended";

pub(super) const PRESENCE_HISTORY: &str = "SELECT history.at, history.status, history.reason, history.instance \
     FROM presence_history AS history JOIN devices ON devices.id = history.device_id AND devices.forgotten_at IS NULL \
     WHERE history.device_id = $1 AND history.at < coalesce($2::bigint, 9223372036854775807) ORDER BY history.at DESC LIMIT $3::bigint";

const MINIMUM_PROTOCOL_RULES: &str =
    "SELECT minimum_relay_protocol_version FROM compatibility_rules WHERE minimum_relay_protocol_version IS NOT NULL ORDER BY id";

pub(super) fn upsert_device(write: DeviceWrite, now: EpochMs) -> Call {
    let DeviceWrite { id, user, role, name, platform, app_version, relay_eligible } = write;
    let devices_max = i64::from(DEVICES_PER_ACCOUNT_MAX);
    call!(UPSERT_DEVICE, id.0, user.0, role.as_str(), name, platform, app_version, relay_eligible, now.0, devices_max)
        .under_lock_of(user)
        .told_of_repeat()
}

/// A row for any account's device, forgotten or not.
pub(super) fn is_known(id: DeviceId) -> Call {
    call!(IS_KNOWN, id.0)
}

pub(super) fn devices_of(user: UserId) -> Call {
    call!(DEVICES_OF, user.0)
}

pub(super) fn patch_device(user: UserId, id: DeviceId, patch: DevicePatch, now: EpochMs) -> Call {
    call!(PATCH_DEVICE, id.0, user.0, patch.name, patch.relay_eligible, now.0)
}

pub(super) fn forget_device(user: UserId, id: DeviceId, now: EpochMs) -> Call {
    call!(FORGET_DEVICE, id.0, user.0, now.0).under_lock_of_tokens().told_of_repeat()
}

pub(super) fn look_up(ids: &[DeviceId]) -> Call {
    call!(LOOK_UP, ids.iter().map(|id| id.0).collect::<Vec<Uuid>>())
}

/// Of several writes for one device the last is sent. What a write of this instance with a higher number has stored stays.
pub(super) fn write_statuses(writes: &[StatusWrite], instance: RelayInstanceId, number: i64) -> Call {
    let latest: BTreeMap<DeviceId, &StatusWrite> = writes.iter().map(|write| (write.device, write)).collect();
    let ids: Vec<Uuid> = latest.keys().map(|device| device.0).collect();
    let statuses: Vec<&'static str> = latest.values().map(|write| write.status.as_str()).collect();
    let times: Vec<i64> = latest.values().map(|write| write.at.0).collect();
    let reasons: Vec<&'static str> = latest.values().map(|write| write.reason.as_str()).collect();
    call!(WRITE_STATUSES, ids, statuses, times, instance.0, reasons, i64::from(PRESENCE_HISTORY_MAX), number)
}

pub(super) fn disconnect_stale(instance: RelayInstanceId, at: EpochMs, devices_max: i64) -> Call {
    let reason = PresenceReason::GraceElapsed.as_str();
    call!(DISCONNECT_STALE, instance.0, at.0, devices_max, reason, i64::from(PRESENCE_HISTORY_MAX))
}

pub(super) fn presence_history(device: DeviceId, before: Option<EpochMs>, limit: u32) -> Call {
    call!(PRESENCE_HISTORY, device.0, before.map(|before| before.0), i64::from(limit))
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
        role: word(row, "role")?,
        relay_eligible: column(row, "relay_eligible")?,
    })
}

pub(super) fn device(row: &Row) -> Result<Device, StoreError> {
    Ok(Device {
        facts: facts(row)?,
        name: column(row, "name")?,
        platform: column(row, "platform")?,
        app_version: column(row, "app_version")?,
        status: word(row, "status")?,
        status_at: column::<Option<i64>>(row, "status_at")?.map(EpochMs),
        created_at: EpochMs(column(row, "created_at")?),
        updated_at: EpochMs(column(row, "updated_at")?),
    })
}

pub(super) fn presence_change(row: &Row) -> Result<PresenceChange, StoreError> {
    Ok(PresenceChange {
        status: word(row, "status")?,
        reason: word(row, "reason")?,
        at: EpochMs(column(row, "at")?),
        instance: RelayInstanceId(column(row, "instance")?),
    })
}

pub(super) fn minimum_protocol_rule(row: &Row) -> Result<MinimumProtocolRule, StoreError> {
    Ok(MinimumProtocolRule { minimum_relay_protocol_version: column(row, "minimum_relay_protocol_version")? })
}

pub(super) fn column<'row, T: FromSql<'row>>(row: &'row Row, name: &str) -> Result<T, StoreError> {
    row.try_get(name).map_err(|error| unreadable(name, error))
}

/// A column whose text has a type of its own.
pub(super) fn word<T>(row: &Row, name: &str) -> Result<T, StoreError>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    column::<&str>(row, name)?.parse().map_err(|error| unreadable(name, error))
}

fn unreadable(column: &str, error: impl fmt::Display) -> StoreError {
    StoreError::Unavailable(format!("column {column} cannot be read: {error}"))
}
