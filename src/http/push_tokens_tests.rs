use super::*;
use crate::http::testing::{ALICE, Fixture, PHONE, bearer_of, call, call_with};
use relay_actors::store::StoreError;
use serde_json::{Value, json};

const PATH: &str = "/api/devices/push-token";
const TOKEN: &str = "cXy0:APA91bH-marker";

fn body() -> Value {
    json!({"deviceId": PHONE, "provider": "fcm", "token": TOKEN})
}

fn apns() -> Value {
    json!({"deviceId": PHONE.to_uppercase(), "provider": "apns", "token": "00fc13", "environment": "sandbox", "appId": "org.example.app"})
}

#[actix_web::test]
async fn a_claim_is_answered_when_it_is_stored() {
    let fixture = Fixture::new();
    for body in [body(), apns()] {
        let answer = call(&fixture, ALICE, "PUT", PATH, body).await;
        assert_eq!((answer.status, answer.body), (204, Value::Null));
    }
    let claims = fixture.relay.state().claims.clone();
    let (alice, phone) = (ALICE.parse().unwrap(), PHONE.parse().unwrap());
    let fcm = PushAddress { provider: Provider::Fcm, token: TOKEN.parse().unwrap(), environment: Environment::Production, app_id: None };
    let apns = PushAddress {
        provider: Provider::Apns,
        token: "00fc13".parse().unwrap(),
        environment: Environment::Sandbox,
        app_id: Some("org.example.app".parse().unwrap()),
    };
    assert_eq!(claims, [(alice, phone, fcm), (alice, phone, apns)]);
}

#[actix_web::test]
async fn what_storage_says_of_a_claim_has_a_code() {
    for (outcome, status, code) in [
        (Ok(PushClaim::NoSuchDevice), 404, "deviceNotFound"),
        (Ok(PushClaim::NotAPhone), 409, "notAPhone"),
        (Err(StoreError::Unavailable("secret detail".into())), 503, "storageUnavailable"),
    ] {
        let fixture = Fixture::new();
        fixture.relay.state().claim = Some(outcome);
        let answer = call(&fixture, ALICE, "PUT", PATH, body()).await;
        assert_eq!((answer.status, answer.code()), (status, code));
        assert!(!answer.message().contains("secret"));
    }
}

#[actix_web::test]
async fn a_bad_claim_names_the_field_and_never_tells_the_token() {
    let fixture = Fixture::new();
    let with = |field: &str, value: Value| {
        let mut body = body();
        body[field] = value;
        body
    };
    let without = |field: &str| {
        let mut body = body();
        body.as_object_mut().unwrap().remove(field);
        body
    };
    for (body, says) in [
        (without("deviceId"), "`deviceId`"),
        (without("provider"), "`provider`"),
        (without("token"), "`token`"),
        (with("deviceId", json!("x")), "deviceId must be a UUID"),
        (with("provider", json!("APNS")), "provider must be \"apns\" or \"fcm\""),
        (with("token", json!(1)), "token must be a string"),
        (with("token", json!("")), "token is not valid: it is empty"),
        (with("token", json!("cXy0:APA91bH-marker\0")), "token is not valid: it has characters that stand in none"),
        (with("token", json!("cXy0:APA91bH-marker/..")), "token is not valid: it has characters that stand in none"),
        (with("token", json!("marker".repeat(1_000))), "token is not valid: it is longer than 4096 bytes"),
        (with("environment", json!("production")), "environment is for apns only"),
        (with("environment", json!("test")), "environment must be \"production\" or \"sandbox\""),
        (with("appId", json!("a b")), "appId is not valid: it has characters that stand in none"),
        (with("tokens", json!([])), "unknown field `tokens`"),
    ] {
        let answer = call(&fixture, ALICE, "PUT", PATH, body).await;
        assert_eq!((answer.status, answer.code()), (400, "invalidPayload"));
        assert!(answer.message().contains(says), "{}: wants {says}", answer.message());
        assert!(!answer.message().contains("marker"), "{}", answer.message());
    }
    let twice = format!(r#"{{"deviceId":"{PHONE}","provider":"fcm","token":"marker","token":"marker"}}"#);
    let answer = call_with(&fixture, Some(bearer_of(ALICE)), "PUT", PATH, twice).await;
    assert!(answer.status == 400 && answer.message().contains("duplicate field `token`") && !answer.message().contains("marker"));
    assert!(fixture.relay.state().claims.is_empty());
}

#[actix_web::test]
async fn a_token_is_released_and_doing_it_twice_is_fine() {
    let fixture = Fixture::new();
    let answer = call(&fixture, ALICE, "DELETE", PATH, json!({"deviceId": PHONE})).await;
    assert_eq!((answer.status, answer.body), (204, Value::Null));
    assert_eq!(fixture.relay.state().releases, [(ALICE.parse().unwrap(), Some(PHONE.parse().unwrap()))]);
    for body in [json!({}), json!({"deviceId": null}), json!({"deviceId": PHONE, "token": "t"})] {
        assert_eq!(call(&fixture, ALICE, "DELETE", PATH, body).await.status, 400);
    }
}

#[actix_web::test]
async fn the_path_is_no_devices_and_takes_two_methods() {
    let fixture = Fixture::new();
    for method in ["GET", "POST", "PATCH"] {
        let answer = call(&fixture, ALICE, method, PATH, Value::Null).await;
        assert_eq!((answer.status, answer.allow.as_deref()), (405, Some("PUT, DELETE")), "{method}");
    }
    let answer = call_with(&fixture, None, "PUT", PATH, body().to_string()).await;
    assert_eq!((answer.status, answer.code()), (401, "unauthorized"));
}
