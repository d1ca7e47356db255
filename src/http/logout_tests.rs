use crate::http::testing::{ALICE, BOB, DESKTOP, Fixture, PHONE, api_key_of, call, call_with};
use relay_protocol::close::CloseReason;
use serde_json::{Value, json};

const PATH: &str = "/api/auth/logout";

async fn fixture() -> Fixture {
    let fixture = Fixture::new();
    let device = json!({"deviceId": DESKTOP, "role": "desktop", "deviceName": "Name", "platform": "linux", "appVersion": "1"});
    assert_eq!(call(&fixture, ALICE, "POST", "/api/devices", device).await.status, 201);
    fixture
}

fn closed(fixture: &Fixture) -> Vec<(String, String)> {
    let closed = std::mem::take(&mut fixture.relay.state().closed);
    assert!(closed.iter().all(|(_, _, reason)| *reason == CloseReason::LoggedOut));
    closed.iter().map(|(user, device, _)| (user.to_string(), device.to_string())).collect()
}

fn logged_out(fixture: &Fixture) -> Vec<String> {
    std::mem::take(&mut fixture.relay.state().logged_out).iter().map(ToString::to_string).collect()
}

#[actix_web::test]
async fn one_device_or_the_whole_account_is_logged_out() {
    let fixture = fixture().await;
    let one = call(&fixture, ALICE, "POST", PATH, json!({"deviceId": DESKTOP.to_uppercase()})).await;
    assert_eq!((one.status, one.body), (204, Value::Null));
    assert_eq!((closed(&fixture), logged_out(&fixture)), (vec![(ALICE.to_owned(), DESKTOP.to_owned())], vec![]));
    assert_eq!(call(&fixture, ALICE, "POST", PATH, json!({})).await.status, 204);
    let (alice, desktop) = (ALICE.parse().unwrap(), DESKTOP.parse().unwrap());
    assert_eq!(fixture.relay.state().releases, [(alice, Some(desktop)), (alice, None)], "nobody is pushed to who has left");
    assert_eq!((closed(&fixture), logged_out(&fixture)), (vec![], vec![ALICE.to_owned()]));
    assert_eq!(call(&fixture, ALICE, "GET", PATH, Value::Null).await.allow.as_deref(), Some("POST"));
}

/// C87: another account's device is like none, and its router hears nothing.
#[actix_web::test]
async fn a_device_that_the_account_does_not_have_is_not_found() {
    let fixture = fixture().await;
    for (user, device) in [(ALICE, PHONE), (BOB, DESKTOP)] {
        let refused = call(&fixture, user, "POST", PATH, json!({"deviceId": device})).await;
        assert_eq!((refused.status, refused.code()), (404, "deviceNotFound"), "{user}");
    }
    assert_eq!(call(&fixture, ALICE, "DELETE", &format!("/api/devices/{DESKTOP}"), Value::Null).await.status, 204);
    fixture.relay.state().closed.clear();
    assert_eq!(call(&fixture, ALICE, "POST", PATH, json!({"deviceId": DESKTOP})).await.status, 404, "forgotten");
    assert!(closed(&fixture).iter().all(|(user, _)| user == ALICE));
    assert_eq!(logged_out(&fixture), [""; 0]);
}

#[actix_web::test]
async fn a_bad_body_logs_nobody_out() {
    let fixture = fixture().await;
    for body in ["", "[]", "null", r#"{"deviceId":null}"#, r#"{"deviceId":"x"}"#, r#"{"device":"x"}"#] {
        let refused = call_with(&fixture, Some(crate::http::testing::bearer_of(ALICE)), "POST", PATH, body.to_owned()).await;
        assert_eq!((refused.status, refused.code()), (400, "invalidPayload"), "{body}");
    }
    assert_eq!((closed(&fixture), logged_out(&fixture)), (vec![], vec![]));
}

#[actix_web::test]
async fn an_api_key_logs_out_with_write_only() {
    let fixture = fixture().await;
    for (scopes, status) in [("rpc,read", 403), ("write", 204)] {
        let (_, bearer) = api_key_of(&fixture, ALICE, scopes).await;
        assert_eq!(call_with(&fixture, Some(bearer), "POST", PATH, "{}".to_owned()).await.status, status, "{scopes}");
    }
    assert_eq!(logged_out(&fixture), [ALICE]);
}

#[actix_web::test]
async fn sockets_are_closed_while_storage_is_away() {
    let fixture = fixture().await;
    fixture.store.set_away(true);
    let refused = call(&fixture, ALICE, "POST", PATH, json!({"deviceId": DESKTOP})).await;
    assert_eq!((refused.status, refused.code()), (503, "storageUnavailable"));
    assert_eq!(closed(&fixture), [(ALICE.to_owned(), DESKTOP.to_owned())]);
    assert_eq!(call(&fixture, ALICE, "POST", PATH, json!({})).await.status, 204, "the account needs no storage");
    fixture.relay.state().router_away = true;
    assert_eq!(call(&fixture, ALICE, "POST", PATH, json!({})).await.code(), "routerUnavailable");
}
