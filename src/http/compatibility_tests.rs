use super::*;
use crate::{
    http::{
        admin_routes,
        testing::{ADMIN_TOKEN, Answer, Fixture, MemoryStore, call_with},
    },
    limits::{API_BODY_BYTES_MAX, COMPATIBILITY_RULES_MAX},
};
use actix_web::{App, test};
use relay_actors::clock::EpochMs;
use relay_protocol::compatibility::RuleSpec;
use serde_json::{Value, json};

const PATH: &str = "/public/compatibility/check";

async fn check(fixture: &Fixture, body: impl ToString) -> Answer {
    call_with(fixture, None, "POST", PATH, body.to_string()).await
}

async fn admin(fixture: &Fixture, token: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
    let app = test::init_service(App::new().configure(|config| admin_routes(config, fixture.api.clone()))).await;
    let request = test::TestRequest::with_uri(path).method(method.parse().unwrap()).set_payload(body.to_string());
    let response = test::call_service(&app, request.insert_header(("Authorization", format!("Bearer {token}"))).to_request()).await;
    let status = response.status().as_u16();
    let body = test::read_body(response).await;
    (status, if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() })
}

fn block(platform: &str, min_app_version: Option<&str>) -> RuleSpec {
    let rule = json!({"kind": "block", "client": "mobile", "platform": platform, "minAppVersion": min_app_version});
    serde_json::from_value(rule).unwrap()
}

async fn add(store: &MemoryStore, spec: RuleSpec) {
    assert!(store.add_compatibility_rule(spec, EpochMs(0), COMPATIBILITY_RULES_MAX).await.unwrap().is_some());
}

#[actix_web::test]
async fn a_check_is_answered_without_a_token_and_each_client_has_a_result() {
    let fixture = Fixture::new();
    let desktop = json!({"appVersion": "1.2", "platform": "macos", "relayProtocolVersion": "1.7"});
    let answer = check(&fixture, json!({"desktop": desktop, "mobile": null})).await;
    let expected = json!({"compatible": true, "decision": "compatible", "message": "Compatible.", "policyVersion": "0.0",
        "requiredRelayProtocolVersion": "1.7", "desktop": {"knownVersion": true, "protocolSupported": true}});
    assert_eq!((answer.status, answer.body), (200, expected));

    let mobile = json!({"appVersion": "1.2", "platform": "ios", "relayProtocolVersion": "1.6", "ofANewerClient": 1});
    let answer = check(&fixture, json!({"mobile": mobile, "ofANewerClient": {}})).await;
    assert_eq!((answer.status, &answer.body["decision"]), (200, &json!("protocolUpdateRequired")));
    assert_eq!((&answer.body["compatible"], answer.body.get("desktop")), (&json!(false), None));
    assert_eq!(answer.body["mobile"], json!({"knownVersion": true, "protocolSupported": false}));
    assert_eq!(check(&fixture, "{}").await.body["decision"], "missingClient");
}

#[actix_web::test]
async fn what_is_no_check_is_refused_by_name() {
    let fixture = Fixture::new();
    for (body, named) in [
        (String::new(), "JSON object"),
        ("[]".into(), "JSON object"),
        (json!({"desktop": "1.2"}).to_string(), "desktop"),
        (json!({"desktop": ["1.2", "macos", "1.7"]}).to_string(), "desktop"),
        (json!({"mobile": {"appVersion": "1.2", "platform": "ios"}}).to_string(), "relayProtocolVersion"),
        (json!({"mobile": {"appVersion": 1.2, "platform": "ios", "relayProtocolVersion": "1.7"}}).to_string(), "mobile"),
        (r#"{"desktop":null,"desktop":null}"#.into(), "desktop"),
    ] {
        let answer = check(&fixture, &body).await;
        assert_eq!((answer.status, answer.code()), (400, "invalidPayload"), "{body}");
        assert!(answer.message().contains(named), "{body}: {}", answer.message());
    }
    assert_eq!(check(&fixture, "x".repeat(API_BODY_BYTES_MAX + 1)).await.status, 413);
    let answer = call_with(&fixture, None, "GET", PATH, String::new()).await;
    assert_eq!((answer.status, answer.allow.as_deref()), (405, Some("POST")));
    assert_eq!(fixture.store.rule_reads(), 0, "no bad call costs a read");
}

#[actix_web::test]
async fn while_the_rules_cannot_be_had_nobody_is_told_a_decision() {
    let fixture = Fixture::new();
    fixture.store.set_away(true);
    let answer = check(&fixture, "{}").await;
    assert_eq!((answer.status, answer.code()), (503, "storageUnavailable"));
    fixture.store.set_away(false);
    add(&fixture.store, block("ios", Some("1.x"))).await;
    let answer = check(&fixture, "{}").await;
    assert_eq!((answer.status, answer.code()), (503, "relayProtocolPolicyUnavailable"));
    assert_eq!(answer.body["error"]["retryable"], true);
}

#[actix_web::test]
async fn rules_are_read_once_for_all_and_again_when_they_are_too_old() {
    const MAX_AGE: Duration = Duration::from_secs(60);
    const MS: Duration = Duration::from_millis(1);
    let (store, cache, start) = (MemoryStore::default(), PolicyCache::new(MAX_AGE), clock::now());
    let version = async |at| cache.policy(&store, at).await.map(|policy| policy.check(None, None).policy_version);
    assert_eq!(version(start).await.unwrap(), "0.0");
    add(&store, block("ios", None)).await;
    assert_eq!(version(start + MAX_AGE).await.unwrap(), "0.0");
    assert_eq!(store.rule_reads(), 1);
    let second = start + MAX_AGE + MS;
    assert_eq!(version(second).await.unwrap(), "1.1");
    store.set_away(true);
    assert_eq!(version(second + MAX_AGE).await.unwrap(), "1.1");
    let too_late = second + MAX_AGE + MS;
    assert_eq!(version(too_late).await, Err(ApiError::StorageUnavailable), "rules that are too old are not used");
    store.set_away(false);
    assert_eq!(version(too_late + MS).await.unwrap(), "1.1", "a failure is not kept");
}

/// However long storage takes to fail, nobody waits for it more than once.
#[actix_web::test]
async fn those_who_wait_for_a_read_that_fails_share_its_failure() {
    let (store, cache, asked) = (MemoryStore::default(), PolicyCache::new(Duration::from_secs(60)), clock::now());
    add(&store, block("ios", Some("1.x"))).await;
    let held = cache.last.lock().await;
    let asking = async { tokio::join!(cache.policy(&store, asked), cache.policy(&store, asked)) };
    let ((one, other), ()) = tokio::join!(asking, async { drop(held) });
    assert_eq!((one.unwrap_err(), other.unwrap_err()), (ApiError::PolicyUnavailable, ApiError::PolicyUnavailable));
    assert_eq!(store.rule_reads(), 1);
}

#[actix_web::test]
async fn an_operator_adds_lists_and_removes_rules() {
    let fixture = Fixture::new();
    let spec = json!({"kind": "block", "client": "mobile", "platform": "ios", "maxAppVersion": "1.10", "message": "Update."});
    let (status, added) = admin(&fixture, ADMIN_TOKEN, "POST", "/admin/compat", spec).await;
    assert_eq!((status, &added["id"], &added["maxAppVersion"], &added["minAppVersion"]), (201, &json!(1), &json!("1.10"), &Value::Null));
    let listed = admin(&fixture, ADMIN_TOKEN, "GET", "/admin/compat", Value::Null).await;
    assert_eq!(listed, (200, json!({"rules": [added]})));

    let ios = json!({"mobile": {"appVersion": "1.9", "platform": "iOS", "relayProtocolVersion": "1.7"}});
    let answer = check(&fixture, &ios).await;
    assert_eq!((&answer.body["decision"], &answer.body["message"]), (&json!("blockedByPolicy"), &json!("Update.")));
    assert_eq!(answer.body["policyVersion"], "1.1");

    assert_eq!(admin(&fixture, ADMIN_TOKEN, "DELETE", "/admin/compat/1", Value::Null).await, (204, Value::Null));
    for id in ["1", "one", "99999999999999999999"] {
        let (status, body) = admin(&fixture, ADMIN_TOKEN, "DELETE", &format!("/admin/compat/{id}"), Value::Null).await;
        assert_eq!((status, &body["error"]["code"]), (404, &json!("compatibilityRuleNotFound")), "{id}");
    }
    assert_eq!(admin(&fixture, ADMIN_TOKEN, "GET", "/admin/compat", Value::Null).await, (200, json!({"rules": []})));
}

#[actix_web::test]
async fn a_rule_that_breaks_a_rule_is_not_added_nor_one_too_many_nor_by_anybody() {
    let fixture = Fixture::new();
    for (body, named) in [
        (json!({"kind": "blocks", "client": "mobile"}), "blocks"),
        (json!({"kind": "block", "client": "phone"}), "phone"),
        (json!({"kind": "block"}), "client"),
        (json!({"kind": "block", "client": "mobile", "version": "1"}), "version"),
        (json!({"kind": "block", "client": "mobile", "minAppVersion": "1.x"}), "minAppVersion"),
        (json!({"kind": "minimum", "client": "mobile"}), "minimumRelayProtocolVersion"),
        (json!([]), "JSON object"),
    ] {
        let (status, answer) = admin(&fixture, ADMIN_TOKEN, "POST", "/admin/compat", body.clone()).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalidPayload")), "{body}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(named), "{answer}");
    }
    let good = json!({"kind": "block", "client": "mobile"});
    for (method, path) in [("GET", "/admin/compat"), ("POST", "/admin/compat"), ("DELETE", "/admin/compat/1")] {
        assert_eq!(admin(&fixture, "another-token", method, path, good.clone()).await.0, 401, "{method}");
        assert_eq!(call_with(&fixture, None, method, path, good.to_string()).await.status, 404, "{method} in public");
    }
    for _ in 0..COMPATIBILITY_RULES_MAX {
        add(&fixture.store, block("ios", None)).await;
    }
    let (status, answer) = admin(&fixture, ADMIN_TOKEN, "POST", "/admin/compat", good).await;
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("tooManyCompatibilityRules")));
}
