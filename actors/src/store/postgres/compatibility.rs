//! The SQL of compatibility rules.

use super::statements::{Call, call, column, word};
use crate::{
    clock::EpochMs,
    store::{CompatibilityRule, StoreError},
};
use relay_protocol::compatibility::{RuleId, RuleSpec};
use tokio_postgres::Row;

const LIST: &str = "SELECT id, kind, client, platform, min_app_version, max_app_version, pair_min_app_version, \
     minimum_relay_protocol_version, message, created_at FROM compatibility_rules ORDER BY id";

/// Sent again, it takes the same rule of the same time for its own. No row comes back when there are as many as there may be.
const ADD: &str = "WITH earlier AS (SELECT id FROM compatibility_rules WHERE $11::boolean AND created_at = $9::bigint \
     AND (kind, client, platform, min_app_version, max_app_version, pair_min_app_version, minimum_relay_protocol_version, message) \
     IS NOT DISTINCT FROM ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::text)), \
     added AS (INSERT INTO compatibility_rules (kind, client, platform, min_app_version, max_app_version, pair_min_app_version, \
     minimum_relay_protocol_version, message, created_at) SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, \
     $8::text, $9::bigint WHERE NOT EXISTS (SELECT FROM earlier) AND (SELECT count(*) FROM compatibility_rules) < $10::bigint \
     RETURNING id) SELECT id FROM earlier UNION ALL SELECT id FROM added";

/// Sent again, it takes it for its own doing that the rule is gone.
const REMOVE: &str = "WITH removed AS (DELETE FROM compatibility_rules WHERE id = $1::bigint RETURNING id) \
     SELECT id FROM removed UNION ALL SELECT $1::bigint WHERE $2::boolean";

pub(super) fn list() -> Call {
    call!(LIST)
}

pub(super) fn add(spec: RuleSpec, now: EpochMs, rules_max: u32) -> Call {
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
    call!(
        ADD,
        kind.as_str(),
        client.as_str(),
        platform,
        min_app_version,
        max_app_version,
        pair_min_app_version,
        minimum_relay_protocol_version,
        message,
        now.0,
        i64::from(rules_max),
    )
    .told_of_repeat()
}

pub(super) fn remove(id: RuleId) -> Call {
    call!(REMOVE, id.0).told_of_repeat()
}

pub(super) fn id(row: &Row) -> Result<RuleId, StoreError> {
    column(row, "id").map(RuleId)
}

pub(super) fn rule(row: &Row) -> Result<CompatibilityRule, StoreError> {
    let spec = RuleSpec {
        kind: word(row, "kind")?,
        client: word(row, "client")?,
        platform: column(row, "platform")?,
        min_app_version: column(row, "min_app_version")?,
        max_app_version: column(row, "max_app_version")?,
        pair_min_app_version: column(row, "pair_min_app_version")?,
        minimum_relay_protocol_version: column(row, "minimum_relay_protocol_version")?,
        message: column(row, "message")?,
    };
    Ok(CompatibilityRule { id: id(row)?, spec, created_at: EpochMs(column(row, "created_at")?) })
}
