//! The SQL of compatibility rules.

use super::statements::parsed;
use crate::{clock::EpochMs, store::CompatibilityRule};
use relay_protocol::compatibility::{RuleId, RuleSpec};
use rusqlite::{Connection, OptionalExtension, Row};

pub(super) fn list(connection: &Connection) -> rusqlite::Result<Vec<CompatibilityRule>> {
    connection.prepare_cached("SELECT * FROM compatibility_rules ORDER BY id")?.query_map((), rule)?.collect()
}

/// One statement counts and inserts, so that no other can come in between.
pub(super) fn add(connection: &Connection, spec: &RuleSpec, now: EpochMs, rules_max: u32) -> rusqlite::Result<Option<RuleId>> {
    let RuleSpec {
        kind,
        client,
        platform,
        min_app_version,
        max_app_version,
        pair_min_app_version,
        minimum_relay_protocol_version,
        message,
    } = spec;
    connection
        .prepare_cached(
            "INSERT INTO compatibility_rules (kind, client, platform, min_app_version, max_app_version, pair_min_app_version, \
             minimum_relay_protocol_version, message, created_at) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 \
             WHERE (SELECT count(*) FROM compatibility_rules) < ?10 RETURNING id",
        )?
        .query_one(
            (
                kind.as_str(),
                client.as_str(),
                platform,
                min_app_version,
                max_app_version,
                pair_min_app_version,
                minimum_relay_protocol_version,
                message,
                now.0,
                rules_max,
            ),
            |row| row.get("id").map(RuleId),
        )
        .optional()
}

pub(super) fn remove(connection: &Connection, id: RuleId) -> rusqlite::Result<bool> {
    Ok(connection.prepare_cached("DELETE FROM compatibility_rules WHERE id = ?1")?.execute([id.0])? > 0)
}

fn rule(row: &Row<'_>) -> rusqlite::Result<CompatibilityRule> {
    let spec = RuleSpec {
        kind: parsed(row, "kind")?,
        client: parsed(row, "client")?,
        platform: row.get("platform")?,
        min_app_version: row.get("min_app_version")?,
        max_app_version: row.get("max_app_version")?,
        pair_min_app_version: row.get("pair_min_app_version")?,
        minimum_relay_protocol_version: row.get("minimum_relay_protocol_version")?,
        message: row.get("message")?,
    };
    Ok(CompatibilityRule { id: RuleId(row.get("id")?), spec, created_at: EpochMs(row.get("created_at")?) })
}
