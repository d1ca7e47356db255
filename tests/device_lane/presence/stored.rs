//! Statuses on disk: left alone by a process that starts until one reconnect wait has passed, and written by one that ends.

use super::watch::{desktop_socket, phone_socket, presences, stored, until};
use crate::support::{PATIENCE, account::Account, data_dir::Sql, raw_socket::Received, relay_process::RelayProcess, scale::scaled};
use relay_protocol::{
    device::Presence::{Disconnected, Online, Reconnecting},
    id::DeviceId,
};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// A device's row: its status and when it was written, in epoch milliseconds.
type Row = (String, i64);

/// The rows as they are in the database, read by nobody's help.
async fn rows(database: &Sql) -> BTreeMap<DeviceId, Row> {
    let rows = database.rows("SELECT id, status, coalesce(status_at, 0) FROM devices").await;
    rows.iter().map(|row| (row[0].parse().unwrap(), (row[1].clone(), row[2].parse().unwrap()))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_statuses_stay_for_one_wait_and_then_tell_who_came_back() {
    let wait = Duration::from_secs(3);
    let flags = ["--reconnect-grace", "3s"];
    let mut crashed = RelayProcess::start(&flags).await;
    let account = Account::new(&crashed, 3, 2).await;
    let [back, gone, waiting] = [account.desktops[0], account.desktops[1], account.desktops[2]];
    let [phone_back, phone_gone] = [account.phones[0], account.phones[1]];
    let sockets = (
        desktop_socket(&account, 0).await,
        desktop_socket(&account, 1).await,
        phone_socket(&account, 0, 0).await,
        phone_socket(&account, 1, 0).await,
    );
    drop(desktop_socket(&account, 2).await);
    let before = BTreeMap::from([(back, Online), (gone, Online), (waiting, Reconnecting), (phone_back, Online), (phone_gone, Online)]);
    until("the statuses are stored", async || stored(&account).await == before).await;
    crashed.kill();
    drop(sockets);
    let data_dir = crashed.data_dir();
    let database = data_dir.sql().await;
    let left = rows(&database).await;

    let starting = Instant::now();
    let relay = RelayProcess::start_on(data_dir.clone(), &flags).await;
    let account = Account { address: relay.address(), ..account };
    let _sockets = (desktop_socket(&account, 0).await, phone_socket(&account, 0, 0).await);
    assert_eq!(
        presences(&account).await,
        BTreeMap::from([(back, Online), (gone, Disconnected), (waiting, Disconnected), (phone_back, Online), (phone_gone, Disconnected),])
    );
    let after =
        BTreeMap::from([(back, Online), (gone, Disconnected), (waiting, Disconnected), (phone_back, Online), (phone_gone, Disconnected)]);
    let mut seen_as_left = 0;
    loop {
        let (now, elapsed) = (rows(&database).await, starting.elapsed());
        let as_left = |device: &DeviceId| now[device] == left[device];
        if [gone, waiting, phone_gone].iter().all(as_left) {
            seen_as_left += 1;
            assert!(elapsed < PATIENCE, "the rows stay as they were left");
        } else {
            assert!(elapsed >= wait, "rows changed {elapsed:?} after the start");
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(seen_as_left > 10, "the rows were looked at while the wait was running");
    until("who has not come back is disconnected", async || stored(&account).await == after).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_end_leaves_no_row_online() {
    let devices = scaled(20, 200);
    let mut relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, devices, devices).await;
    let mut sockets = Vec::new();
    for index in 0..devices {
        sockets.push(desktop_socket(&account, index).await);
        sockets.push(phone_socket(&account, index, index).await);
    }
    // Somebody else writes to the database meanwhile: what is to be stored has to wait, and the process with it.
    let busy = relay.data_dir().sql().await;
    busy.lock_devices().await;
    relay.signal("TERM");
    for socket in &mut sockets {
        assert_eq!(socket.closed(PATIENCE).await, Some((1012, "relayDraining".to_owned())));
    }
    for socket in &mut sockets {
        assert_eq!(socket.read(PATIENCE).await, Received::End);
    }
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(relay.alive(), "it waits for its storage");
    busy.run("ROLLBACK").await;
    assert!(relay.exited().await.success());

    let rows = rows(&busy).await;
    assert_eq!(rows.len(), 2 * devices);
    let left_as = |device: &DeviceId| rows[device].0.as_str();
    for desktop in &account.desktops {
        assert_eq!(left_as(desktop), Reconnecting.as_str(), "its wait is the next process's to end");
    }
    for phone in &account.phones {
        assert_eq!(left_as(phone), Disconnected.as_str());
    }
}
