//! The SQL of push tokens.

use super::statements::{parsed, writing};
use crate::{
    clock::EpochMs,
    store::{PUSH_TARGETS_MAX, PushClaim, PushTarget},
};
use relay_protocol::{
    device::Role,
    id::{DeviceId, UserId},
    push::PushAddress,
};
use rusqlite::{Connection, OptionalExtension, Row};

/// Rows of phones that may take pushes now.
macro_rules! targets {
    ($condition:literal) => {
        concat!(
            "SELECT device_id, provider, token, environment, app_id, claimed_at FROM push_tokens JOIN devices ON devices.id = device_id \
             WHERE devices.forgotten_at IS NULL AND devices.role = 'mobile' AND devices.relay_eligible = 1 AND ",
            $condition
        )
    };
}

pub(super) const TARGETS: &str = targets!("devices.user_id = ?1 ORDER BY claimed_at DESC, device_id LIMIT ?2");

pub(super) const TARGET: &str = targets!("devices.id = ?1");

const CLAIM: &str = "INSERT INTO push_tokens AS stored (device_id, provider, token, environment, app_id, claimed_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (device_id) DO UPDATE SET provider = excluded.provider, token = excluded.token, \
     environment = excluded.environment, app_id = excluded.app_id, claimed_at = max(excluded.claimed_at, stored.claimed_at + 1)";

pub(super) fn claim(
    connection: &mut Connection,
    user: UserId,
    device: DeviceId,
    address: &PushAddress,
    now: EpochMs,
) -> rusqlite::Result<PushClaim> {
    let transaction = writing(connection)?;
    let role: Option<Role> = transaction
        .prepare_cached("SELECT role FROM devices WHERE id = ?1 AND user_id = ?2 AND forgotten_at IS NULL")?
        .query_one((device.to_string(), user.to_string()), |row| parsed(row, "role"))
        .optional()?;
    match role {
        None => return Ok(PushClaim::NoSuchDevice),
        Some(Role::Desktop) => return Ok(PushClaim::NotAPhone),
        Some(Role::Mobile) => {}
    }
    let PushAddress { provider, token, environment, app_id } = address;
    let moved_from = transaction
        .prepare_cached("DELETE FROM push_tokens WHERE provider = ?1 AND token = ?2 AND device_id <> ?3 RETURNING device_id")?
        .query_one((provider.as_str(), token.expose(), device.to_string()), |row| parsed(row, "device_id"))
        .optional()?;
    let app_id = app_id.as_ref().map(|app| app.as_str());
    transaction.prepare_cached(CLAIM)?.execute((
        device.to_string(),
        provider.as_str(),
        token.expose(),
        environment.as_str(),
        app_id,
        now.0,
    ))?;
    transaction.commit()?;
    Ok(PushClaim::Claimed { moved_from })
}

/// Of one device, or of all of the account.
pub(super) fn release(connection: &Connection, user: UserId, device: Option<DeviceId>) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(
            "DELETE FROM push_tokens WHERE device_id IN (SELECT id FROM devices WHERE user_id = ?1 AND (?2 IS NULL OR id = ?2))",
        )?
        .execute((user.to_string(), device.map(|device| device.to_string())))
}

/// Inside its caller's transaction.
pub(super) fn forget(connection: &Connection, device: DeviceId) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM push_tokens WHERE device_id = ?1")?.execute([device.to_string()])?;
    Ok(())
}

pub(super) fn targets(connection: &Connection, user: UserId) -> rusqlite::Result<Vec<PushTarget>> {
    connection.prepare_cached(TARGETS)?.query_map((user.to_string(), PUSH_TARGETS_MAX), target)?.collect()
}

pub(super) fn target_of(connection: &Connection, device: DeviceId) -> rusqlite::Result<Option<PushTarget>> {
    connection.prepare_cached(TARGET)?.query_one([device.to_string()], target).optional()
}

pub(super) fn drop_claim(connection: &Connection, device: DeviceId, claimed_at: EpochMs) -> rusqlite::Result<bool> {
    let dropped = connection
        .prepare_cached("DELETE FROM push_tokens WHERE device_id = ?1 AND claimed_at = ?2")?
        .execute((device.to_string(), claimed_at.0))?;
    Ok(dropped > 0)
}

fn target(row: &Row<'_>) -> rusqlite::Result<PushTarget> {
    Ok(PushTarget {
        device: parsed(row, "device_id")?,
        address: PushAddress {
            provider: parsed(row, "provider")?,
            token: parsed(row, "token")?,
            environment: parsed(row, "environment")?,
            app_id: row.get::<_, Option<String>>("app_id")?.map(|_| parsed(row, "app_id")).transpose()?,
        },
        claimed_at: EpochMs(row.get("claimed_at")?),
    })
}
