//! A desktop that sends events: timeline frames while somebody watches, others at any time.

use crate::{
    desktop::{Running, options, run_desktop},
    fake_relay::{FakeRelay, PATIENCE, Peer},
};
use relay_endpoints::desktop::{DemoTimeline, Desktop, Published, Publisher, SampleRouter};
use serde_json::{Map, Value, json, value::to_raw_value};
use std::time::Duration;
use tokio::time::timeout;
use uuid::Uuid;

const TTL_MS: u64 = 60_000;

fn start(relay: &FakeRelay) -> (Publisher, Running) {
    let desktop = Desktop::new(options(relay), SampleRouter);
    (desktop.publisher(), run_desktop(desktop))
}

/// Tells the desktop of an interest, and waits until it has heard it.
async fn tell(peer: &mut Peer, revision: u64, session: &str, generation: Option<&str>) {
    send_interest(peer, revision, session, generation).await;
    heard(peer).await;
}

async fn send_interest(peer: &mut Peer, revision: u64, session: &str, generation: Option<&str>) {
    let (active, expires_in) = (generation.is_some(), generation.map(|_| TTL_MS));
    let payload = json!({
        "appSessionId": session, "active": active, "expiresAt": active.then_some(1), "expiresInMs": expires_in,
        "authorizationGeneration": generation, "revision": revision, "relayInstanceId": Uuid::from_u128(200)
    });
    peer.send_frame("event", json!({"eventType": "chat:timeline-interest-updated", "payload": payload})).await;
}

/// Waits until the desktop has read what was sent to it. What it sends by itself meanwhile is lost.
async fn heard(peer: &mut Peer) {
    peer.send_frame("ping", json!({})).await;
    while serde_json::from_str::<Value>(&peer.text().await.unwrap()).unwrap()["type"] != "pong" {}
}

fn fields() -> Map<String, Value> {
    Map::from_iter([("n".to_owned(), json!(1)), ("authorizationGeneration".to_owned(), json!("mine"))])
}

fn never() -> Map<String, Value> {
    panic!("nobody watches, so nothing is made")
}

#[tokio::test]
async fn timeline_frames_are_made_and_sent_only_while_somebody_watches() {
    let relay = FakeRelay::start().await;
    let (publisher, _running) = start(&relay);
    assert_eq!(publisher.timeline("s", None, never).await, Published::NotConnected);
    let (mut peer, _register) = relay.accept_registered().await;
    heard(&mut peer).await;
    assert_eq!(publisher.timeline("s", None, never).await, Published::NotWatched);

    tell(&mut peer, 1, "s", Some("g-1")).await;
    assert_eq!(publisher.live(), [("s".to_owned(), "g-1".to_owned())]);
    assert_eq!(publisher.timeline("s", None, fields).await, Published::Sent);
    let sent = peer.text().await.unwrap();
    // Each field once, whatever the maker put in.
    let payload = r#"{"appSessionId":"s","authorizationGeneration":"g-1","n":1}"#;
    assert_eq!(sent, format!(r#"{{"type":"event","payload":{{"eventType":"chat:stream","payload":{payload}}}}}"#));
    // An alias of the session is watched with it, and sent as it is.
    assert_eq!(publisher.timeline("s::skills-agent", Some("k"), Map::new).await, Published::Sent);
    let expected = json!({"appSessionId": "s::skills-agent", "authorizationGeneration": "g-1", "timelineKey": "k"});
    assert_eq!(peer.expect("event").await["payload"], expected);
    assert_eq!(publisher.timeline("another", None, never).await, Published::NotWatched);

    tell(&mut peer, 2, "s", None).await;
    assert_eq!(publisher.timeline("s", None, never).await, Published::NotWatched);
    tell(&mut peer, 3, "s", Some("g-2")).await;
    tell(&mut peer, 2, "s", None).await;
    assert_eq!(publisher.timeline("s", None, fields).await, Published::Sent);
    assert_eq!(peer.expect("event").await["payload"]["authorizationGeneration"], "g-2");

    // No message comes at the deadline.
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(TTL_MS)).await;
    tokio::time::resume();
    assert_eq!(publisher.timeline("s", None, never).await, Published::NotWatched);
    assert!(publisher.live().is_empty());
}

#[tokio::test]
async fn a_registration_begins_without_interests_and_the_relay_tells_them_anew() {
    let relay = FakeRelay::start().await;
    let (mut publisher, mut running) = start(&relay);
    let (mut peer, _register) = relay.accept_registered().await;
    assert_eq!(running.state().await, "registered resumed=false");
    tell(&mut peer, 9, "s", Some("g")).await;
    drop(peer);
    assert_eq!(running.state().await, "waiting: 1006");
    assert_eq!(publisher.timeline("s", None, never).await, Published::NotConnected);
    assert!(publisher.live().is_empty());

    let (mut peer, _register) = relay.accept_registered().await;
    heard(&mut peer).await;
    assert_eq!(publisher.timeline("s", None, never).await, Published::NotWatched);
    let (is_watched, ()) = tokio::join!(timeout(PATIENCE, publisher.watched()), tell(&mut peer, 9, "s", Some("g")));
    assert_eq!((is_watched, publisher.live()), (Ok(true), vec![("s".to_owned(), "g".to_owned())]));
    drop(running);
}

#[tokio::test]
async fn other_events_go_at_any_time_and_what_fits_no_frame_does_not() {
    let relay = FakeRelay::start().await;
    let (publisher, _running) = start(&relay);
    let payload = to_raw_value(&json!({"n": 1})).unwrap();
    assert_eq!(publisher.event("demo:tick", &payload).await, Published::NotConnected);
    let (mut peer, _register) = relay.accept_registered().await;
    heard(&mut peer).await;
    assert_eq!(publisher.event("demo:tick", &payload).await, Published::Sent);
    assert_eq!(peer.text().await.unwrap(), r#"{"type":"event","payload":{"eventType":"demo:tick","payload":{"n":1}}}"#);
    let large = to_raw_value(&json!({"x": "x".repeat(32 * 1024 * 1024)})).unwrap();
    assert_eq!(publisher.event("demo:tick", &large).await, Published::TooLarge);
    heard(&mut peer).await;
}

#[tokio::test]
async fn the_demo_timeline_runs_while_a_session_is_watched_and_ends_with_its_desktop() {
    let relay = FakeRelay::start().await;
    let (publisher, running) = start(&relay);
    let demo = tokio::spawn(DemoTimeline::default().run(publisher.clone(), Duration::from_millis(1)));
    let (mut peer, _register) = relay.accept_registered().await;
    send_interest(&mut peer, 1, "s", Some("g")).await;
    let mut seen = Vec::new();
    while seen.last().is_none_or(|(kind, _)| kind != "demo:tick") {
        let event = peer.expect("event").await;
        let payload = &event["payload"];
        if event["eventType"] == "chat:stream" {
            assert_eq!((&payload["appSessionId"], &payload["authorizationGeneration"]), (&json!("s"), &json!("g")), "{event}");
            seen.push((payload["kind"].as_str().unwrap().to_owned(), payload.get("timelineKey").cloned()));
        } else {
            seen.push((event["eventType"].as_str().unwrap().to_owned(), None));
        }
    }
    // A draft may take the place of the one before it.
    let [drafts @ .., entry, _tick] = seen.as_slice() else { panic!("{seen:?}") };
    assert!(!drafts.is_empty() && drafts.iter().all(|draft| *draft == ("draft".to_owned(), Some(json!("demo:draft")))), "{seen:?}");
    assert_eq!(*entry, ("entry".to_owned(), None));

    tell(&mut peer, 2, "s", None).await;
    // What waited for the socket may still come, but no more of the timeline.
    assert_eq!(publisher.event("last", &to_raw_value(&json!({})).unwrap()).await, Published::Sent);
    loop {
        let event = peer.expect("event").await;
        match event["eventType"].as_str() {
            Some("last") => break,
            name => assert_eq!(name, Some("demo:tick"), "{event}"),
        }
    }
    running.stop.send(()).unwrap();
    timeout(PATIENCE, running.outcome).await.unwrap().unwrap().unwrap();
    timeout(PATIENCE, demo).await.expect("it ends").unwrap();
}
