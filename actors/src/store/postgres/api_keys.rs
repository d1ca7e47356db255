//! The SQL of API keys.

use super::statements::{Call, call, column, word};
use crate::{
    clock::EpochMs,
    store::{ApiKey, ApiKeyHash, StoreError},
};
use relay_protocol::id::{ApiKeyId, UserId};
use tokio_postgres::Row;

/// The same key once more is the same row. No row comes back when the account has as many as it may.
const CREATE: &str = "INSERT INTO api_keys (id, user_id, hash, name, scopes, created_at) \
     SELECT $1::uuid, $2::uuid, $3::bytea, $4::text, $5::text, $6::bigint \
     WHERE (SELECT count(*) FROM api_keys WHERE user_id = $2::uuid AND revoked_at IS NULL AND id <> $1::uuid) < $7::bigint \
     ON CONFLICT (id) DO UPDATE SET hash = excluded.hash RETURNING id";

const LIST: &str =
    "SELECT id, user_id, name, scopes, created_at FROM api_keys WHERE user_id = $1 AND revoked_at IS NULL ORDER BY created_at, id";

const FIND: &str = "SELECT id, user_id, name, scopes, created_at FROM api_keys WHERE hash = $1 AND revoked_at IS NULL";

const REVOKE: &str = "UPDATE api_keys SET revoked_at = $3 \
     WHERE id = $1 AND user_id = $2 AND (revoked_at IS NULL OR $4::boolean AND revoked_at = $3) RETURNING id";

pub(super) fn create(key: ApiKey, hash: ApiKeyHash, live_max: u32) -> Call {
    let ApiKey { id, user, name, scopes, created_at } = key;
    let (hash, scopes, live_max) = (hash.0.to_vec(), scopes.to_string(), i64::from(live_max));
    call!(CREATE, id.0, user.0, hash, name, scopes, created_at.0, live_max).under_lock_of(user)
}

pub(super) fn list(user: UserId) -> Call {
    call!(LIST, user.0)
}

pub(super) fn find(hash: ApiKeyHash) -> Call {
    call!(FIND, hash.0.to_vec())
}

pub(super) fn revoke(user: UserId, id: ApiKeyId, now: EpochMs) -> Call {
    call!(REVOKE, id.0, user.0, now.0).told_of_repeat()
}

pub(super) fn api_key(row: &Row) -> Result<ApiKey, StoreError> {
    Ok(ApiKey {
        id: ApiKeyId(column(row, "id")?),
        user: UserId(column(row, "user_id")?),
        name: column(row, "name")?,
        scopes: word(row, "scopes")?,
        created_at: EpochMs(column(row, "created_at")?),
    })
}
