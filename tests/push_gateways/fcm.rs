//! Google: what a push is on the wire, what each answer leads to, and the access token that it needs.

use super::{DESKTOP, TOKEN, alert, silent};
use crate::support::{
    push_server::{ACCESS_TOKEN, PushServer, Reply, TokenEndpoint, service_account},
    signing_keys::RSA_A,
};
use futures_util::future::join_all;
use relay::push_gateways::{Fcm, ServiceAccount};
use relay_actors::push::{Gateway, Scope, Verdict};
use relay_protocol::push::Provider;
use serde_json::json;

const FCM: Provider = Provider::Fcm;

struct Rig {
    server: PushServer,
    tokens: TokenEndpoint,
    fcm: Fcm,
}

async fn rig() -> Rig {
    let (server, tokens) = (PushServer::start().await, TokenEndpoint::start().await);
    let account = ServiceAccount::parse(&service_account(&tokens.url())).unwrap();
    let fcm = Fcm::new(account, Some(server.url().parse().unwrap())).unwrap();
    Rig { server, tokens, fcm }
}

fn sent() -> Verdict {
    Verdict::Sent { id: Some("projects/relay-test/messages/0:1".into()) }
}

#[tokio::test]
async fn a_push_is_what_google_asks_for() {
    let Rig { server, tokens, fcm } = rig().await;
    assert_eq!(fcm.send(&alert(FCM, "n")).await, sent());
    assert_eq!(fcm.send(&silent(FCM)).await, sent());
    let seen = server.seen(2).await;
    for push in &seen {
        assert_eq!((push.path.as_str(), push.header("authorization")), ("/v1/projects/relay-test/messages:send", "Bearer ya29.granted"));
    }
    let expected = json!({"message": {
        "token": TOKEN, "notification": {"title": "Title", "body": "Body"},
        "data": {"type": "agent_notification", "notificationId": "n", "desktopDeviceId": DESKTOP, "appSessionId": "session"},
        "android": {"priority": "HIGH", "ttl": "3600s", "notification": {"tag": "collapse"}}
    }});
    assert_eq!(seen[0].body, expected);
    let expected = json!({"message": {
        "token": TOKEN, "data": {"type": "desktop_online", "desktopDeviceId": DESKTOP, "at": "1800000000000"},
        "android": {"priority": "NORMAL", "collapse_key": "collapse", "ttl": "3600s"}
    }});
    assert_eq!(seen[1].body, expected);

    let asked = tokens.asked();
    assert_eq!(asked.len(), 1, "one access token for both");
    let assertion = asked[0].strip_prefix("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=").unwrap();
    let claims = RSA_A.verify(assertion);
    assert_eq!((claims["iss"].as_str(), claims["aud"].as_str()), (Some("push@relay-test.example"), Some(&*tokens.url())));
    assert_eq!(jsonwebtoken::decode_header(assertion).unwrap().kid.as_deref(), Some("k1"));
}

#[tokio::test]
async fn many_pushes_at_once_wait_for_one_access_token() {
    let Rig { server, tokens, fcm } = rig().await;
    let pushes: Vec<_> = (0..50).map(|number| alert(FCM, &number.to_string())).collect();
    assert_eq!(join_all(pushes.iter().map(|push| fcm.send(push))).await, vec![sent(); 50]);
    server.seen(50).await;
    assert_eq!(tokens.asked().len(), 1);
}

#[tokio::test]
async fn an_access_token_that_is_refused_is_replaced_once() {
    let Rig { server, tokens, fcm } = rig().await;
    assert_eq!(fcm.send(&alert(FCM, "n")).await, sent());
    let refused = || Reply::new(401, &json!({"error": {"status": "UNAUTHENTICATED"}}));
    tokens.set(200, json!({"access_token": "another", "expires_in": 3_600}));
    server.will_say(refused());
    assert_eq!(fcm.send(&alert(FCM, "n")).await, sent());
    let seen = server.seen(3).await;
    let tokens_used: Vec<_> = seen.iter().map(|push| push.header("authorization")).collect();
    assert_eq!(tokens_used, [format!("Bearer {ACCESS_TOKEN}"), format!("Bearer {ACCESS_TOKEN}"), "Bearer another".to_owned()]);
    server.will_say(refused());
    server.will_say(refused());
    let verdict = fcm.send(&alert(FCM, "n")).await;
    assert!(matches!(&verdict, Verdict::Retry { reason, scope: Scope::Provider, .. } if reason == "UNAUTHENTICATED"), "{verdict:?}");
    assert_eq!(tokens.asked().len(), 3);
}

#[tokio::test]
async fn without_an_access_token_pushes_wait_and_the_log_can_say_why() {
    let Rig { server, tokens, fcm } = rig().await;
    for (status, body, says) in [
        (400, json!({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}), "no access token: 400 invalid_grant"),
        (500, json!("<html>"), "no access token: 500 "),
        (200, json!({"token": "no"}), "no access token: an answer without a token"),
        (200, json!({"access_token": "a\nb", "expires_in": 1}), "no access token: a token that is none"),
    ] {
        tokens.set(status, body);
        let verdict = fcm.send(&alert(FCM, "n")).await;
        assert_eq!(verdict, Verdict::Retry { reason: says.into(), wait: None, scope: Scope::Provider });
    }
    server.seen(0).await;
    tokens.set(200, json!({"access_token": "good", "expires_in": 60}));
    assert_eq!(fcm.send(&alert(FCM, "n")).await, sent());
}

/// C72: a word that says two things is read with its details; all verdicts are tabled beside the code.
#[tokio::test]
async fn answers_are_what_google_means_by_them() {
    let Rig { server, fcm, tokens: _tokens } = rig().await;
    let error = |status: u16, name: &str, code: &str, more: serde_json::Value| {
        let detail = json!({"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code});
        Reply::new(status, &json!({"error": {"code": status, "status": name, "details": [detail, more]}}))
    };
    let violation = |field: &str| json!({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [{"field": field, "description": "d"}]});
    for (reply, verdict) in [
        (error(404, "NOT_FOUND", "UNREGISTERED", json!({})), Verdict::TokenDead { reason: "UNREGISTERED".into(), since: None }),
        (
            error(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", violation("message.token")),
            Verdict::TokenDead { reason: "INVALID_ARGUMENT".into(), since: None },
        ),
        (
            error(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", violation("message.data[0].value")),
            Verdict::Refused { reason: "INVALID_ARGUMENT".into() },
        ),
        (error(403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH", json!({})), Verdict::Refused { reason: "SENDER_ID_MISMATCH".into() }),
    ] {
        server.will_say(reply);
        assert_eq!(fcm.send(&alert(FCM, "n")).await, verdict);
    }
}
