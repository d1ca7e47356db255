//! The embedded database: another process writes to it for long, or its tables cannot be read.

use crate::{
    rig::{
        ANSWER_MAX, RECOVERY_MAX, Traffic, is_unavailable, new_device, readiness, reports, statuses, storage_is_well, try_register,
        works_again,
    },
    support::{
        account::Account,
        data_dir::{DataDir, Sql},
        raw_socket::RawSocket,
        relay_process::RelayProcess,
        wire::{eventually, registered},
    },
};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};
use tokio::time::{Instant, timeout};

async fn start() -> (RelayProcess, Account, Sql) {
    let data_dir = Arc::new(DataDir::with_sqlite());
    let relay = RelayProcess::start_on(Arc::clone(&data_dir), &["--log-format", "json"]).await;
    let account = Account::new(&relay, 3, 1).await;
    let sql = data_dir.sql().await;
    (relay, account, sql)
}

/// Longer than the relay waits for its turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_another_process_writes_to_for_long_is_read_and_written_to_later() {
    let (relay, account, sql) = start().await;
    let [_, leaving, coming] = account.desktops[..] else { panic!("three desktops") };
    let devices = account.devices();
    let traffic = Traffic::start(&account).await;
    let leaving_socket = registered(&account.raw_desktop(), leaving).await;
    eventually("it is stored as online", async || statuses(&sql).await[&leaving] == "online").await;
    storage_is_well(&relay).await;

    sql.lock_devices().await;
    drop(leaving_socket);
    assert!(devices.list().await.is_ok(), "readers do not wait for writers");
    let _coming_socket = registered(&account.raw_desktop(), coming).await;
    is_unavailable(timeout(ANSWER_MAX, devices.register(&new_device("new"))).await.expect("a bounded wait"));
    eventually("health says what fails", async || {
        let (status, health) = readiness(relay.ready().admin).await;
        let failing: Vec<_> = health["failingSince"].as_object().into_iter().flatten().map(|(statement, _)| statement.clone()).collect();
        (status, &health["storage"], &health["unwrittenStatuses"], failing)
            == (200, &json!("failing"), &json!(2), vec!["statuses".to_owned()])
    })
    .await;
    let back = Instant::now();
    sql.run("ROLLBACK").await;
    eventually("the newest statuses are stored", async || {
        let statuses = statuses(&sql).await;
        (statuses[&leaving].as_str(), statuses[&coming].as_str()) == ("reconnecting", "online")
    })
    .await;
    assert!(back.elapsed() <= RECOVERY_MAX, "{:?}", back.elapsed());
    devices.register(&new_device("new")).await.unwrap();
    storage_is_well(&relay).await;
    assert_eq!(reports(&relay), BTreeMap::from([("statuses".to_owned(), (1, 1))]));
    traffic.was_never_disturbed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_cannot_be_read_stops_nobody_who_is_connected() {
    let (relay, account, sql) = start().await;
    let devices = account.devices();
    let traffic = Traffic::start(&account).await;
    storage_is_well(&relay).await;
    let before = traffic.round_trips();
    sql.run("ALTER TABLE devices RENAME TO elsewhere").await;
    let mut socket = RawSocket::open(&account.raw_desktop()).await;
    assert_eq!(try_register(&mut socket, account.desktops[1]).await, Err("deviceLookupUnavailable".to_owned()));
    is_unavailable(devices.list().await);
    is_unavailable(devices.register(&new_device("new")).await);
    eventually("calls go on", async || traffic.round_trips() > before + 50).await;
    let back = Instant::now();
    sql.run("ALTER TABLE elsewhere RENAME TO devices").await;
    works_again(&devices, back).await;
    assert_eq!(try_register(&mut socket, account.desktops[1]).await, Ok(()));
    storage_is_well(&relay).await;
    traffic.was_never_disturbed().await;
}
