use crate::fake_relay::{FakeRelay, device};
use relay_endpoints::devices::{ApiError, DeviceChange, Devices, NewDevice};
use relay_protocol::device::{Presence, Role};
use serde_json::{Value, json};

fn row() -> Value {
    json!({"deviceId": device(1), "role": "desktop", "deviceName": "d", "platform": "linux", "appVersion": "1.0", "relayEligible": true,
           "status": "disconnected", "presence": "online", "createdAt": "2026-01-01T00:00:00Z"})
}

#[tokio::test]
async fn each_call_has_its_method_path_and_body() {
    let relay = FakeRelay::start().await;
    let devices = Devices::new(relay.address.clone(), "a-token".to_owned()).unwrap();
    let row = row().to_string();
    let new = NewDevice {
        device_id: None,
        role: Role::Desktop,
        device_name: "d".to_owned(),
        platform: "linux".to_owned(),
        app_version: "1.0".to_owned(),
        relay_eligible: None,
    };
    let (created, asked) = tokio::join!(devices.register(&new), relay.answer_http("201 Created", &row));
    assert!(asked.starts_with("POST /api/devices HTTP/1.1\r\n"), "{asked}");
    assert!(asked.to_ascii_lowercase().contains("authorization: bearer a-token\r\n"), "{asked}");
    assert!(asked.ends_with(r#"{"role":"desktop","deviceName":"d","platform":"linux","appVersion":"1.0"}"#), "{asked}");
    let created = created.unwrap();
    assert_eq!((created.device_id, created.presence), (device(1), Some(Presence::Online)));

    let list = format!(r#"{{"devices":[{row}]}}"#);
    let (listed, asked) = tokio::join!(devices.list(), relay.answer_http("200 OK", &list));
    assert!(asked.starts_with("GET /api/devices HTTP/1.1\r\n"), "{asked}");
    assert_eq!(listed.unwrap(), [created]);

    let change = DeviceChange { relay_eligible: Some(false), ..DeviceChange::default() };
    let (changed, asked) = tokio::join!(devices.change(device(1), &change), relay.answer_http("200 OK", &row));
    changed.unwrap();
    assert!(asked.starts_with(&format!("PATCH /api/devices/{} HTTP/1.1\r\n", device(1))), "{asked}");
    assert!(asked.ends_with(r#"{"relayEligible":false}"#), "{asked}");

    let (forgotten, asked) = tokio::join!(devices.forget(device(1)), relay.answer_http("204 No Content", ""));
    forgotten.unwrap();
    assert!(asked.starts_with(&format!("DELETE /api/devices/{} HTTP/1.1\r\n", device(1))), "{asked}");
}

#[tokio::test]
async fn errors_are_typed() {
    let relay = FakeRelay::start().await;
    let devices = Devices::new(relay.address.clone(), "t".to_owned()).unwrap();
    let body = r#"{"error":{"code":"deviceOwnershipFailed","message":"m","retryable":false}}"#;
    let (refused, _asked) = tokio::join!(devices.list(), relay.answer_http("409 Conflict", body));
    assert!(matches!(refused, Err(ApiError::Refused { status: 409, error }) if error.code == "deviceOwnershipFailed"));
    let (odd, _asked) = tokio::join!(devices.list(), relay.answer_http("502 Bad Gateway", "<html>"));
    assert!(matches!(odd, Err(ApiError::Unexpected { status: 502, .. })));
    let (odd, _asked) = tokio::join!(devices.list(), relay.answer_http("200 OK", "[]"));
    assert!(matches!(odd, Err(ApiError::Unexpected { status: 200, .. })));
    drop(relay);
    assert!(matches!(devices.list().await, Err(ApiError::Unreachable(_))));
}
