//! The SQL of push tokens. Claims take turns, all of them: one that takes a token away from another device, while that one takes this
//! one's, would otherwise wait for it in a circle, and two of one token would not see each other.

use super::statements::{Call, call, column, word};
use crate::{
    clock::EpochMs,
    store::{PUSH_TARGETS_MAX, PushClaim, PushTarget, StoreError},
};
use relay_protocol::{
    device::Role,
    id::{DeviceId, UserId},
    push::PushAddress,
};
use tokio_postgres::Row;

/// Rows of phones that may take pushes now.
macro_rules! targets {
    ($condition:literal) => {
        concat!(
            "SELECT device_id, provider, token, environment, app_id, claimed_at FROM push_tokens JOIN devices ON devices.id = device_id \
             WHERE devices.forgotten_at IS NULL AND devices.role = 'mobile' AND devices.relay_eligible AND ",
            $condition
        )
    };
}

pub(super) const TARGETS: &str = targets!("devices.user_id = $1 ORDER BY claimed_at DESC, device_id LIMIT $2::bigint");

const TARGET: &str = targets!("devices.id = $1");

/// That the former row goes first is what the count is for: the new one must not meet it. No row: no such device of the account.
const CLAIM: &str = "WITH own AS MATERIALIZED (SELECT id, role FROM devices \
     WHERE id = $1::uuid AND user_id = $2::uuid AND forgotten_at IS NULL), \
     moved AS (DELETE FROM push_tokens USING own WHERE own.role = 'mobile' AND provider = $3::text AND token = $4::text \
     AND device_id <> own.id RETURNING device_id), \
     claimed AS (INSERT INTO push_tokens AS stored (device_id, provider, token, environment, app_id, claimed_at) \
     SELECT id, $3::text, $4::text, $5::text, $6::text, $7::bigint FROM own WHERE role = 'mobile' AND (SELECT count(*) FROM moved) >= 0 \
     ON CONFLICT (device_id) DO UPDATE SET provider = excluded.provider, token = excluded.token, environment = excluded.environment, \
     app_id = excluded.app_id, claimed_at = greatest(excluded.claimed_at, stored.claimed_at + 1)) \
     SELECT role, (SELECT device_id FROM moved) AS moved_from FROM own";

const RELEASE: &str = "DELETE FROM push_tokens USING devices WHERE devices.id = device_id AND devices.user_id = $1::uuid \
     AND ($2::uuid IS NULL OR device_id = $2::uuid) RETURNING device_id";

const DROP: &str = "DELETE FROM push_tokens WHERE device_id = $1 AND claimed_at = $2 RETURNING device_id";

pub(super) fn claim(user: UserId, device: DeviceId, address: PushAddress, now: EpochMs) -> Call {
    let PushAddress { provider, token, environment, app_id } = address;
    let app_id = app_id.map(|app| app.as_str().to_owned());
    let token = token.expose().to_owned();
    call!(CLAIM, device.0, user.0, provider.as_str(), token, environment.as_str(), app_id, now.0).under_lock_of_tokens()
}

pub(super) fn claimed(rows: &[Row]) -> Result<PushClaim, StoreError> {
    let Some(row) = rows.first() else { return Ok(PushClaim::NoSuchDevice) };
    Ok(match word(row, "role")? {
        Role::Desktop => PushClaim::NotAPhone,
        Role::Mobile => PushClaim::Claimed { moved_from: column::<Option<_>>(row, "moved_from")?.map(DeviceId) },
    })
}

/// Of one device, or of all of the account.
pub(super) fn release(user: UserId, device: Option<DeviceId>) -> Call {
    call!(RELEASE, user.0, device.map(|device| device.0)).under_lock_of_tokens()
}

pub(super) fn targets(user: UserId) -> Call {
    call!(TARGETS, user.0, i64::from(PUSH_TARGETS_MAX))
}

pub(super) fn target_of(device: DeviceId) -> Call {
    call!(TARGET, device.0)
}

pub(super) fn drop_claim(device: DeviceId, claimed_at: EpochMs) -> Call {
    call!(DROP, device.0, claimed_at.0)
}

pub(super) fn target(row: &Row) -> Result<PushTarget, StoreError> {
    Ok(PushTarget {
        device: DeviceId(column(row, "device_id")?),
        address: PushAddress {
            provider: word(row, "provider")?,
            token: word(row, "token")?,
            environment: word(row, "environment")?,
            app_id: column::<Option<&str>>(row, "app_id")?.map(|_| word(row, "app_id")).transpose()?,
        },
        claimed_at: EpochMs(column(row, "claimed_at")?),
    })
}
