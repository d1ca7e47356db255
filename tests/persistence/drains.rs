//! The relay leaves while its database is away: what waits for the database ends in time, and so does the process.

use crate::{
    rig::{ANSWER_MAX, Fault, Rig, is_unavailable, new_device, statuses},
    support::{
        PATIENCE,
        account::Account,
        data_dir::DataDir,
        postgres::{OwnServer, Stop},
        raw_socket::RawSocket,
        relay_process::RelayProcess,
        wire::{eventually, next_of, registered, request, response},
    },
};
use relay_endpoints::{admin::Admin, devices::ApiError};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{
    task::block_in_place,
    time::{Instant, sleep},
};

fn draining() -> Option<(u16, String)> {
    Some((1012, "relayDraining".to_owned()))
}

fn admin(relay: &RelayProcess) -> Admin {
    Admin::new(format!("http://{}", relay.ready().admin).parse().unwrap(), relay.admin_token()).unwrap()
}

/// A second desktop whose registration waits for its look-up, which hangs.
async fn hanging_registration(relay: &RelayProcess, account: &Account) -> RawSocket {
    let mut coming = RawSocket::open(&account.raw_desktop()).await;
    let register = json!({"type": "register", "payload": {"deviceId": account.desktops[1], "relayProtocolVersion": "1.7"}});
    coming.text(&register.to_string()).await;
    let admin = admin(relay);
    eventually("its look-up runs", async || admin.status().await.unwrap()["drain"]["inFlight"] == 1).await;
    coming
}

/// A registration whose look-up hangs is answered before its socket is told to go; connected devices are told in their turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_waits_for_a_stalled_database_is_answered_before_the_relay_leaves() {
    let Rig { mut relay, account, proxy, .. } = Rig::start(2).await;
    let mut connected = registered(&account.raw_desktop(), account.desktops[0]).await;
    Fault::Stalled.begin(&proxy);
    let mut coming = hanging_registration(&relay, &account).await;

    let begun = Instant::now();
    relay.signal("TERM");
    eventually("the drain begins", async || relay.log().contains("\"draining\"")).await;
    let progress = admin(&relay).drain(false).await.unwrap();
    assert_eq!((progress.phase.as_str(), progress.in_flight), ("draining", 1));
    connected.text(r#"{"type":"ping","payload":{}}"#).await;
    assert_eq!(connected.next_text().await, r#"{"type":"pong","payload":{}}"#, "established sockets go on meanwhile");

    let answer: Value = serde_json::from_str(&coming.next_text().await).unwrap();
    assert_eq!((&answer["type"], &answer["payload"]["code"]), (&json!("error"), &json!("deviceLookupUnavailable")), "{answer}");
    for socket in [&mut coming, &mut connected] {
        assert_eq!(socket.closed(PATIENCE).await, draining());
    }
    assert_eq!(relay.exited().await.code(), Some(0));
    assert!(begun.elapsed() < 2 * ANSWER_MAX, "it took {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_whose_database_refuses_leaves_in_time_and_says_what_it_could_not_store() {
    let Rig { mut relay, account, proxy, .. } = Rig::start(1).await;
    let mut connected = registered(&account.raw_desktop(), account.desktops[0]).await;
    Fault::Refused.begin(&proxy);
    let begun = Instant::now();
    relay.signal("TERM");
    assert_eq!(connected.closed(PATIENCE).await, draining());
    assert_eq!(relay.exited().await.code(), Some(0));
    assert!(begun.elapsed() < ANSWER_MAX, "it took {:?}", begun.elapsed());
    assert!(relay.log().contains("some statuses could not be stored in time"), "{}", relay.log());
}

/// Whoever insists does not wait for storage either.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_a_relay_that_waits_for_a_stalled_database() {
    let Rig { mut relay, account, proxy, .. } = Rig::start(2).await;
    Fault::Stalled.begin(&proxy);
    let _coming = hanging_registration(&relay, &account).await;
    relay.signal("TERM");
    eventually("the drain begins", async || relay.log().contains("\"draining\"")).await;
    let second = Instant::now();
    relay.signal("TERM");
    assert_eq!(relay.exited().await.code(), Some(1));
    assert!(second.elapsed() < Duration::from_secs(1), "it took {:?}", second.elapsed());
    let log = relay.log();
    assert!(log.contains("a second signal") && !log.contains("closing sockets"), "{log}");
}

/// The server itself is stopped, with a request open and traffic between devices until the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_whose_database_was_stopped_serves_until_it_leaves_in_time() {
    let server = OwnServer::start();
    let data_dir = Arc::new(DataDir::with_postgres(server.server().clone()));
    for how in [Stop::Fast, Stop::Immediate] {
        let mut relay = RelayProcess::start_on(Arc::clone(&data_dir), &[]).await;
        let account = Account::new(&relay, 1, 1).await;
        let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
        let mut phone = registered(&account.raw_phone(), account.phones[0]).await;
        block_in_place(|| server.stop(how));
        phone.text(&request("answered", "1")).await;
        let answered = next_of(&mut desktop, "rpc.request").await;
        desktop.text(&response(&answered, "2")).await;
        next_of(&mut phone, "rpc.response").await;
        phone.text(&request("open", "1")).await;
        next_of(&mut desktop, "rpc.request").await;

        let begun = Instant::now();
        relay.signal("TERM");
        let first = phone.read(PATIENCE).await;
        assert_eq!(first.close(), draining(), "{:?}", first.text());
        assert_eq!(desktop.closed(PATIENCE).await, draining());
        assert_eq!(relay.exited().await.code(), Some(0));
        assert!(begun.elapsed() < ANSWER_MAX, "it took {:?}", begun.elapsed());
        block_in_place(|| server.start_again());
    }
}

/// A call that waits for storage is answered, or its connection ends: both the limit on a statement and that on stopping bound it.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_for_a_stalled_database_keeps_the_relay_no_longer_than_a_moment() {
    let Rig { mut relay, account, proxy, .. } = Rig::start(1).await;
    Fault::Stalled.begin(&proxy);
    let devices = account.devices();
    let call = tokio::spawn(async move { devices.register(&new_device("late")).await });
    // It is on its way: nothing tells that it waits.
    sleep(Duration::from_millis(200)).await;
    let begun = Instant::now();
    relay.signal("TERM");
    assert_eq!(relay.exited().await.code(), Some(0));
    assert!(begun.elapsed() < ANSWER_MAX, "it took {:?}", begun.elapsed());
    match call.await.unwrap() {
        Err(ApiError::Unreachable(_)) => {}
        answer => is_unavailable(answer),
    }
}

/// The embedded database is written to by somebody else for longer than the drain may take.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_whose_file_is_held_by_another_process_leaves_in_time_and_says_what_it_could_not_store() {
    let data_dir = Arc::new(DataDir::with_sqlite());
    let mut relay = RelayProcess::start_on(Arc::clone(&data_dir), &[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let sql = data_dir.sql().await;
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    let mut phone = registered(&account.raw_phone(), account.phones[0]).await;
    eventually("both are stored as online", async || statuses(&sql).await.values().all(|status| status == "online")).await;
    sql.lock_devices().await;
    let begun = Instant::now();
    relay.signal("TERM");
    for socket in [&mut desktop, &mut phone] {
        assert_eq!(socket.closed(PATIENCE).await, draining());
    }
    assert_eq!(relay.exited().await.code(), Some(0));
    assert!(begun.elapsed() < ANSWER_MAX, "it took {:?}", begun.elapsed());
    assert!(relay.log().contains("some statuses could not be stored in time"), "{}", relay.log());
    sql.run("ROLLBACK").await;

    // The next process serves the devices that this one had to leave as they were, and stores what becomes of them.
    let successor = RelayProcess::start_on(data_dir, &[]).await;
    let account = Account { address: successor.address(), ..account };
    drop(registered(&account.raw_desktop(), account.desktops[0]).await);
    eventually("the newest status is stored", async || statuses(&sql).await[&account.desktops[0]] == "reconnecting").await;
}
