use super::*;
use crate::http::testing::{ALICE, Answer, BOB, DESKTOP, Fixture, PHONE, bearer_of, call, call_with};
use relay_actors::relay::ConnectionInfo;
use relay_protocol::id::{ConnectionId, Route};
use serde_json::{Value, json};
use std::time::Duration;

fn registration_of(id: &str, role: &str) -> Value {
    json!({"deviceId": id, "role": role, "deviceName": "Name", "platform": "linux", "appVersion": "1.2.3"})
}

async fn add(fixture: &Fixture, user: &str, id: &str, role: &str) -> Answer {
    call(fixture, user, "POST", "/api/devices", registration_of(id, role)).await
}

fn connected(fixture: &Fixture, user: &str, id: &str, role: Role) {
    fixture.relay.state().connections.push(ConnectionInfo {
        connection_id: ConnectionId(uuid::Uuid::nil()),
        user: user.parse().unwrap(),
        role,
        route: Route::Desktop(id.parse().unwrap()),
        connected_for: Duration::ZERO,
        silent_for: Duration::ZERO,
        queued_bytes: 0,
    });
}

fn closed(fixture: &Fixture) -> Vec<(String, CloseReason)> {
    std::mem::take(&mut fixture.relay.state().closed).into_iter().map(|(_, device, reason)| (device.to_string(), reason)).collect()
}

#[actix_web::test]
async fn an_account_that_is_full_registers_no_other_device_and_updates_its_own() {
    let fixture = Fixture::new();
    add(&fixture, ALICE, DESKTOP, "desktop").await;
    fixture.store.set_full();
    let refused = add(&fixture, ALICE, PHONE, "mobile").await;
    assert_eq!((refused.status, refused.code(), &refused.body["error"]["retryable"]), (409, "tooManyDevices", &json!(false)));
    assert_eq!(add(&fixture, ALICE, DESKTOP, "desktop").await.status, 200);
}

#[actix_web::test]
async fn a_device_is_registered_once_and_updated_afterwards() {
    let fixture = Fixture::new();
    let first = call(&fixture, ALICE, "POST", "/api/devices", registration_of(&DESKTOP.to_uppercase(), "desktop")).await;
    assert_eq!(first.status, 201);
    let times = [first.body["createdAt"].clone(), first.body["updatedAt"].clone()];
    for time in &times {
        assert!(humantime::parse_rfc3339(time.as_str().unwrap()).is_ok(), "{time}");
    }
    let [created_at, updated_at] = times;
    assert_eq!(
        first.body,
        json!({
            "deviceId": DESKTOP, "role": "desktop", "deviceName": "Name", "platform": "linux", "appVersion": "1.2.3",
            "relayEligible": true, "presence": "disconnected", "status": "disconnected", "statusAt": null,
            "createdAt": created_at, "updatedAt": updated_at,
        })
    );

    let again = json!({"deviceId": DESKTOP, "role": "desktop", "deviceName": "Büro", "platform": "macos", "appVersion": "2"});
    let second = call(&fixture, ALICE, "POST", "/api/devices", again).await;
    assert_eq!((second.status, &second.body["deviceName"], &second.body["platform"]), (200, &json!("Büro"), &json!("macos")));
    assert_eq!(closed(&fixture), [], "an update by itself closes nothing");
}

#[actix_web::test]
async fn a_device_without_an_id_gets_one() {
    let fixture = Fixture::new();
    let mut registration = registration_of("", "mobile");
    for absent in [None, Some(Value::Null)] {
        match absent {
            None => registration.as_object_mut().unwrap().remove("deviceId"),
            Some(null) => registration.as_object_mut().unwrap().insert("deviceId".into(), null),
        };
        let answer = call(&fixture, ALICE, "POST", "/api/devices", registration.clone()).await;
        assert_eq!(answer.status, 201);
        assert!(answer.body["deviceId"].as_str().unwrap().parse::<DeviceId>().is_ok());
    }
    let list = call(&fixture, ALICE, "GET", "/api/devices", Value::Null).await;
    assert_eq!(list.body["devices"].as_array().unwrap().len(), 2);
}

#[actix_web::test]
async fn an_account_sees_and_changes_its_own_devices_only() {
    let fixture = Fixture::new();
    add(&fixture, ALICE, DESKTOP, "desktop").await;
    let stolen = add(&fixture, BOB, DESKTOP, "desktop").await;
    assert_eq!((stolen.status, stolen.code(), &stolen.body["error"]["retryable"]), (409, "deviceOwnershipFailed", &json!(false)));
    let path = format!("/api/devices/{DESKTOP}");
    for (method, body) in [("PATCH", json!({"relayEligible": false})), ("DELETE", Value::Null)] {
        let answer = call(&fixture, BOB, method, &path, body).await;
        assert_eq!((answer.status, answer.code()), (404, "deviceNotFound"), "{method}");
    }
    let alice = ALICE.parse().unwrap();
    assert!(fixture.relay.state().closed.iter().all(|(user, ..)| *user != alice), "nothing of the owner's was closed");
    assert_eq!(call(&fixture, BOB, "GET", "/api/devices", Value::Null).await.body, json!({"devices": []}));
    let own = call(&fixture, ALICE, "GET", "/api/devices", Value::Null).await;
    assert_eq!((own.status, &own.body["devices"][0]["relayEligible"]), (200, &json!(true)));
}

#[actix_web::test]
async fn live_presence_stands_beside_the_stored_status() {
    let fixture = Fixture::new();
    add(&fixture, ALICE, DESKTOP, "desktop").await;
    add(&fixture, ALICE, PHONE, "mobile").await;
    fixture.store.set_status(DESKTOP, Presence::Online, EpochMs(0));
    for (live, desktop, phone) in [
        (None, "disconnected", "disconnected"),
        (Some(Presence::Online), "online", "online"),
        (Some(Presence::Reconnecting), "reconnecting", "disconnected"),
        (Some(Presence::Disconnected), "disconnected", "disconnected"),
    ] {
        let devices = [DESKTOP, PHONE].map(|id| id.parse().unwrap());
        fixture.relay.state().presence = live.map(|live| devices.map(|id| (id, live)).into()).unwrap_or_default();
        let list = call(&fixture, ALICE, "GET", "/api/devices", Value::Null).await.body;
        let shown = [0, 1].map(|index| list["devices"][index]["presence"].as_str().unwrap().to_owned());
        assert_eq!(shown, [desktop, phone]);
        assert_eq!(list["devices"][0]["status"], "online");
        assert_eq!(list["devices"][0]["statusAt"], "1970-01-01T00:00:00.000Z");
    }
}

#[actix_web::test]
async fn eligibility_off_closes_the_devices_sockets() {
    let fixture = Fixture::new();
    add(&fixture, ALICE, DESKTOP, "desktop").await;
    let path = format!("/api/devices/{}", DESKTOP.to_uppercase());
    for (patch, eligible, closes) in [
        (json!({"deviceName": "Renamed"}), true, false),
        (json!({}), true, false),
        (json!({"relayEligible": false}), false, true),
        (json!({"relayEligible": true}), true, false),
    ] {
        let answer = call(&fixture, ALICE, "PATCH", &path, patch.clone()).await;
        assert_eq!((answer.status, &answer.body["relayEligible"]), (200, &json!(eligible)), "{patch}");
        assert_eq!(answer.body["deviceName"], "Renamed");
        let expected = if closes { vec![(DESKTOP.to_owned(), CloseReason::NotEligible)] } else { Vec::new() };
        assert_eq!(closed(&fixture), expected, "{patch}");
    }
    let mut registration = registration_of(DESKTOP, "desktop");
    registration["relayEligible"] = json!(false);
    assert_eq!(call(&fixture, ALICE, "POST", "/api/devices", registration).await.status, 200);
    assert_eq!(closed(&fixture), [(DESKTOP.to_owned(), CloseReason::NotEligible)]);
}

#[actix_web::test]
async fn a_device_that_takes_the_other_role_loses_its_sockets() {
    let fixture = Fixture::new();
    add(&fixture, ALICE, DESKTOP, "desktop").await;
    connected(&fixture, ALICE, DESKTOP, Role::Desktop);
    add(&fixture, ALICE, DESKTOP, "desktop").await;
    assert_eq!(closed(&fixture), []);
    let answer = add(&fixture, ALICE, DESKTOP, "mobile").await;
    assert_eq!((answer.status, &answer.body["role"]), (200, &json!("mobile")));
    assert_eq!(closed(&fixture), [(DESKTOP.to_owned(), CloseReason::NotEligible)]);
}

#[actix_web::test]
async fn a_forgotten_device_is_closed_and_gone_until_it_registers_again() {
    let fixture = Fixture::new();
    add(&fixture, ALICE, DESKTOP, "desktop").await;
    let path = format!("/api/devices/{DESKTOP}");
    let answer = call(&fixture, ALICE, "DELETE", &path, Value::Null).await;
    assert_eq!((answer.status, &answer.body), (204, &Value::Null));
    assert_eq!(closed(&fixture), [(DESKTOP.to_owned(), CloseReason::DeviceForgotten)]);
    assert_eq!(call(&fixture, ALICE, "GET", "/api/devices", Value::Null).await.body, json!({"devices": []}));
    assert_eq!(call(&fixture, ALICE, "PATCH", &path, json!({})).await.code(), "deviceNotFound");
    assert_eq!(call(&fixture, ALICE, "DELETE", &path, Value::Null).await.code(), "deviceNotFound");
    assert_eq!(add(&fixture, ALICE, DESKTOP, "desktop").await.status, 201);
}

#[actix_web::test]
async fn a_forgetting_that_could_not_close_is_finished_by_repeating_it() {
    let fixture = Fixture::new();
    add(&fixture, ALICE, DESKTOP, "desktop").await;
    let path = format!("/api/devices/{DESKTOP}");
    fixture.relay.state().router_away = true;
    let answer = call(&fixture, ALICE, "DELETE", &path, Value::Null).await;
    assert_eq!((answer.status, answer.code(), &answer.body["error"]["retryable"]), (503, "routerUnavailable", &json!(true)));
    fixture.relay.state().router_away = false;
    assert_eq!(call(&fixture, ALICE, "DELETE", &path, Value::Null).await.status, 404);
    assert_eq!(closed(&fixture), [(DESKTOP.to_owned(), CloseReason::DeviceForgotten)]);
}

#[actix_web::test]
async fn storage_trouble_is_retryable_and_tells_nothing() {
    let fixture = Fixture::new();
    fixture.store.set_away(true);
    let path = format!("/api/devices/{DESKTOP}");
    for (method, path, body) in [
        ("POST", "/api/devices", registration_of(DESKTOP, "desktop")),
        ("GET", "/api/devices", Value::Null),
        ("PATCH", &path, json!({})),
        ("DELETE", &path, Value::Null),
    ] {
        let answer = call(&fixture, ALICE, method, path, body).await;
        assert_eq!(
            (answer.status, answer.code(), &answer.body["error"]["retryable"]),
            (503, "storageUnavailable", &json!(true)),
            "{method}"
        );
        assert!(!answer.body.to_string().contains("secret detail"));
    }
    assert_eq!(closed(&fixture), [], "nothing is closed on a guess");
}

#[actix_web::test]
async fn without_a_valid_token_nothing_happens() {
    let fixture = Fixture::new();
    let (_, valid) = bearer_of(ALICE);
    let in_query = format!("/api/devices?token={0}&access_token={0}", valid.trim_start_matches("Bearer "));
    for (header, path, challenge) in [
        (None, "/api/devices", "Bearer"),
        (None, in_query.as_str(), "Bearer"),
        (Some(format!("{valid}x")), "/api/devices", r#"Bearer error="invalid_token""#),
    ] {
        let header = header.map(|value| ("Authorization", value));
        let answer = call_with(&fixture, header, "POST", path, registration_of(DESKTOP, "desktop").to_string()).await;
        assert_eq!((answer.status, answer.code()), (401, "unauthorized"), "{path}");
        assert_eq!(answer.challenge.as_deref(), Some(challenge));
    }
    assert_eq!(call(&fixture, ALICE, "GET", "/api/devices", Value::Null).await.body, json!({"devices": []}));
}

#[actix_web::test]
async fn a_bad_registration_names_the_field() {
    let fixture = Fixture::new();
    for (field, bad) in [
        ("deviceId", vec![json!("x"), json!(""), json!(1), json!(format!("{DESKTOP} ")), json!(format!("{DESKTOP}\0"))]),
        ("role", vec![json!(null), json!("phone"), json!("Desktop"), json!(1)]),
        ("deviceName", vec![json!(null), json!(""), json!(" \t"), json!("a\0b"), json!(5), json!("n".repeat(201))]),
        ("platform", vec![json!(null), json!("\0"), json!("p".repeat(65)), json!(["linux"])]),
        ("appVersion", vec![json!(null), json!("1\0"), json!("1".repeat(65)), json!(1.7)]),
        ("relayEligible", vec![json!("true"), json!(1)]),
        ("colour", vec![json!("unknown")]),
    ] {
        for value in bad {
            let mut registration = registration_of(DESKTOP, "desktop");
            registration[field] = value.clone();
            let answer = call(&fixture, ALICE, "POST", "/api/devices", registration).await;
            assert_eq!((answer.status, answer.code()), (400, "invalidPayload"), "{field}: {value}");
            assert!(answer.message().contains(field), "{field}: {}", answer.message());
        }
    }
    for field in ["role", "deviceName", "platform", "appVersion"] {
        let mut registration = registration_of(DESKTOP, "desktop");
        registration.as_object_mut().unwrap().remove(field);
        let answer = call(&fixture, ALICE, "POST", "/api/devices", registration).await;
        assert!(answer.status == 400 && answer.message().contains(field), "{field}: {}", answer.message());
    }
    let mut longest = registration_of(DESKTOP, "desktop");
    longest["deviceName"] = json!("\u{1F4F1}".repeat(200));
    assert_eq!(call(&fixture, ALICE, "POST", "/api/devices", longest).await.status, 201);
}

#[actix_web::test]
async fn a_body_must_be_one_json_object_of_bounded_size() {
    let fixture = Fixture::new();
    let valid = registration_of(DESKTOP, "desktop").to_string();
    let duplicate = valid.replacen('{', r#"{"role":"mobile","#, 1);
    for body in ["", "null", "[]", "\"x\"", "{", &valid[..valid.len() - 1], &format!("{valid}{valid}"), &duplicate, "[null,1,1,1,1,null]"] {
        let answer = call_with(&fixture, Some(bearer_of(ALICE)), "POST", "/api/devices", body.to_owned()).await;
        assert_eq!((answer.status, answer.code()), (400, "invalidPayload"), "{body}");
    }
    let padded = |bytes: usize| format!("{valid}{}", " ".repeat(bytes - valid.len()));
    let too_large = call_with(&fixture, Some(bearer_of(ALICE)), "POST", "/api/devices", padded(16 * 1024 + 1)).await;
    assert_eq!((too_large.status, too_large.code()), (413, "payloadTooLarge"));
    assert_eq!(call_with(&fixture, Some(bearer_of(ALICE)), "POST", "/api/devices", padded(16 * 1024)).await.status, 201);
}

#[actix_web::test]
async fn paths_and_methods_are_judged() {
    let fixture = Fixture::new();
    for path in ["/api/devices/nope", "/api/devices/%00", "/api/devices/de5c00000000400080000000000000003"] {
        for method in ["PATCH", "DELETE"] {
            let answer = call(&fixture, ALICE, method, path, json!({})).await;
            assert_eq!((answer.status, answer.code()), (400, "invalidDeviceId"), "{method} {path}");
        }
    }
    for path in ["/", "/api", "/api/devices/", "/api/devices/a/b", "/admin/connections", "/metrics"] {
        let answer = call(&fixture, ALICE, "GET", path, Value::Null).await;
        assert_eq!((answer.status, answer.code()), (404, "notFound"), "{path}");
    }
    for (method, path, allow) in
        [("PUT", "/api/devices", "GET, POST"), ("GET", "/api/devices/x", "PATCH, DELETE"), ("POST", "/livez", "GET")]
    {
        let answer = call(&fixture, ALICE, method, path, Value::Null).await;
        assert_eq!((answer.status, answer.code(), answer.allow.as_deref()), (405, "methodNotAllowed", Some(allow)), "{method} {path}");
    }
}
