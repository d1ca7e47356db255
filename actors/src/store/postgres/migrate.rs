//! This backend's migrations, and how they are applied: in one transaction, behind an advisory lock that makes processes which open
//! one database at the same moment take turns.

use super::error::{describe, passes};
use crate::{
    clock::EpochMs,
    store::migrate::{MigrateError, Migration, MigrationReport, Recorded, plan},
};
use deadpool_postgres::Object;
use std::time::Duration;
use tokio_postgres::Transaction;

/// All of this backend's migrations, in order.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "devices", sql: include_str!("../../../../migrations/postgres/0001_devices.sql") },
    Migration {
        version: 2,
        name: "compatibility_rules",
        sql: include_str!("../../../../migrations/postgres/0002_compatibility_rules.sql"),
    },
    Migration { version: 3, name: "presence_history", sql: include_str!("../../../../migrations/postgres/0003_presence_history.sql") },
    Migration { version: 4, name: "api_keys", sql: include_str!("../../../../migrations/postgres/0004_api_keys.sql") },
    Migration { version: 5, name: "relay_processes", sql: include_str!("../../../../migrations/postgres/0005_relay_processes.sql") },
    Migration { version: 6, name: "push_tokens", sql: include_str!("../../../../migrations/postgres/0006_push_tokens.sql") },
];

/// The advisory lock of migrations, of this database only: "relaymig" in ASCII.
pub(super) const LOCK: i64 = 0x7265_6c61_796d_6967;

/// How long another process may migrate, or others hold a table, before this one asks anew.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Why nothing was applied.
#[derive(Debug)]
pub(super) enum Failure {
    /// The same may succeed later.
    Passing(String),
    /// It will not.
    Final(MigrateError),
}

/// A failure of the database in a step that is named when it is a migration's own.
fn failed(step: Option<&Migration>, error: &tokio_postgres::Error) -> Failure {
    let cause = step.map_or_else(|| describe(error), |migration| format!("{migration}: {}", describe(error)));
    if passes(error) { Failure::Passing(cause) } else { Failure::Final(MigrateError::Failed(cause)) }
}

/// Applies what is missing.
pub(super) async fn apply(connection: &mut Object, known: &[Migration]) -> Result<MigrationReport, Failure> {
    let database = |error| failed(None, &error);
    // The wrapper's own transaction has a cache of statements that nothing here needs.
    let transaction = tokio_postgres::Client::transaction(&mut *connection).await.map_err(database)?;
    // A migration may take its time; only waiting for others is bounded.
    let limits = format!("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {}", LOCK_TIMEOUT.as_millis());
    transaction.batch_execute(&limits).await.map_err(database)?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await.map_err(database)?;
    transaction
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS schema_migrations (version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, \
             applied_at bigint NOT NULL)",
        )
        .await
        .map_err(database)?;
    let recorded = recorded(&transaction).await.map_err(database)?;
    let report = plan(known, &recorded).map_err(Failure::Final)?;
    for migration in &report.applied {
        let named = |error| failed(Some(migration), &error);
        transaction.batch_execute(migration.sql).await.map_err(named)?;
        let version = i32::try_from(migration.version).unwrap_or(i32::MAX);
        transaction
            .execute(
                "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES ($1, $2, $3, $4)",
                &[&version, &migration.name, &migration.checksum(), &EpochMs::now().0],
            )
            .await
            .map_err(named)?;
    }
    transaction.commit().await.map_err(database)?;
    Ok(report)
}

async fn recorded(transaction: &Transaction<'_>) -> Result<Vec<Recorded>, tokio_postgres::Error> {
    let rows = transaction.query("SELECT version, name, checksum FROM schema_migrations ORDER BY version", &[]).await?;
    rows.iter()
        .map(|row| {
            let version: i32 = row.try_get(0)?;
            Ok(Recorded { version: u32::try_from(version).unwrap_or(0), name: row.try_get(1)?, checksum: row.try_get(2)? })
        })
        .collect()
}
