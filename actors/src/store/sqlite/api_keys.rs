//! The SQL of API keys.

use super::statements::parsed;
use crate::{
    clock::EpochMs,
    store::{ApiKey, ApiKeyHash},
};
use relay_protocol::id::{ApiKeyId, UserId};
use rusqlite::{Connection, OptionalExtension, Row};

pub(super) const LIST: &str = "SELECT * FROM api_keys WHERE user_id = ?1 AND revoked_at IS NULL ORDER BY created_at, id";

pub(super) const FIND: &str = "SELECT * FROM api_keys WHERE hash = ?1 AND revoked_at IS NULL";

/// One statement counts and inserts, so that no other can come in between.
pub(super) fn create(connection: &Connection, key: &ApiKey, hash: ApiKeyHash, live_max: u32) -> rusqlite::Result<bool> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO api_keys (id, user_id, hash, name, scopes, created_at) SELECT ?1, ?2, ?3, ?4, ?5, ?6 \
             WHERE (SELECT count(*) FROM api_keys WHERE user_id = ?2 AND revoked_at IS NULL) < ?7",
        )?
        .execute((key.id.to_string(), key.user.to_string(), hash.0, &key.name, key.scopes.to_string(), key.created_at.0, live_max))?;
    Ok(inserted > 0)
}

pub(super) fn list(connection: &Connection, user: UserId) -> rusqlite::Result<Vec<ApiKey>> {
    connection.prepare_cached(LIST)?.query_map([user.to_string()], api_key)?.collect()
}

pub(super) fn find(connection: &Connection, hash: ApiKeyHash) -> rusqlite::Result<Option<ApiKey>> {
    connection.prepare_cached(FIND)?.query_one([hash.0], api_key).optional()
}

pub(super) fn revoke(connection: &Connection, user: UserId, id: ApiKeyId, now: EpochMs) -> rusqlite::Result<bool> {
    let changed = connection
        .prepare_cached("UPDATE api_keys SET revoked_at = ?3 WHERE id = ?1 AND user_id = ?2 AND revoked_at IS NULL")?
        .execute((id.to_string(), user.to_string(), now.0))?;
    Ok(changed > 0)
}

fn api_key(row: &Row<'_>) -> rusqlite::Result<ApiKey> {
    Ok(ApiKey {
        id: parsed(row, "id")?,
        user: parsed(row, "user_id")?,
        name: row.get("name")?,
        scopes: parsed(row, "scopes")?,
        created_at: EpochMs(row.get("created_at")?),
    })
}
