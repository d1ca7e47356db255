//! The contract suite on SQLite, and what only a file can get wrong.

use super::{
    open::{MIGRATIONS, OpenError},
    *,
};
use crate::store::{
    contract::{Fixture, store_contract_suite},
    migrate::{MigrateError, Migration},
};
use futures_util::future::join_all;
use relay_protocol::device::{Presence, PresenceReason, Role};
use rusqlite::{Connection, params_from_iter};
use std::{os::unix::fs::PermissionsExt, path::PathBuf};
use tempfile::TempDir;
use uuid::Uuid;

struct SqliteFixture {
    store: SqliteStore,
    path: PathBuf,
    _directory: TempDir,
}

#[async_trait]
impl Fixture for SqliteFixture {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn add_rule(&self, kind: &str, client: &str, minimum_relay_protocol_version: Option<&str>) {
        Connection::open(&self.path)
            .unwrap()
            .execute(
                "INSERT INTO compatibility_rules (kind, client, minimum_relay_protocol_version, created_at) VALUES (?1, ?2, ?3, 0)",
                (kind, client, minimum_relay_protocol_version),
            )
            .unwrap();
    }

    async fn age_process(&self, instance: RelayInstanceId, by: Duration) {
        let age = "UPDATE relay_processes SET last_seen_at = last_seen_at - ?2, expires_at = expires_at - ?2 WHERE instance = ?1";
        let by = i64::try_from(by.as_millis()).unwrap();
        assert_eq!(Connection::open(&self.path).unwrap().execute(age, (instance.to_string(), by)), Ok(1));
    }

    async fn process_rows(&self) -> usize {
        let count = "SELECT count(*) FROM relay_processes";
        usize::try_from(Connection::open(&self.path).unwrap().query_one(count, (), |row| row.get::<_, i64>(0)).unwrap()).unwrap()
    }
}

async fn fixture() -> SqliteFixture {
    let (directory, path) = empty();
    SqliteFixture { store: SqliteStore::open(&path).unwrap(), path, _directory: directory }
}

store_contract_suite!(fixture);

fn empty() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("relay.db");
    (directory, path)
}

fn write(device: u128) -> DeviceWrite {
    DeviceWrite {
        id: DeviceId(Uuid::from_u128(device)),
        user: UserId(Uuid::nil()),
        role: Role::Desktop,
        name: "Desk".into(),
        platform: "linux".into(),
        app_version: "1".into(),
        relay_eligible: None,
    }
}

const NOW: EpochMs = EpochMs(1_700_000_000_000);

fn refusal(path: &Path) -> MigrateError {
    match SqliteStore::open(path) {
        Err(OpenError::Migrate { error, .. }) => error,
        Err(other) => panic!("{other}"),
        Ok(_store) => panic!("it was opened"),
    }
}

fn dump(path: &Path) -> Vec<(String, String)> {
    let connection = Connection::open(path).unwrap();
    let mut tables = connection.prepare("SELECT name, coalesce(sql, '') FROM sqlite_schema ORDER BY name").unwrap();
    tables.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
}

#[tokio::test]
async fn a_reopened_file_keeps_its_rows() {
    let (_directory, path) = empty();
    let store = SqliteStore::open(&path).unwrap();
    let device = store.upsert_device(write(1), NOW).await.unwrap().device;
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.devices_of(UserId(Uuid::nil())).await, Ok(vec![device]));
}

#[test]
fn migrations_are_numbered_without_gaps_and_reported() {
    let versions: Vec<_> = MIGRATIONS.iter().map(|migration| migration.version).collect();
    assert_eq!(versions, (1..=u32::try_from(MIGRATIONS.len()).unwrap()).collect::<Vec<_>>());
    let (_directory, path) = empty();
    assert_eq!(migrate(&path).unwrap(), MigrationReport { present: vec![], applied: MIGRATIONS.to_vec() });
    assert_eq!(migrate(&path).unwrap(), MigrationReport { present: MIGRATIONS.to_vec(), applied: vec![] });
    assert_eq!(*SqliteStore::open(&path).unwrap().migrations(), MigrationReport { present: MIGRATIONS.to_vec(), applied: vec![] });
}

#[test]
fn a_database_that_a_newer_relay_has_used_is_refused_untouched() {
    let (_directory, path) = empty();
    migrate(&path).unwrap();
    Connection::open(&path).unwrap().execute("INSERT INTO schema_migrations VALUES (9999, 'later', 'x', 0)", ()).unwrap();
    let before = dump(&path);
    let refused = refusal(&path);
    assert_eq!(refused, MigrateError::NewerDatabase { database: 9999, binary: MIGRATIONS.last().unwrap().version });
    assert!(refused.to_string().contains("Start that version or a later one"), "{refused}");
    assert_eq!(dump(&path), before);
}

#[test]
fn a_migration_that_was_applied_from_another_file_is_refused() {
    let (_directory, path) = empty();
    migrate(&path).unwrap();
    Connection::open(&path).unwrap().execute("UPDATE schema_migrations SET checksum = 'x' WHERE version = 2", ()).unwrap();
    let refused = refusal(&path);
    assert_eq!(refused, MigrateError::Changed { migration: "0002_compatibility_rules".into() });
    assert!(refused.to_string().contains("restore the file"), "{refused}");
}

#[test]
fn a_failing_migration_leaves_nothing_of_its_run() {
    let (_directory, path) = empty();
    let good = Migration { version: 1, name: "good", sql: "CREATE TABLE good (x)" };
    let bad = Migration { version: 2, name: "bad", sql: "CREATE TABLE bad (x); CREATE TABLE good (x)" };
    match open::open(&path, &[good, bad]) {
        Err(OpenError::Migrate { error: MigrateError::Failed(cause), .. }) => assert!(cause.contains("0002_bad"), "{cause}"),
        Err(other) => panic!("{other}"),
        Ok(_opened) => panic!("it was opened"),
    }
    assert_eq!(dump(&path), []);
}

#[test]
fn openers_take_turns() {
    let (directory, path) = empty();
    let turn = open::take_turn(&path).unwrap();
    let other = std::fs::File::open(directory.path().join("relay.db.lock")).unwrap();
    assert!(matches!(other.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
    drop(turn);
    assert!(other.try_lock().is_ok());
    // And opening waits for its turn: without that, one of some hundred simultaneous openers finds the file locked.
    let opener = std::thread::spawn({
        let path = path.clone();
        move || SqliteStore::open(&path).map(drop)
    });
    assert!(!path.exists(), "the file is created within the turn");
    other.unlock().unwrap();
    opener.join().unwrap().unwrap();
    assert!(path.exists());
}

#[tokio::test]
async fn stores_that_open_one_new_file_at_once_all_work() {
    for _round in 0..5 {
        let (_directory, path) = empty();
        let openers: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || SqliteStore::open(&path))
            })
            .collect();
        let stores: Vec<_> = openers.into_iter().map(|opener| opener.join().unwrap().unwrap()).collect();
        let migrated = stores.iter().filter(|store| store.migrations().applied.len() == MIGRATIONS.len()).count();
        assert_eq!(migrated, 1, "one migrates, the others find it done");
        for (device, store) in (1..).zip(&stores) {
            store.upsert_device(write(device), NOW).await.unwrap();
        }
        assert_eq!(stores[0].devices_of(UserId(Uuid::nil())).await.unwrap().len(), stores.len());
    }
}

#[tokio::test]
async fn stores_on_one_file_register_the_same_devices_at_once() {
    let (_directory, path) = empty();
    let stores: Vec<_> = (0..4).map(|_| SqliteStore::open(&path).unwrap()).collect();
    let answers = join_all(stores.iter().flat_map(|store| (0..50).map(|device| store.upsert_device(write(device), NOW)))).await;
    let created = answers.into_iter().map(|answer| answer.unwrap()).filter(|upserted| upserted.created).count();
    assert_eq!(created, 50);
}

#[tokio::test]
async fn only_the_owner_reads_the_files() {
    let (directory, path) = empty();
    let store = SqliteStore::open(&path).unwrap();
    store.upsert_device(write(1), NOW).await.unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.file_name());
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["relay.db", "relay.db-shm", "relay.db-wal", "relay.db.lock"]);
    drop(store);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let _store = SqliteStore::open(&path).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "an existing file is tightened");
}

#[tokio::test]
async fn reads_are_answered_while_another_process_holds_the_write_lock() {
    let SqliteFixture { store, path, _directory } = fixture().await;
    store.upsert_device(write(1), NOW).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; UPDATE devices SET name = 'uncommitted'").unwrap();
    let status = StatusWrite { device: write(1).id, status: Presence::Online, reason: PresenceReason::Registered, at: NOW };
    let (writes, ids) = ([status], [write(1).id]);
    let mut blocked = std::pin::pin!(store.write_statuses(&writes, RelayInstanceId(Uuid::nil())));
    tokio::select! {
        biased;
        done = &mut blocked => panic!("it cannot be done: {done:?}"),
        found = store.look_up(&ids) => assert_eq!(found.unwrap().len(), 1),
    }
    assert_eq!(store.devices_of(UserId(Uuid::nil())).await.unwrap()[0].name, "Desk");
    assert_eq!(store.ping().await, Ok(()));
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(blocked.await, Ok(()));
    let device = store.devices_of(UserId(Uuid::nil())).await.unwrap().remove(0);
    assert_eq!((device.status, device.name.as_str()), (Presence::Online, "uncommitted"));
}

#[tokio::test]
async fn a_write_behind_a_lock_that_stays_is_unavailable() {
    let SqliteFixture { store, path, _directory } = fixture().await;
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = store.upsert_device(write(1), NOW).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(cause)) if cause.contains("locked")), "{refused:?}");
    other.execute_batch("ROLLBACK").unwrap();
    assert!(store.upsert_device(write(1), NOW).await.is_ok());
}

#[tokio::test]
async fn a_row_that_no_relay_wrote_is_unavailable_and_no_panic() {
    let SqliteFixture { store, path, _directory } = fixture().await;
    store.upsert_device(write(1), NOW).await.unwrap();
    Connection::open(&path).unwrap().execute("UPDATE devices SET user_id = 'nobody'", ()).unwrap();
    assert!(matches!(store.look_up(&[write(1).id]).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.upsert_device(write(1), NOW).await, Err(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn look_ups_and_listings_and_history_use_an_index() {
    let SqliteFixture { path, _directory, .. } = fixture().await;
    let connection = Connection::open(&path).unwrap();
    for sql in [
        statements::LOOK_UP,
        statements::DEVICES_OF,
        statements::COUNT_DEVICES_EVER,
        history::READ,
        history::PRUNE,
        api_keys::LIST,
        api_keys::FIND,
        push_tokens::TARGET,
    ] {
        let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = params_from_iter(std::iter::repeat_n("[]", plan.parameter_count()));
        let steps: Vec<String> = plan.query_map(parameters, |row| row.get("detail")).unwrap().map(Result::unwrap).collect();
        assert!(steps.iter().any(|step| step.starts_with("SEARCH ") && step.contains(" USING ")), "{steps:?}");
        let scans = |step: &String| {
            ["SCAN devices", "SCAN old", "SCAN presence_history", "SCAN api_keys", "SCAN push_tokens", "TEMP B-TREE"]
                .iter()
                .any(|scan| step.contains(scan))
        };
        assert!(!steps.iter().any(scans), "{steps:?}");
    }
}
