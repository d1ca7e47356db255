use crate::fake_relay::{FakeRelay, PATIENCE, device};
use relay_endpoints::{
    frame::{Register, Resume},
    link::{ConnectError, Ended, Link, LinkOptions, OpenError, RegisterError},
};
use relay_protocol::id::SessionId;
use std::time::Duration;
use tokio::time::timeout;
use uuid::Uuid;

fn register() -> Register {
    Register { device_id: device(1), relay_protocol_version: None, device_name: None, resume: None, target_desktop_device_id: None }
}

#[tokio::test]
async fn the_upgrade_carries_the_headers_of_the_device_lane() {
    let relay = FakeRelay::start().await;
    let options = LinkOptions::phone(relay.address.clone(), "a-token".to_owned(), device(9));
    let (link, peer) = tokio::join!(Link::connect(&options), relay.accept());
    link.unwrap();
    assert_eq!(peer.path, "/ws/device-link");
    assert_eq!(peer.headers["authorization"], "Bearer a-token");
    assert_eq!(peer.headers["x-client-type"], "mobile");
    assert_eq!(peer.headers["x-target-desktop-device-id"], device(9).to_string());

    let options = LinkOptions::desktop(relay.address.clone(), "a-token".to_owned());
    let (link, peer) = tokio::join!(Link::connect(&options), relay.accept());
    link.unwrap();
    assert_eq!(peer.headers["x-client-type"], "desktop");
    assert!(!peer.headers.contains_key("x-target-desktop-device-id"));
}

#[tokio::test]
async fn a_refused_upgrade_says_status_and_code() {
    let relay = FakeRelay::start().await;
    let options = LinkOptions::desktop(relay.address.clone(), "t".to_owned());
    let body = r#"{"error":{"code":"unauthorized","message":"m","retryable":false}}"#;
    let (link, asked) = tokio::join!(Link::connect(&options), relay.answer_http("401 Unauthorized", body));
    assert!(asked.starts_with("GET /ws/device-link HTTP/1.1\r\n"), "{asked}");
    let error = link.err().unwrap();
    assert!(!error.retryable());
    assert!(matches!(error, ConnectError::Refused { status: 401, error: Some(error) } if error.code == "unauthorized"));

    let (link, _asked) = tokio::join!(Link::connect(&options), relay.answer_http("503 Service Unavailable", ""));
    let error = link.err().unwrap();
    assert!(error.retryable());
    assert!(matches!(error, ConnectError::Refused { status: 503, error: None }));
}

#[tokio::test]
async fn nothing_listening_is_unreachable() {
    let relay = FakeRelay::start().await;
    let options = LinkOptions::desktop(relay.address.clone(), "t".to_owned());
    drop(relay);
    assert!(matches!(Link::connect(&options).await, Err(ConnectError::Unreachable(_))));
}

#[tokio::test]
async fn a_token_that_no_header_takes_is_an_error() {
    let relay = FakeRelay::start().await;
    let options = LinkOptions::desktop(relay.address.clone(), "a\nb".to_owned());
    assert!(matches!(Link::connect(&options).await, Err(ConnectError::UnusableToken)));
}

#[tokio::test]
async fn frames_before_the_answer_are_kept_and_a_refused_socket_may_register_again() {
    let relay = FakeRelay::start().await;
    let options = LinkOptions::desktop(relay.address.clone(), "t".to_owned());
    let client = async {
        let mut link = Link::connect(&options).await.unwrap();
        let refused = link.register(&register()).await.unwrap_err();
        assert!(matches!(refused, RegisterError::Refused(error) if error.code == "deviceLookupUnavailable" && error.retryable));
        let registered = link.register(&register()).await.unwrap();
        assert!(!registered.resumed);
        assert_eq!(registered.expires_in, Duration::from_secs(86_400));
        assert_eq!(link.receive().await.unwrap().as_str(), r#"{"type":"event","payload":{"early":1.0}}"#);
        assert_eq!(link.receive().await.unwrap().as_str(), "late");
        link
    };
    let server = async {
        let mut peer = relay.accept().await;
        peer.expect("register").await;
        peer.refuse("deviceLookupUnavailable", true).await;
        peer.expect("register").await;
        peer.send(r#"{"type":"event","payload":{"early":1.0}}"#).await;
        peer.answer_register("registered", 1).await;
        peer.send("late").await;
        peer
    };
    let (link, mut peer) = tokio::join!(client, server);
    tokio::join!(link.close(), async { assert_eq!(peer.closed_with().await, Some(1000)) });
}

#[tokio::test]
async fn an_unknown_resume_is_given_up_on_the_same_socket() {
    let relay = FakeRelay::start().await;
    let options = LinkOptions::desktop(relay.address.clone(), "t".to_owned());
    let resume = Some(Resume { session_id: SessionId(Uuid::from_u128(7)), resume_token: "old".to_owned() });
    let server = async {
        let mut peer = relay.accept().await;
        let first = peer.expect("register").await;
        assert_eq!(first["resumeToken"], "old");
        peer.refuse("invalidResume", false).await;
        let second = peer.expect("register").await;
        assert!(second.get("resumeToken").is_none() && second.get("sessionId").is_none());
        peer.answer_register("registered", 2).await;
        peer
    };
    let (opened, _peer) = tokio::join!(Link::open(&options, Register { resume, ..register() }), server);
    assert_eq!(opened.unwrap().1.resume.resume_token, "token-2");
}

#[tokio::test]
async fn an_invalid_resume_without_a_resume_is_an_error() {
    let relay = FakeRelay::start().await;
    let options = LinkOptions::desktop(relay.address.clone(), "t".to_owned());
    let server = async {
        let mut peer = relay.accept().await;
        peer.expect("register").await;
        peer.refuse("invalidResume", false).await;
        peer
    };
    let (opened, _peer) = tokio::join!(Link::open(&options, register()), server);
    assert!(matches!(opened, Err(OpenError::Register(RegisterError::Refused(error))) if error.code == "invalidResume"));
}

#[tokio::test]
async fn close_code_and_reason_surface_and_stay() {
    let relay = FakeRelay::start().await;
    let options = LinkOptions::desktop(relay.address.clone(), "t".to_owned());
    let (link, mut peer) = tokio::join!(Link::connect(&options), relay.accept());
    let mut link = link.unwrap();
    peer.close(1008, "deviceForgotten").await;
    let closed = Ended::Closed { code: 1008, reason: "deviceForgotten".to_owned() };
    let (ended, answered) = tokio::join!(link.receive(), peer.closed_with());
    assert_eq!(ended.unwrap_err(), closed);
    assert_eq!(answered, Some(1008), "the client's half of the closing handshake");
    assert_eq!(link.receive().await.unwrap_err(), closed);
    assert!(!closed.may_return());
}

#[tokio::test]
async fn a_connection_that_vanishes_is_1006() {
    let relay = FakeRelay::start().await;
    let options = LinkOptions::desktop(relay.address.clone(), "t".to_owned());
    let (link, peer) = tokio::join!(Link::connect(&options), relay.accept());
    drop(peer);
    let ended = link.unwrap().receive().await.unwrap_err();
    assert!(matches!(ended, Ended::Lost(_)));
    assert_eq!(ended.code(), 1006);
    assert!(ended.may_return());
}

#[tokio::test]
async fn pings_are_answered_and_silence_ends_the_link() {
    let relay = FakeRelay::start().await;
    let mut options = LinkOptions::desktop(relay.address.clone(), "t".to_owned());
    options.silence_limit = Duration::from_secs(1);
    let (link, mut peer) = tokio::join!(Link::connect(&options), relay.accept());
    let mut link = link.unwrap();
    let receiving = tokio::spawn(async move { link.receive().await });
    peer.ping().await;
    let ended = timeout(PATIENCE, receiving).await.unwrap().unwrap().unwrap_err();
    assert_eq!(ended, Ended::Silent(options.silence_limit));
}

#[tokio::test]
async fn a_message_that_comes_slowly_is_not_silence() {
    let relay = FakeRelay::start().await;
    let mut options = LinkOptions::desktop(relay.address.clone(), "t".to_owned());
    options.silence_limit = Duration::from_secs(1);
    let (link, mut peer) = tokio::join!(Link::connect(&options), relay.accept());
    let mut link = link.unwrap();
    let slowly = async {
        // More than the limit for the whole, much less for each part.
        for part in [&b"\x81\x05"[..], b"h", b"e", b"l", b"lo"] {
            peer.raw(part).await;
            tokio::time::sleep(options.silence_limit / 4).await;
        }
    };
    let (received, ()) = tokio::join!(link.receive(), slowly);
    assert_eq!(received.unwrap().as_str(), "hello");
}

#[tokio::test]
async fn the_largest_message_that_the_relay_may_send_arrives() {
    let relay = FakeRelay::start().await;
    let options = LinkOptions::desktop(relay.address.clone(), "t".to_owned());
    let (link, mut peer) = tokio::join!(Link::connect(&options), relay.accept());
    let mut link = link.unwrap();
    let largest = 32 * 1024 * 1024 + 4 * 1024;
    let ((), received) = tokio::join!(peer.send("x".repeat(largest)), link.receive());
    assert_eq!(received.unwrap().len(), largest);
    let (_peer, received) = tokio::join!(peer.send_to_a_peer_that_may_leave("x".repeat(largest + 1)), async {
        let received = link.receive().await;
        drop(link);
        received
    });
    assert!(matches!(received, Err(Ended::Lost(_))));
}
