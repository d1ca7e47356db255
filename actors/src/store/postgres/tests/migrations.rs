//! Migrations against a server.

use super::{super::migrate::LOCK, super::migrate::MIGRATIONS, *};
use crate::store::migrate::{MigrateError, Migration};
use futures_util::future::join_all;

async fn refusal(database: &Database) -> MigrateError {
    match PostgresStore::open(&database.settings(), POOL_SIZE).await {
        Err(OpenError::Migrate { error, .. }) => error,
        Err(other) => panic!("{other}"),
        Ok(_store) => panic!("it was opened"),
    }
}

async fn tables(database: &Database) -> Vec<String> {
    let columns = "SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1";
    database.client().await.query(columns, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn migrations_are_numbered_without_gaps_and_reported() {
    let versions: Vec<_> = MIGRATIONS.iter().map(|migration| migration.version).collect();
    assert_eq!(versions, (1..=u32::try_from(MIGRATIONS.len()).unwrap()).collect::<Vec<_>>());
    let database = Database::create().await;
    let present = || MigrationReport { present: MIGRATIONS.to_vec(), applied: vec![] };
    assert_eq!(migrate(&database.settings()).await.unwrap(), MigrationReport { present: vec![], applied: MIGRATIONS.to_vec() });
    assert_eq!(migrate(&database.settings()).await.unwrap(), present());
    assert_eq!(*PostgresStore::open(&database.settings(), POOL_SIZE).await.unwrap().migrations(), present());
}

#[tokio::test]
async fn a_database_that_a_newer_relay_has_used_is_refused_untouched() {
    let database = Database::create().await;
    migrate(&database.settings()).await.unwrap();
    let later = "INSERT INTO schema_migrations VALUES (9999, 'later', 'x', 0); DROP TABLE compatibility_rules";
    database.client().await.batch_execute(later).await.unwrap();
    let before = tables(&database).await;
    let refused = refusal(&database).await;
    assert_eq!(refused, MigrateError::NewerDatabase { database: 9999, binary: MIGRATIONS.last().unwrap().version });
    assert_eq!(tables(&database).await, before);
}

#[tokio::test]
async fn a_migration_that_was_applied_from_another_file_is_refused() {
    let database = Database::create().await;
    migrate(&database.settings()).await.unwrap();
    database.client().await.execute("UPDATE schema_migrations SET checksum = 'x' WHERE version = 2", &[]).await.unwrap();
    assert_eq!(refusal(&database).await, MigrateError::Changed { migration: "0002_compatibility_rules".into() });
}

#[tokio::test]
async fn a_migration_that_fails_changes_nothing() {
    const BROKEN: [Migration; 2] = [
        Migration { version: 1, name: "good", sql: "CREATE TABLE good (x integer)" },
        Migration { version: 2, name: "bad", sql: "CREATE TABLE bad (x integer); SELECT 1 / 0" },
    ];
    let database = Database::create().await;
    let opened = open::open(&database.settings(), POOL_SIZE, &BROKEN, open::START_WAIT).await;
    let Err(OpenError::Migrate { error: MigrateError::Failed(cause), .. }) = opened else { panic!("it was opened") };
    assert!(cause.contains("0002_bad") && cause.contains("division by zero"), "{cause}");
    assert_eq!(tables(&database).await, Vec::<String>::new());
}

#[tokio::test]
async fn stores_that_open_an_empty_database_at_once_take_turns() {
    let database = Database::create().await;
    // Holds all of them back at the lock, so that they are at it together.
    let holder = database.client().await;
    holder.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await.unwrap();
    let opening: Vec<_> = (0..4)
        .map(|_| {
            let settings = database.settings();
            tokio::spawn(async move { PostgresStore::open(&settings, POOL_SIZE).await.unwrap() })
        })
        .collect();
    database.wait_for_blocked(4).await;
    assert_eq!(tables(&database).await, Vec::<String>::new());
    holder.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await.unwrap();
    let stores: Vec<PostgresStore> = join_all(opening).await.into_iter().map(Result::unwrap).collect();
    let migrated = stores.iter().filter(|store| !store.migrations().applied.is_empty()).count();
    assert_eq!(migrated, 1, "one migrates, the others find it done");
    for (device, store) in (1..).zip(&stores) {
        store.upsert_device(write(device), NOW).await.unwrap();
    }
    assert_eq!(stores[0].devices_of(user()).await.unwrap().len(), stores.len());
}
