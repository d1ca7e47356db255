//! The database refuses or stalls under traffic.

use crate::{
    rig::{
        ANSWER_MAX, Fault, RECOVERY_MAX, Rig, Traffic, is_unavailable, new_device, readiness, reports, statuses, storage_is_well,
        try_register, works_again,
    },
    support::{
        PATIENCE,
        raw_socket::RawSocket,
        scale::scaled,
        stall_proxy::Network,
        wire::{eventually, registered},
    },
};
use relay_protocol::id::DeviceId;
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

async fn devices_are_routed_and_all_else_waits(fault: Fault) {
    let Rig { relay, account, proxy, sql, .. } = Rig::start(3).await;
    let [_, leaving, coming] = account.desktops[..] else { panic!("three desktops") };
    let devices = account.devices();
    let traffic = Traffic::start(&account).await;
    let leaving_socket = registered(&account.raw_desktop(), leaving).await;
    let stored = async |device: DeviceId| statuses(&sql).await[&device].clone();
    eventually("it is stored as online", async || stored(leaving).await == "online").await;
    storage_is_well(&relay).await;

    let round_trips = traffic.round_trips();
    fault.begin(&proxy);
    drop(leaving_socket);
    let mut coming_socket = RawSocket::open(&account.raw_desktop()).await;
    let new = new_device("new");
    let asked = async {
        let register = try_register(&mut coming_socket, coming);
        let (listed, added, registered) = tokio::join!(devices.list(), devices.register(&new), register);
        is_unavailable(listed);
        is_unavailable(added);
        assert_eq!(registered, Err("deviceLookupUnavailable".to_owned()));
    };
    timeout(ANSWER_MAX, asked).await.expect("what needs storage is answered all the same");
    eventually("health says what fails and since when", async || {
        let (status, health) = readiness(relay.ready().admin).await;
        let since = |statement: &str| health["failingSince"][statement].as_str().is_some_and(|time| time.ends_with('Z'));
        (status, &health["storage"], &health["unwrittenStatuses"]) == (503, &json!("unavailable"), &json!(1))
            && since("devices")
            && since("statuses")
    })
    .await;
    assert_eq!(readiness(relay.ready().public).await, (503, json!({"status": "notReady"})));
    sleep(Duration::from_secs(scaled(1, 60) as u64)).await;
    assert_eq!(stored(leaving).await, "online", "nobody could write");
    assert!(traffic.round_trips() > round_trips + 50, "calls go on");

    let back = Instant::now();
    proxy.set(Network::Works);
    works_again(&devices, back).await;
    eventually("the newest status is stored", async || stored(leaving).await == "reconnecting").await;
    assert!(back.elapsed() <= RECOVERY_MAX, "the status came after {:?}", back.elapsed());
    // The one that was refused may have run out of its time to register.
    let mut coming_socket = RawSocket::open(&account.raw_desktop()).await;
    assert_eq!(try_register(&mut coming_socket, coming).await, Ok(()));
    eventually("and the one after it", async || stored(coming).await == "online").await;
    storage_is_well(&relay).await;
    let told = reports(&relay);
    assert!(told.contains_key("devices") && told.contains_key("statuses"), "{told:?}");
    assert!(told.values().all(|counts| *counts == (1, 1)), "begin and end of failing are told once: {told:?}");
    traffic.was_never_disturbed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_refuses_stops_nobody_who_is_connected() {
    devices_are_routed_and_all_else_waits(Fault::Refused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_stalls_stops_nobody_who_is_connected() {
    devices_are_routed_and_all_else_waits(Fault::Stalled).await;
}

/// Reads that failed are repeated by the relay itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_outage_is_told_though_nobody_asks_for_anything() {
    let Rig { relay, account, proxy, .. } = Rig::start(1).await;
    let mut socket = RawSocket::open(&account.raw_desktop()).await;
    Fault::Refused.begin(&proxy);
    assert!(try_register(&mut socket, account.desktops[0]).await.is_err());
    drop(socket);
    // Long enough for waits that double without a bound to be longer than what is asked for.
    sleep(Duration::from_secs(scaled(4, 30) as u64)).await;
    let (status, health) = readiness(relay.ready().admin).await;
    assert_eq!((status, health["failingSince"]["devices"].is_string()), (503, true), "{health}");
    let back = Instant::now();
    proxy.set(Network::Works);
    let ended = async || reports(&relay).values().all(|(failing, working)| failing == working);
    timeout(PATIENCE, eventually("it is told", ended)).await.unwrap();
    assert!(back.elapsed() <= RECOVERY_MAX, "it was told after {:?}", back.elapsed());
    storage_is_well(&relay).await;
}
