//! Alerts from desktops: answered, sent once, and in nobody's way.

use super::{Providers, ask, notification, told};
use crate::support::{
    PATIENCE,
    account::Account,
    metrics::Scrape,
    push_server::{PushServer, Reply, TokenEndpoint},
    relay_process::RelayProcess,
    wire::{Rig, next_of, registered, round_trip},
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{net::TcpListener, time::Instant};

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_is_answered_and_sent_once_and_no_phone_hears_of_it_by_socket() {
    let providers = Providers::start().await;
    let relay = providers.relay(&[]).await;
    let account = Account::new(&relay, 1, 2).await;
    account.claim(account.phones[0], "t").await;
    let rig = Rig { relay, account };
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    desktop.text(&notification("n")).await;
    assert_eq!(told(&mut desktop).await, json!({"notificationId": "n", "accepted": true, "devices": 1}));
    assert_eq!(ask(&mut desktop, "n").await, "duplicate");
    round_trip(&mut phone, &mut desktop, "1").await;
    // The news that the desktop is online has a way of its own and may come on either side of the alert.
    let seen = providers.apple.seen(2).await;
    let alerts: Vec<_> = seen.iter().filter(|push| push.body["aps"].get("alert").is_some()).collect();
    assert_eq!(alerts.len(), 1, "{seen:?}");
    assert_eq!(alerts[0].body["aps"]["alert"], json!({"title": "Title", "body": "Body"}));
    assert_eq!(alerts[0].body["desktopDeviceId"], rig.account.desktops[0].to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_alert_is_an_error_that_names_the_field_and_phones_may_send_none() {
    let rig = Rig::start(&["--push-log"], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let long = json!({"type": "event", "payload": {"eventType": "agent:notification", "payload": {
        "notificationId": "n", "title": "t".repeat(201), "body": "b"
    }}});
    desktop.text(&long.to_string()).await;
    let error: Value = serde_json::from_str(&next_of(&mut desktop, "error").await).unwrap();
    assert_eq!(error["payload"]["code"], "invalidPayload");
    assert!(error["payload"]["message"].as_str().unwrap().contains("`title` does not have 1 to 200 characters"), "{error}");
    phone.text(&notification("n")).await;
    let error: Value = serde_json::from_str(&next_of(&mut phone, "error").await).unwrap();
    assert_eq!(error["payload"]["code"], "wrongRole");
    round_trip(&mut phone, &mut desktop, "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_stands_for_providers_and_shows_neither_token_nor_text() {
    let rig = Rig::start(&["--push-log"], 1).await;
    rig.account.claim(rig.account.phones[0], "toKenMark").await;
    let mut desktop = rig.desktop().await;
    assert_eq!(ask(&mut desktop, "n").await, "accepted");
    let deadline = Instant::now() + PATIENCE;
    while !rig.relay.log().contains("push: alert") {
        assert!(Instant::now() < deadline, "{}", rig.relay.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let log = rig.relay.log();
    assert!(log.contains("push: desktop_online"), "{log}");
    assert!(!log.contains("toKenMark") && !log.contains("Title"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_token_is_forgotten_and_an_app_that_claims_it_anew_is_reached() {
    let providers = Providers::start().await;
    let relay = providers.relay(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    account.claim(account.phones[0], "t").await;
    providers.apple.will_say(Reply::new(410, &json!({"reason": "Unregistered", "timestamp": 1_600_000_000_000_i64})));
    providers.apple.will_say(Reply::new(410, &json!({"reason": "Unregistered", "timestamp": 32_503_680_000_000_i64})));
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    providers.apple.seen(1).await;
    assert_eq!(ask(&mut desktop, "old").await, "accepted", "the first verdict was older than the claim");
    let deadline = Instant::now() + PATIENCE;
    while !relay.log().contains("push token forgotten") {
        assert!(Instant::now() < deadline, "{}", relay.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(ask(&mut desktop, "none").await, "noDevices");
    account.claim(account.phones[0], "t").await;
    assert_eq!(ask(&mut desktop, "new").await, "accepted");
    providers.apple.seen(3).await;
}

/// Push never blocks routing: Apple takes the connection and then nothing, and 300 alerts of 15 accounts wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_stands_still_delays_no_call() {
    let black_hole = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", black_hole.local_addr().unwrap());
    let held = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            held.push(black_hole.accept().await.unwrap());
        }
    });
    let (apple, google, tokens) = (PushServer::start().await, PushServer::start().await, TokenEndpoint::start().await);
    let providers = Providers::with_apple_at(&url, apple, google, tokens);
    let relay = RelayProcess::start(&providers.flags(&[])).await;
    let mut desktops = Vec::new();
    for _ in 0..15 {
        let account = Account::new(&relay, 1, 1).await;
        account.claim(account.phones[0], &account.user.to_string()).await;
        let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
        for number in 0..20 {
            desktop.text(&notification(&number.to_string())).await;
        }
        for _ in 0..20 {
            assert_eq!(told(&mut desktop).await["accepted"], true);
        }
        desktops.push(desktop);
    }
    let account = Account::new(&relay, 1, 1).await;
    let rig = Rig { relay, account };
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let begun = Instant::now();
    for number in 0..50 {
        round_trip(&mut phone, &mut desktop, &number.to_string()).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let scrape = Scrape::of(&rig.relay).await;
    let waiting = scrape.get(r#"relay_push_queue{provider="apns",kind="alert"}"#) + scrape.get(r#"relay_push_in_flight{provider="apns"}"#);
    assert!(waiting >= 200.0, "{waiting}");
    held.abort();
}

/// An alert that was accepted is sent before the process ends.
#[tokio::test(flavor = "multi_thread")]
async fn alerts_that_were_accepted_are_sent_before_the_process_ends() {
    let providers = Providers::start().await;
    let mut relay = providers.relay(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    account.claim(account.phones[0], "t").await;
    let mut desktop = registered(&account.raw_desktop(), account.desktops[0]).await;
    providers.apple.seen(1).await;
    for number in 0..20 {
        desktop.text(&notification(&number.to_string())).await;
    }
    for _ in 0..20 {
        assert_eq!(told(&mut desktop).await["accepted"], true);
    }
    relay.signal("TERM");
    assert!(relay.exited().await.success());
    providers.apple.seen(21).await;
}
