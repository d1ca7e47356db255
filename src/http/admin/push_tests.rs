use super::*;
use crate::http::{
    admin_routes,
    testing::{ADMIN_TOKEN, Fixture},
};
use actix_web::{App, http::StatusCode, test as http};
use relay_actors::push::Scope;
use serde_json::{Value, json};

const DEVICE: &str = "a2d1c7f4-3b6e-4d0a-9c55-6e1f7b8d9e12";

async fn ask(fixture: &Fixture, body: &Value, token: &str) -> (StatusCode, Value) {
    let app = http::init_service(App::new().configure(|config| admin_routes(config, fixture.api.clone()))).await;
    let request = http::TestRequest::post().uri("/admin/push/test").insert_header(("Authorization", format!("Bearer {token}")));
    let response = http::call_service(&app, request.set_json(body).to_request()).await;
    let status = response.status();
    (status, http::read_body_json(response).await)
}

async fn told(verdict: Result<Verdict, NotTested>) -> (StatusCode, Value) {
    let fixture = Fixture::new();
    fixture.relay.state().tested = Some(verdict.map(|verdict| Tested { provider: Provider::Apns, verdict }));
    ask(&fixture, &json!({"deviceId": DEVICE}), ADMIN_TOKEN).await
}

#[actix_web::test]
async fn an_operator_is_told_the_providers_verdict() {
    let reason = || "word".to_owned();
    for (verdict, expected) in [
        (Verdict::Sent { id: Some("1".into()) }, json!({"provider": "apns", "verdict": "sent", "id": "1"})),
        (Verdict::Sent { id: None }, json!({"provider": "apns", "verdict": "sent"})),
        (Verdict::TokenDead { reason: reason(), since: None }, json!({"provider": "apns", "verdict": "tokenDead", "reason": "word"})),
        (Verdict::Refused { reason: reason() }, json!({"provider": "apns", "verdict": "refused", "reason": "word"})),
        (
            Verdict::Retry { reason: reason(), wait: None, scope: Scope::Push },
            json!({"provider": "apns", "verdict": "retry", "reason": "word"}),
        ),
    ] {
        assert_eq!(told(Ok(verdict)).await, (StatusCode::OK, expected));
    }
}

#[actix_web::test]
async fn why_nothing_could_be_sent_has_a_code() {
    for (refused, status, code) in [
        (NotTested::NoToken, StatusCode::NOT_FOUND, "pushTokenNotFound"),
        (NotTested::NotConfigured(Provider::Fcm), StatusCode::CONFLICT, "pushNotConfigured"),
        (NotTested::Unavailable, StatusCode::SERVICE_UNAVAILABLE, "storageUnavailable"),
    ] {
        let (seen, body) = told(Err(refused)).await;
        assert_eq!((seen, body["error"]["code"].as_str().unwrap()), (status, code));
    }
}

#[actix_web::test]
async fn it_is_for_operators_and_names_one_device() {
    let fixture = Fixture::new();
    let (status, _) = ask(&fixture, &json!({"deviceId": DEVICE}), "another").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    for body in [json!({}), json!({"deviceId": "x"}), json!({"deviceId": DEVICE, "token": "t"})] {
        let (status, told) = ask(&fixture, &body, ADMIN_TOKEN).await;
        assert_eq!((status, told["error"]["code"].as_str()), (StatusCode::BAD_REQUEST, Some("invalidPayload")), "{body}");
    }
}
