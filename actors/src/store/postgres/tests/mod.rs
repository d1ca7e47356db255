//! The contract suite on PostgreSQL, and what only a server can get wrong. Each test has a database of its own.

mod broken;
mod database;
mod lost_answers;
mod migrations;
mod processes;
mod start;
mod statements;
mod transport;

use super::*;
use crate::store::contract::{Fixture, store_contract_suite};
use database::Database;
use relay_protocol::device::{Presence, PresenceReason, Role};
use uuid::Uuid;

/// The default of `--database-pool-size`.
const POOL_SIZE: NonZero<u16> = NonZero::new(10).unwrap();
const NOW: EpochMs = EpochMs(1_700_000_000_000);

// Fields are dropped in this order: the store lets go of the database first.
struct PostgresFixture {
    store: PostgresStore,
    database: Database,
}

#[async_trait]
impl Fixture for PostgresFixture {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn add_rule(&self, kind: &str, client: &str, minimum_relay_protocol_version: Option<&str>) {
        let insert = "INSERT INTO compatibility_rules (kind, client, minimum_relay_protocol_version, created_at) VALUES ($1, $2, $3, 0)";
        self.database.client().await.execute(insert, &[&kind, &client, &minimum_relay_protocol_version]).await.unwrap();
    }

    async fn age_process(&self, instance: RelayInstanceId, by: Duration) {
        let age = "UPDATE relay_processes SET last_seen_at = last_seen_at - $2, expires_at = expires_at - $2 WHERE instance = $1";
        let by = i64::try_from(by.as_millis()).unwrap();
        assert_eq!(self.database.client().await.execute(age, &[&instance.0, &by]).await.unwrap(), 1);
    }

    async fn process_rows(&self) -> usize {
        let row = self.database.client().await.query_one("SELECT count(*) FROM relay_processes", &[]).await.unwrap();
        usize::try_from(row.get::<_, i64>(0)).unwrap()
    }
}

async fn fixture() -> PostgresFixture {
    fixture_with(POOL_SIZE).await
}

async fn fixture_with(pool_size: NonZero<u16>) -> PostgresFixture {
    let database = Database::create().await;
    PostgresFixture { store: PostgresStore::open(&database.settings(), pool_size).await.unwrap(), database }
}

store_contract_suite!(fixture);

fn user() -> UserId {
    UserId(Uuid::nil())
}

fn id(device: u128) -> DeviceId {
    DeviceId(Uuid::from_u128(device))
}

fn write(device: u128) -> DeviceWrite {
    DeviceWrite {
        id: id(device),
        user: user(),
        role: Role::Desktop,
        name: "Desk".into(),
        platform: "linux".into(),
        app_version: "1".into(),
        relay_eligible: None,
    }
}

fn unavailable<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Unavailable(cause)) => cause,
        other => panic!("{other:?}"),
    }
}
