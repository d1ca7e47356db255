use super::*;
use crate::http::{
    public_routes,
    testing::{ALICE, BOB, DESKTOP, Fixture, PHONE, bearer_of, no_device_link},
};
use actix_web::{App, test};
use serde_json::{Value, json};

/// 2027-01-15T08:00:00.000Z.
const FIRST_MS: i64 = 1_800_000_000_000;
const INSTANCE: RelayInstanceId = RelayInstanceId(uuid::Uuid::from_u128(5));

async fn call(fixture: &Fixture, user: &str, method: &str, path: &str, body: Value) -> (u16, Value) {
    let app = App::new().configure(|config| public_routes(config, fixture.api.clone(), &no_device_link()));
    let app = test::init_service(app).await;
    let request = test::TestRequest::with_uri(path).method(method.parse().unwrap()).insert_header(bearer_of(user));
    let request = if body.is_null() { request } else { request.set_payload(body.to_string()) };
    let response = test::call_service(&app, request.to_request()).await;
    let status = response.status().as_u16();
    let body = test::read_body(response).await;
    (status, if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() })
}

async fn get(fixture: &Fixture, user: &str, device: &str, query: &str) -> (u16, Value) {
    call(fixture, user, "GET", &format!("/api/devices/{device}/presence{query}"), Value::Null).await
}

async fn add(fixture: &Fixture, id: &str, role: &str) {
    let body = json!({"deviceId": id, "role": role, "deviceName": "Name", "platform": "linux", "appVersion": "1"});
    assert_eq!(call(fixture, ALICE, "POST", "/api/devices", body).await.0, 201);
}

/// A desktop, and as many changes of it, a millisecond apart.
async fn with_changes(count: i64) -> Fixture {
    let fixture = Fixture::new();
    add(&fixture, DESKTOP, "desktop").await;
    for offset in 0..count {
        let (status, reason) = match offset % 2 {
            0 => (Presence::Online, PresenceReason::Registered),
            _ => (Presence::Reconnecting, PresenceReason::Saturated),
        };
        fixture.store.add_change(DESKTOP, PresenceChange { status, reason, at: EpochMs(FIRST_MS + offset), instance: INSTANCE });
    }
    fixture
}

/// The milliseconds of the entries' times, in their order.
fn milliseconds(body: &Value) -> Vec<i64> {
    let at = |entry: &Value| parse_rfc3339(entry["at"].as_str().unwrap()).unwrap().0 - FIRST_MS;
    body["entries"].as_array().unwrap().iter().map(at).collect()
}

#[actix_web::test]
async fn entries_say_what_why_when_and_who_wrote_it() {
    let fixture = with_changes(2).await;
    let entry = |status: &str, reason: &str, at: &str| json!({"status": status, "reason": reason, "at": at, "relayInstanceId": INSTANCE});
    let expected = json!({"entries": [
        entry("reconnecting", "saturated", "2027-01-15T08:00:00.001Z"),
        entry("online", "registered", "2027-01-15T08:00:00.000Z"),
    ]});
    assert_eq!(get(&fixture, ALICE, DESKTOP, "").await, (200, expected.clone()));
    assert_eq!(get(&fixture, ALICE, &DESKTOP.to_uppercase(), "").await, (200, expected));
}

#[actix_web::test]
async fn a_page_has_its_limit_and_ends_before_its_time() {
    let fixture = with_changes(250).await;
    let newest = |count: i64| (250 - count..250).rev().collect::<Vec<_>>();
    for (query, expected) in [
        ("", newest(50)),
        ("?", newest(50)),
        ("?limit=1", newest(1)),
        ("?limit=200", newest(200)),
        ("?limit=2&before=2027-01-15T08:00:00.007Z", vec![6, 5]),
        ("?before=2027-01-15T10:00:00.002%2B02:00", vec![1, 0]),
        ("?before=2027-01-15T08:00:00.0011Z", vec![1, 0]),
        ("?before=2027-01-15T08:00:00Z", vec![]),
    ] {
        let (status, body) = get(&fixture, ALICE, DESKTOP, query).await;
        assert_eq!((status, milliseconds(&body)), (200, expected), "{query}");
    }
}

#[actix_web::test]
async fn a_query_that_breaks_a_rule_is_refused_by_name() {
    let fixture = with_changes(1).await;
    for (query, named) in [
        ("?limit=0", "limit"),
        ("?limit=201", "limit"),
        ("?limit=-1", "limit"),
        ("?limit=", "limit"),
        ("?limit=ten", "limit"),
        ("?limit=1&limit=2", "limit"),
        ("?before=yesterday", "before"),
        ("?before=1800000000000", "before"),
        ("?before=", "before"),
        ("?after=2027-01-15T08:00:00Z", "after"),
        ("?Limit=1", "Limit"),
    ] {
        let (status, body) = get(&fixture, ALICE, DESKTOP, query).await;
        assert_eq!((status, &body["error"]["code"]), (400, &json!("invalidPayload")), "{query}");
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains(named) && !message.contains("deserialize"), "{query}: {message}");
    }
}

#[actix_web::test]
async fn only_the_accounts_own_live_devices_have_a_history() {
    let fixture = with_changes(1).await;
    let (_, unknown) = get(&fixture, ALICE, PHONE, "").await;
    assert_eq!(unknown["error"]["code"], "deviceNotFound");
    assert_eq!(get(&fixture, BOB, DESKTOP, "").await, (404, unknown.clone()), "as if it were not there");
    assert_eq!(get(&fixture, ALICE, "no-uuid", "").await.1["error"]["code"], "invalidDeviceId");
    assert_eq!(call(&fixture, ALICE, "POST", &format!("/api/devices/{DESKTOP}/presence"), json!({})).await.0, 405);
    assert_eq!(call(&fixture, ALICE, "DELETE", &format!("/api/devices/{DESKTOP}"), Value::Null).await.0, 204);
    assert_eq!(get(&fixture, ALICE, DESKTOP, "").await, (404, unknown));
    fixture.store.set_away(true);
    let (status, body) = get(&fixture, ALICE, DESKTOP, "").await;
    assert_eq!((status, &body["error"]["code"], &body["error"]["retryable"]), (503, &json!("storageUnavailable"), &json!(true)));
}

#[actix_web::test]
async fn a_phone_is_shown_online_or_disconnected() {
    let fixture = Fixture::new();
    add(&fixture, PHONE, "mobile").await;
    for (offset, status) in [Presence::Online, Presence::Reconnecting, Presence::Disconnected].into_iter().enumerate() {
        let at = EpochMs(FIRST_MS + offset as i64);
        let change = PresenceChange { status, reason: PresenceReason::Silent, at, instance: INSTANCE };
        fixture.store.add_change(PHONE, change);
    }
    let (_, body) = get(&fixture, ALICE, PHONE, "").await;
    let shown: Vec<&Value> = body["entries"].as_array().unwrap().iter().map(|entry| &entry["status"]).collect();
    assert_eq!(shown, ["disconnected", "disconnected", "online"]);
}
