//! Apple: what a push is on the wire, and what each answer leads to.

use super::{DESKTOP, TOKEN, alert, apns, silent};
use crate::support::{
    push_server::{KEY_ID, PushServer, Reply, TEAM_ID, TOPIC},
    signing_keys::P256_A,
};
use futures_util::future::join_all;
use relay_actors::{
    clock::EpochMs,
    push::{Gateway, Scope, Verdict},
};
use relay_protocol::push::{Environment, Provider};
use serde_json::json;
use std::time::Duration;

const APNS: Provider = Provider::Apns;

fn sent() -> Verdict {
    Verdict::Sent { id: Some("EC1BF194".into()) }
}

#[tokio::test]
async fn a_push_is_what_apple_asks_for() {
    let server = PushServer::start().await;
    let apns = apns(&server.url());
    assert_eq!(apns.send(&alert(APNS, "n")).await, sent());
    assert_eq!(apns.send(&silent(APNS)).await, sent());
    let seen = server.seen(2).await;
    for (push, kind, priority) in [(&seen[0], "alert", "10"), (&seen[1], "background", "5")] {
        assert_eq!(push.path, format!("/3/device/{TOKEN}"));
        let told = ["apns-topic", "apns-push-type", "apns-priority", "apns-collapse-id"].map(|name| push.header(name));
        assert_eq!(told, [TOPIC, kind, priority, "collapse"]);
        let keeps: i64 = push.header("apns-expiration").parse().unwrap();
        assert!((keeps - EpochMs::now().0 / 1_000 - 3_600).abs() <= 60, "{keeps}");
        let token = push.header("authorization").strip_prefix("bearer ").unwrap();
        let header = jsonwebtoken::decode_header(token).unwrap();
        assert_eq!((header.alg, header.kid.as_deref()), (jsonwebtoken::Algorithm::ES256, Some(KEY_ID)));
        let claims = P256_A.verify(token);
        assert_eq!(claims["iss"], TEAM_ID);
        assert!((claims["iat"].as_i64().unwrap() - EpochMs::now().0 / 1_000).abs() <= 60);
        assert_eq!(push.header("authorization"), seen[0].header("authorization"), "one token for all");
    }
    let expected = json!({
        "aps": {"alert": {"title": "Title", "body": "Body"}, "sound": "default"}, "type": "agent_notification",
        "notificationId": "n", "desktopDeviceId": DESKTOP, "appSessionId": "session"
    });
    assert_eq!(seen[0].body, expected);
    let expected =
        json!({"aps": {"content-available": 1}, "type": "desktop_online", "desktopDeviceId": DESKTOP, "at": 1_800_000_000_000_u64});
    assert_eq!(seen[1].body, expected);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn an_app_is_served_if_it_is_configured() {
    let server = PushServer::start().await;
    let apns = apns(&server.url());
    let mut push = alert(APNS, "n");
    push.address.app_id = Some("org.example.stranger".parse().unwrap());
    assert_eq!(apns.send(&push).await, Verdict::Refused { reason: "appIdNotConfigured".into() });
    push.address.app_id = Some("org.example.other".parse().unwrap());
    push.address.environment = Environment::Sandbox;
    assert_eq!(apns.send(&push).await, sent());
    assert_eq!(server.seen(1).await[0].header("apns-topic"), "org.example.other");
}

/// C72, C74: each verdict as it comes over the wire; all of them are tabled beside the code.
#[tokio::test]
async fn answers_are_what_apple_means_by_them() {
    let server = PushServer::start().await;
    let apns = apns(&server.url());
    let gone = Reply::new(410, &json!({"reason": "Unregistered", "timestamp": 1_700_000_000_123_i64}));
    let wait = Reply { headers: vec![("retry-after", "17".into())], ..Reply::reason(503, "Shutdown") };
    let html = Reply { status: 502, headers: Vec::new(), body: "<html>".into() };
    let retry =
        |reason: &str, seconds: Option<u64>, scope| Verdict::Retry { reason: reason.into(), wait: seconds.map(Duration::from_secs), scope };
    for (reply, verdict) in [
        (gone, Verdict::TokenDead { reason: "Unregistered".into(), since: Some(EpochMs(1_700_000_000_123)) }),
        (Reply::reason(400, "BadDeviceToken"), Verdict::TokenDead { reason: "BadDeviceToken".into(), since: None }),
        (Reply::reason(413, "PayloadTooLarge"), Verdict::Refused { reason: "PayloadTooLarge".into() }),
        (Reply::reason(429, "TooManyRequests"), retry("TooManyRequests", None, Scope::Push)),
        (wait, retry("Shutdown", Some(17), Scope::Provider)),
        (html, retry("status 502", None, Scope::Provider)),
    ] {
        server.will_say(reply);
        assert_eq!(apns.send(&alert(APNS, "n")).await, verdict);
    }
    assert_eq!(apns.send(&alert(APNS, "n")).await, sent(), "the connection lives on");
    assert_eq!(server.connections(), 1);
}

/// C74: everybody who was refused is sent once more, under one new token; a second refusal is not answered by a third.
#[tokio::test]
async fn c74_an_expired_token_is_made_anew_once_for_all() {
    let server = PushServer::start().await;
    let apns = apns(&server.url());
    let expired = || Reply::reason(403, "ExpiredProviderToken");
    for _ in 0..20 {
        server.will_say(expired());
    }
    let pushes: Vec<_> = (0..20).map(|number| alert(APNS, &number.to_string())).collect();
    let verdicts = join_all(pushes.iter().map(|push| apns.send(push))).await;
    assert_eq!(verdicts, vec![sent(); 20]);
    server.seen(40).await;
    server.will_say(expired());
    let verdict = apns.send(&pushes[0]).await;
    assert_eq!(verdict, Verdict::Retry { reason: "ExpiredProviderToken".into(), wait: None, scope: Scope::Provider });
    server.seen(41).await;
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_tried_again() {
    let apns = apns("http://127.0.0.1:1");
    let verdict = apns.send(&alert(APNS, "n")).await;
    assert!(matches!(&verdict, Verdict::Retry { scope: Scope::Provider, reason, .. } if reason.contains("refused")), "{verdict:?}");
}
