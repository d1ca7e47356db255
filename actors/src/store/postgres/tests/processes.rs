//! Whom a renewal waits for: sessions of the test hold rows, so that each order that the server could take shows.

use super::{Database, Fixture, PostgresFixture, fixture};
use crate::{clock::EpochMs, store::ProcessRecord};
use relay_protocol::id::RelayInstanceId;
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::Client;
use uuid::Uuid;

const GOOD_FOR: Duration = Duration::from_secs(3_600);
/// Of a renewal that waits for nobody, however busy the machine is. Shorter than the statement timeout, which would end a wait too.
const AT_ONCE: Duration = Duration::from_secs(3);
const LOCK: &str = "SELECT FROM relay_processes WHERE instance = $1 FOR UPDATE NOWAIT";

fn record(n: u128) -> ProcessRecord {
    ProcessRecord {
        instance: RelayInstanceId(Uuid::from_u128(n)),
        version: "1.0".into(),
        host: "host".into(),
        pid: 7,
        started_at: EpochMs(0),
        is_draining: false,
    }
}

/// Two processes whose rows have expired.
async fn two_expired() -> PostgresFixture {
    let fixture = fixture().await;
    for n in 1..=2 {
        fixture.store().renew_process(record(n), GOOD_FOR).await.unwrap();
    }
    for n in 1..=2 {
        fixture.age_process(record(n).instance, 2 * GOOD_FOR).await;
    }
    fixture
}

/// Holds the row of this process until the client goes.
async fn holding(database: &Database, n: u128) -> Client {
    let client = database.client().await;
    client.batch_execute("BEGIN").await.unwrap();
    client.query_one(LOCK, &[&record(n).instance.0]).await.unwrap();
    client
}

#[tokio::test]
async fn an_expired_row_that_somebody_holds_is_not_waited_for() {
    let fixture = two_expired().await;
    let _holder = holding(&fixture.database, 2).await;
    let live = timeout(AT_ONCE, fixture.store().renew_process(record(1), GOOD_FOR)).await.expect("it waits for nobody").unwrap();
    assert_eq!(live.len(), 1);
    assert_eq!(fixture.process_rows().await, 2, "whose row it is may be renewing it");
}

/// Else two that find each other expired could each hold what the other one wants.
#[tokio::test]
async fn a_renewal_that_waits_for_its_own_row_holds_no_other() {
    let fixture = two_expired().await;
    let holder = holding(&fixture.database, 1).await;
    let renewal = async {
        assert_eq!(fixture.store().renew_process(record(1), GOOD_FOR).await.unwrap().len(), 1);
    };
    let others = async {
        fixture.database.wait_for_blocked(1).await;
        drop(holding(&fixture.database, 2).await);
        holder.batch_execute("COMMIT").await.unwrap();
    };
    tokio::join!(renewal, others);
}
