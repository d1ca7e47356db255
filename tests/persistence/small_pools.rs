//! One or two connections for everybody, all of them held up, and half of those who wait leave: C67.

use crate::{
    rig::{ANSWER_MAX, burst_works, is_unavailable, new_device, storage_is_well, try_register},
    support::{
        account::Account,
        data_dir::{DataDir, Sql},
        postgres::Server,
        raw_socket::RawSocket,
        relay_process::RelayProcess,
        scale::scaled,
        wire::eventually,
    },
};
use futures_util::future::join_all;
use relay_endpoints::devices::{ApiError, Device};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// Half of the limit on a statement, so that one that is held up here is not ended.
const HELD_UP: Duration = Duration::from_secs(1);

const RELAYS_CONNECTIONS: &str = "pg_stat_activity WHERE datname = current_database() AND application_name = 'relay'";

async fn count(sql: &Sql, what: &str) -> usize {
    sql.rows(&format!("SELECT count(*) FROM {what}")).await[0][0].parse().unwrap()
}

async fn everybody_has_a_turn(pool_size: usize) {
    let data_dir = Arc::new(DataDir::with_postgres(Server::shared()));
    let relay = RelayProcess::start_on(Arc::clone(&data_dir), &["--database-pool-size", &pool_size.to_string()]).await;
    let callers = scaled(100, 200);
    let account = Account::new(&relay, scaled(20, 100), 0).await;
    // Two: within a transaction, what it saw of others' activity first is what it sees to its end.
    let (holder, watcher) = (data_dir.sql().await, data_dir.sql().await);

    holder.lock_devices().await;
    let devices = account.devices();
    let mut calls = Vec::new();
    for index in 0..callers {
        let devices = devices.clone();
        let call = tokio::spawn(async move { devices.register(&new_device(&format!("caller {index}"))).await });
        calls.push(call);
    }
    let mut sockets = Vec::new();
    for device in account.desktops.clone() {
        let options = account.raw_desktop();
        sockets.push(tokio::spawn(async move {
            let mut socket = RawSocket::open(&options).await;
            (try_register(&mut socket, device).await, socket)
        }));
    }
    let held_up = format!("{RELAYS_CONNECTIONS} AND wait_event_type = 'Lock'");
    eventually("every connection is held up", async || count(&watcher, &held_up).await == pool_size).await;
    // Callers are on their way; those who leave are to leave a queue.
    sleep(HELD_UP / 2).await;
    let staying: Vec<_> = (0..)
        .zip(calls)
        .filter_map(|(index, call)| {
            if index % 2 == 0 {
                Some((index, call))
            } else {
                call.abort();
                None
            }
        })
        .collect();
    let staying_sockets: Vec<_> = (0..)
        .zip(sockets)
        .filter_map(|(index, socket)| {
            if index % 2 == 0 {
                Some(socket)
            } else {
                socket.abort();
                None
            }
        })
        .collect();
    assert_eq!(count(&watcher, RELAYS_CONNECTIONS).await, pool_size);
    holder.run("ROLLBACK").await;

    let answered = async {
        let mut added = BTreeSet::new();
        for (index, call) in staying {
            let answer: Result<Device, ApiError> = call.await.unwrap();
            match answer {
                Ok(device) => assert!(added.insert(device.device_name.clone()) && device.device_name == format!("caller {index}")),
                unavailable => is_unavailable(unavailable),
            }
        }
        let registered = join_all(staying_sockets).await.into_iter().map(Result::unwrap);
        (added, registered.filter(|(registered, _socket)| registered.is_ok()).count())
    };
    let (added, registered) = timeout(ANSWER_MAX, answered).await.expect("nobody waits for ever");
    assert_eq!((added.len(), registered), (callers.div_ceil(2), account.desktops.len().div_ceil(2)), "all that stayed had their turn");
    let listed = devices.list().await.unwrap();
    for name in &added {
        assert_eq!(listed.iter().filter(|device| device.device_name == *name).count(), 1, "{name}");
    }
    burst_works(&devices).await;
    assert!(count(&watcher, RELAYS_CONNECTIONS).await <= pool_size);
    storage_is_well(&relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_one_connection_everybody_has_a_turn() {
    everybody_has_a_turn(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_two_connections_everybody_has_a_turn() {
    everybody_has_a_turn(2).await;
}
