//! The SQL of presence history. Every statement runs inside its caller's transaction.

use super::statements::parsed;
use crate::{clock::EpochMs, store::PresenceChange};
use relay_protocol::{
    device::PresenceReason,
    id::{DeviceId, RelayInstanceId},
    limits::PRESENCE_HISTORY_MAX,
};
use rusqlite::Connection;

/// The same changes once more meet their own rows.
const RECORD: &str = "INSERT INTO presence_history (device_id, at, status, reason, instance) \
     SELECT devices.id, latest.value ->> 2, latest.value ->> 1, latest.value ->> 3, ?2 \
     FROM json_each(?1) AS latest JOIN devices ON devices.id = latest.value ->> 0 WHERE devices.forgotten_at IS NULL \
     ON CONFLICT (device_id, at) DO UPDATE SET status = excluded.status, reason = excluded.reason, instance = excluded.instance";

/// Seeks the oldest row that stays, then deletes what is before it: a device with few rows costs one short scan of its own.
pub(super) const PRUNE: &str = "DELETE FROM presence_history WHERE (device_id, at) IN (\
     SELECT old.device_id, old.at FROM json_each(?1) AS latest \
     CROSS JOIN presence_history AS old ON old.device_id = latest.value ->> 0 AND old.at < (\
     SELECT at FROM presence_history WHERE device_id = latest.value ->> 0 ORDER BY at DESC LIMIT 1 OFFSET ?2))";

pub(super) const READ: &str = "SELECT at, status, reason, instance FROM presence_history \
     WHERE device_id = ?1 AND at < coalesce(?2, 9223372036854775807) ORDER BY at DESC LIMIT ?3";

/// Adds these changes, a list as `statements::status_list` makes it, and drops what is too old for their devices.
pub(super) fn record(connection: &Connection, changes: &str, instance: RelayInstanceId) -> rusqlite::Result<()> {
    connection.prepare_cached(RECORD)?.execute((changes, instance.to_string()))?;
    connection.prepare_cached(PRUNE)?.execute((changes, PRESENCE_HISTORY_MAX - 1))?;
    Ok(())
}

pub(super) fn forget(connection: &Connection, device: DeviceId) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM presence_history WHERE device_id = ?1")?.execute([device.to_string()])?;
    Ok(())
}

pub(super) fn read(
    connection: &Connection,
    device: DeviceId,
    before: Option<EpochMs>,
    limit: u32,
) -> rusqlite::Result<Vec<PresenceChange>> {
    connection
        .prepare_cached(READ)?
        .query_map((device.to_string(), before.map(|before| before.0), limit), |row| {
            Ok(PresenceChange {
                status: parsed(row, "status")?,
                reason: parsed::<PresenceReason>(row, "reason")?,
                at: EpochMs(row.get("at")?),
                instance: parsed(row, "instance")?,
            })
        })?
        .collect()
}
