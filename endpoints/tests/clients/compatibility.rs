//! The question whether a desktop may connect, before it does.

use crate::{
    desktop::{options, run_desktop},
    fake_relay::{FakeRelay, PATIENCE},
};
use relay_endpoints::{
    compatibility::{CHECK_TIMEOUT, Checked, Incompatible, NoVerdict, check_desktop},
    desktop::{Cause, Desktop, DesktopOptions, SampleRouter},
};
use relay_protocol::compatibility::Descriptor;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    time::{Instant, timeout},
};

fn descriptor() -> Descriptor {
    Descriptor { app_version: "2.1".to_owned(), platform: "macos".to_owned(), relay_protocol_version: "1.7".to_owned() }
}

fn checking(relay: &FakeRelay) -> DesktopOptions {
    DesktopOptions { descriptor: Some(descriptor()), ..options(relay) }
}

fn answer(compatible: bool, decision: &str) -> Value {
    json!({
        "compatible": compatible, "decision": decision, "message": "Get 3.0 from the store.", "policyVersion": "1.4",
        "requiredRelayProtocolVersion": "1.7", "desktop": {"knownVersion": true, "protocolSupported": true}
    })
}

#[tokio::test]
async fn it_asks_about_itself_alone_and_connects_when_told_that_it_may() {
    let relay = FakeRelay::start().await;
    let mut running = run_desktop(Desktop::new(checking(&relay), SampleRouter));
    let asked = relay.answer_http("200 OK", &answer(true, "compatible").to_string()).await;
    assert!(asked.starts_with("POST /public/compatibility/check HTTP/1.1\r\n"), "{asked}");
    assert!(asked.ends_with(r#"{"desktop":{"appVersion":"2.1","platform":"macos","relayProtocolVersion":"1.7"}}"#), "{asked}");
    assert!(!asked.to_ascii_lowercase().contains("authorization"), "nobody has to know who asks: {asked}");
    let (peer, _register) = relay.accept_registered().await;
    assert_eq!(running.state().await, "registered resumed=false");

    // Before it comes back it asks again: meanwhile the rules may have changed.
    drop(peer);
    relay.answer_http("200 OK", &answer(false, "blockedByPolicy").to_string()).await;
    assert!(matches!(running.cause().await, Cause::Incompatible(_)));
}

#[tokio::test]
async fn a_clear_no_stops_it_with_the_message_of_the_relay() {
    let relay = FakeRelay::start().await;
    for decision in ["unsupportedDesktopVersion", "protocolUpdateRequired", "aReasonOfTheFuture"] {
        let running = run_desktop(Desktop::new(checking(&relay), SampleRouter));
        relay.answer_http("200 OK", &answer(false, decision).to_string()).await;
        let cause = running.cause().await;
        assert!(!cause.retryable());
        assert_eq!(cause.to_string(), format!("{decision}: Get 3.0 from the store."));
        let Cause::Incompatible(told) = cause else { panic!("{cause}") };
        assert_eq!(told, Incompatible { decision: decision.to_owned(), message: "Get 3.0 from the store.".to_owned() });
    }
}

#[tokio::test]
async fn whatever_is_no_clear_no_lets_it_connect() {
    let without = |field: &str| {
        let mut refusal = answer(false, "blockedByPolicy");
        refusal.as_object_mut().unwrap().remove(field);
        refusal.to_string()
    };
    let no = answer(false, "blockedByPolicy").to_string();
    let mut about_null = answer(false, "blockedByPolicy");
    about_null["desktop"] = Value::Null;
    let relay = FakeRelay::start().await;
    for (status, body) in [
        ("500 Internal Server Error", no.as_str()),
        ("503 Service Unavailable", r#"{"error":{"code":"relayDraining","message":"m","retryable":true}}"#),
        ("429 Too Many Requests", &no),
        ("404 Not Found", &no),
        ("302 Found", &no),
        ("200 OK", "<html>compatible: false</html>"),
        ("200 OK", ""),
        ("200 OK", "[]"),
        ("200 OK", &no[..no.len() - 1]),
        ("200 OK", &without("compatible")),
        ("200 OK", &without("message")),
        ("200 OK", &without("desktop")),
        ("200 OK", &about_null.to_string()),
        ("200 OK", r#"{"compatible":"false","decision":"blockedByPolicy","message":"m","desktop":{}}"#),
    ] {
        let mut running = run_desktop(Desktop::new(checking(&relay), SampleRouter));
        relay.answer_http(status, body).await;
        let (_peer, _register) = relay.accept_registered().await;
        assert_eq!(running.state().await, "registered resumed=false", "{status} {body}");
        // Or it would come back among the next one's calls.
        running.outcome.abort();
        assert!(timeout(PATIENCE, running.outcome).await.unwrap().unwrap_err().is_cancelled());
    }
}

/// Nobody takes the call, or it ends without an answer.
#[tokio::test]
async fn a_relay_that_cannot_be_asked_has_not_said_no() {
    let relay = FakeRelay::start().await;
    let mut running = run_desktop(Desktop::new(checking(&relay), SampleRouter));
    relay.hang_up().await;
    let (_peer, _register) = relay.accept_registered().await;
    assert_eq!(running.state().await, "registered resumed=false");

    let address = relay.address.clone();
    drop(relay);
    assert!(matches!(check_desktop(&address, &descriptor()).await, Checked::Unknown(NoVerdict::Failed(_))));
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_hangs_is_asked_for_five_seconds() {
    // The kernel takes the connection and the question; nobody answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let asked = Instant::now();
    assert!(matches!(check_desktop(&address, &descriptor()).await, Checked::Unknown(NoVerdict::TimedOut)));
    assert_eq!((asked.elapsed(), CHECK_TIMEOUT.as_secs()), (CHECK_TIMEOUT, 5));
    assert!(CHECK_TIMEOUT < PATIENCE);
}

#[tokio::test]
async fn without_a_descriptor_it_does_not_ask() {
    let relay = FakeRelay::start().await;
    let _running = run_desktop(Desktop::new(options(&relay), SampleRouter));
    relay.accept_registered().await;
}
