//! The events: their fields, a reason per cause, revisions, and the reconnect wait.

use super::watch::{End, Watcher, desktop_socket, desktop_socket_through, phone_socket, presences, until_routes};
use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::RawSocket,
    relay_process::RelayProcess,
    stall_proxy::{Network, StallProxy},
};
use relay_endpoints::{devices::DeviceChange, frame::DeviceStatus};
use relay_protocol::device::Presence::{Disconnected, Online, Reconnecting};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The next frame of a phone's raw socket.
async fn next_frame(phone: &mut RawSocket) -> Value {
    serde_json::from_str(&phone.next_text().await).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "`at` is wall time")]
fn epoch_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_has_these_fields_and_the_wait_passes_once() {
    let relay = RelayProcess::start(&["--reconnect-grace", "500ms"]).await;
    let account = Account::new(&relay, 1, 1).await;
    let desktop = account.desktops[0];
    let mut phone = phone_socket(&account, 0, 0).await;
    let before = epoch_ms();
    let socket = desktop_socket(&account, 0).await;
    let online = next_frame(&mut phone).await;
    End::Goodbye.apply(socket).await;
    let (reconnecting, disconnected) = (next_frame(&mut phone).await, next_frame(&mut phone).await);
    let after = epoch_ms();

    let frames = [
        (&online, "online", "registered"),
        (&reconnecting, "reconnecting", "socketClosed"),
        (&disconnected, "disconnected", "graceElapsed"),
    ];
    let (mut earlier_revision, mut earlier_at) = (0, before);
    for (frame, status, reason) in frames {
        let (at, revision) =
            (frame["payload"]["payload"]["at"].as_i64().unwrap(), frame["payload"]["payload"]["revision"].as_u64().unwrap());
        let whole = json!({"type": "event", "payload": {"eventType": "device-status", "payload": {
            "deviceId": desktop, "status": status, "reason": reason, "at": at, "revision": revision,
            "relayInstanceId": relay.ready().relay_instance_id,
        }}});
        assert_eq!(*frame, whole);
        assert!((earlier_at..=after).contains(&at), "{at} is epoch milliseconds of the change");
        assert!(revision > earlier_revision);
        (earlier_revision, earlier_at) = (revision, at);
    }
    let waited = disconnected["payload"]["payload"]["at"].as_i64().unwrap() - reconnecting["payload"]["payload"]["at"].as_i64().unwrap();
    assert!((500..5_000).contains(&waited), "{waited} ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_cause_has_its_reason() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 1).await;
    let (desktop, absent) = (account.desktops[0], 1);
    let mut watcher = Watcher::connect(&account, 0, absent).await;

    for end in End::ALL {
        let socket = desktop_socket(&account, 0).await;
        watcher.expect(desktop, Online, "registered").await;
        end.apply(socket).await;
        watcher.expect(desktop, Reconnecting, "socketClosed").await;
    }

    let eligible = |relay_eligible| DeviceChange { relay_eligible: Some(relay_eligible), ..DeviceChange::default() };
    let mut barred = desktop_socket(&account, 0).await;
    watcher.expect(desktop, Online, "registered").await;
    account.devices().change(desktop, &eligible(false)).await.unwrap();
    watcher.expect(desktop, Disconnected, "notEligible").await;
    assert_eq!(barred.closed(PATIENCE).await, Some((1008, "notEligible".to_owned())));
    account.devices().change(desktop, &eligible(true)).await.unwrap();

    let mut forgotten = desktop_socket(&account, 0).await;
    watcher.expect(desktop, Online, "registered").await;
    account.devices().forget(desktop).await.unwrap();
    watcher.expect(desktop, Disconnected, "deviceForgotten").await;
    assert_eq!(forgotten.closed(PATIENCE).await, Some((1008, "deviceForgotten".to_owned())));
    assert_eq!(watcher.pending().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_that_sends_nothing_is_told_of_as_silent() {
    let relay = RelayProcess::start(&["--heartbeat-interval", "200ms", "--silence-timeout", "1s"]).await;
    let account = Account::new(&relay, 1, 1).await;
    let mut watcher = Watcher::connect(&account, 0, 0).await;
    let proxy = StallProxy::start(relay.ready().public).await;
    let _silent = desktop_socket_through(&proxy, &account, 0).await;
    watcher.expect(account.desktops[0], Online, "registered").await;
    proxy.set(Network::Stalls);
    watcher.expect(account.desktops[0], Reconnecting, "silent").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_barred_or_forgotten_within_the_wait_is_disconnected_at_once() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 3, 1).await;
    let mut watcher = Watcher::connect(&account, 0, 2).await;
    for desktop in [0, 1] {
        drop(desktop_socket(&account, desktop).await);
        watcher.expect(account.desktops[desktop], Online, "registered").await;
        watcher.expect(account.desktops[desktop], Reconnecting, "socketClosed").await;
    }
    let barred = DeviceChange { relay_eligible: Some(false), ..DeviceChange::default() };
    account.devices().change(account.desktops[0], &barred).await.unwrap();
    watcher.expect(account.desktops[0], Disconnected, "notEligible").await;
    account.devices().forget(account.desktops[1]).await.unwrap();
    watcher.expect(account.desktops[1], Disconnected, "deviceForgotten").await;
    assert_eq!(watcher.pending().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_phone_is_told_the_same_in_the_same_order_and_other_accounts_nothing() {
    let relay = RelayProcess::start(&["--reconnect-grace", "300ms"]).await;
    let account = Account::new(&relay, 3, 3).await;
    let other = Account::new(&relay, 1, 1).await;
    let mut stranger = Watcher::connect(&other, 0, 0).await;
    let mut watchers =
        [Watcher::connect(&account, 0, 0).await, Watcher::connect(&account, 1, 1).await, Watcher::connect(&account, 2, 2).await];
    for _round in 0..3 {
        let sockets = [desktop_socket(&account, 0).await, desktop_socket(&account, 1).await];
        drop(sockets);
        let mut told: [Vec<DeviceStatus>; 3] = Default::default();
        for (watcher, told) in watchers.iter_mut().zip(&mut told) {
            while told.iter().filter(|event| event.status == Disconnected).count() < 2 {
                told.push(watcher.next().await);
            }
        }
        assert_eq!(told[0].len(), 6, "{:?}", told[0]);
        assert_eq!(told[0], told[1]);
        assert_eq!(told[0], told[2]);
    }
    assert_eq!(stranger.pending().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_go_on_for_phones_that_come_later_and_for_routers_that_come_later() {
    // A session that nobody can resume keeps no router alive.
    let relay = RelayProcess::start(&["--reconnect-grace", "100ms", "--resume-ttl", "200ms"]).await;
    let account = Account::new(&relay, 2, 1).await;
    let mut newest = 0;
    for _life in 0..4 {
        let mut watcher = Watcher::connect(&account, 0, 1).await;
        assert!(watcher.target().revision >= Some(newest), "{:?} after {newest}", watcher.target());
        for _round in 0..5 {
            drop(desktop_socket(&account, 0).await);
            let online = watcher.expect(account.desktops[0], Online, "registered").await;
            assert!(online.revision > Some(newest), "{online:?} after {newest}");
            watcher.expect(account.desktops[0], Reconnecting, "socketClosed").await;
            watcher.expect(account.desktops[0], Disconnected, "graceElapsed").await;
        }
        newest = watcher.revision();
        drop(watcher);
        until_routes(&relay, account.user, &[]).await;
        // Nothing tells when a router leaves: its last session ends by then.
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_return_within_the_wait_goes_straight_to_online_and_ends_the_wait() {
    let relay = RelayProcess::start(&["--reconnect-grace", "2s"]).await;
    let account = Account::new(&relay, 3, 1).await;
    let [returning, marker] = [account.desktops[0], account.desktops[1]];
    let mut watcher = Watcher::connect(&account, 0, 0).await;
    assert_eq!(watcher.call().await, Err(-32010));
    drop(desktop_socket(&account, 0).await);
    watcher.expect(returning, Online, "registered").await;
    watcher.expect(returning, Reconnecting, "socketClosed").await;
    assert_eq!(watcher.call().await, Err(-32011));
    let _back = desktop_socket(&account, 0).await;
    watcher.expect(returning, Online, "registered").await;

    // The marker's wait began later than the one that was cut short; when it has passed, both have.
    drop(desktop_socket(&account, 1).await);
    for (status, reason) in [(Online, "registered"), (Reconnecting, "socketClosed"), (Disconnected, "graceElapsed")] {
        watcher.expect(marker, status, reason).await;
    }
    assert_eq!(presences(&account).await[&returning], Online);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_counts_from_the_last_close_and_then_calls_are_refused_as_offline() {
    let relay = RelayProcess::start(&["--reconnect-grace", "1s"]).await;
    let account = Account::new(&relay, 1, 1).await;
    let desktop = account.desktops[0];
    let mut watcher = Watcher::connect(&account, 0, 0).await;
    let mut closed_at = 0;
    for _return in 0..3 {
        drop(desktop_socket(&account, 0).await);
        watcher.expect(desktop, Online, "registered").await;
        closed_at = watcher.expect(desktop, Reconnecting, "socketClosed").await.at.unwrap();
        assert_eq!(watcher.call().await, Err(-32011));
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let gone_at = watcher.expect(desktop, Disconnected, "graceElapsed").await.at.unwrap();
    assert!(gone_at - closed_at >= 1_000, "{} ms after the last close", gone_at - closed_at);
    assert_eq!(watcher.call().await, Err(-32010));
    assert_eq!(presences(&account).await[&desktop], Disconnected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_is_told_of_its_desktop_when_it_registers() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 2).await;
    let desktop = account.desktops[0];
    let mut watcher = Watcher::connect(&account, 0, 0).await;
    let never_seen = watcher.target();
    assert_eq!((never_seen.device_id, never_seen.status), (desktop, Disconnected));

    // What another phone is told on its way in is the newest event, word for word.
    let told = async || Watcher::connect(&account, 1, 0).await.target().clone();
    let socket = desktop_socket(&account, 0).await;
    let online = watcher.expect(desktop, Online, "registered").await;
    assert_eq!(told().await, online);
    drop(socket);
    let reconnecting = watcher.expect(desktop, Reconnecting, "socketClosed").await;
    assert_eq!(told().await, reconnecting);
    let barred = DeviceChange { relay_eligible: Some(false), ..DeviceChange::default() };
    account.devices().change(desktop, &barred).await.unwrap();
    let disconnected = watcher.expect(desktop, Disconnected, "notEligible").await;
    account.devices().change(desktop, &DeviceChange { relay_eligible: Some(true), ..DeviceChange::default() }).await.unwrap();
    assert_eq!(told().await, disconnected);
}
