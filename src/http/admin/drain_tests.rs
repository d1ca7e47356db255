use crate::http::{
    admin_routes,
    testing::{ADMIN_TOKEN, ALICE, DESKTOP, Fixture},
    time::parse_rfc3339,
};
use actix_web::{App, test};
use relay_actors::{
    clock::EpochMs,
    drain::Phase,
    processes::SeenProcesses,
    relay::{ConnectionInfo, Load, Progress},
    store::{LiveProcess, ProcessRecord},
};
use relay_protocol::{
    device::Role,
    id::{ConnectionId, RelayInstanceId, Route},
};
use serde_json::{Value, json};
use std::time::Duration;

async fn call(fixture: &Fixture, method: &str, path: &str, token: &str, body: &'static str) -> (u16, Value) {
    let app = test::init_service(App::new().configure(|config| admin_routes(config, fixture.api.clone()))).await;
    let request = test::TestRequest::with_uri(path).method(method.parse().unwrap()).set_payload(body);
    let request = request.insert_header(("Authorization", format!("Bearer {token}")));
    let response = test::call_service(&app, request.to_request()).await;
    let status = response.status().as_u16();
    let body = test::read_body(response).await;
    (status, if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() })
}

#[actix_web::test]
async fn a_drain_is_answered_with_its_progress_each_time() {
    let fixture = Fixture::new();
    let views = [("serving", Phase::Serving), ("draining", Phase::Draining), ("closing", Phase::Closing), ("drained", Phase::Drained)];
    for (word, phase) in views {
        fixture.relay.state().progress = Progress { phase, in_flight: 3, sockets_left: 7, elapsed: Duration::from_millis(1_234) };
        let answer = call(&fixture, "POST", "/admin/drain", ADMIN_TOKEN, "").await;
        assert_eq!(answer, (200, json!({"phase": word, "inFlight": 3, "socketsLeft": 7, "elapsedMs": 1_234})));
    }
    assert!(fixture.relay.state().draining && !fixture.relay.state().ends_process);
}

#[actix_web::test]
async fn the_process_ends_only_if_the_body_says_so() {
    for (body, status, ends) in [
        ("", 200, false),
        ("{}", 200, false),
        (r#"{"exitAfterDrain":false}"#, 200, false),
        (r#"{"exitAfterDrain":true}"#, 200, true),
        (r#"{"exitAfterDrain":1}"#, 400, false),
        (r#"{"exit":true}"#, 400, false),
        ("[true]", 400, false),
        ("true", 400, false),
    ] {
        let fixture = Fixture::new();
        assert_eq!(call(&fixture, "POST", "/admin/drain", ADMIN_TOKEN, body).await.0, status, "{body}");
        let state = fixture.relay.state();
        assert_eq!((state.draining, state.ends_process), (status == 200, ends), "{body}");
    }
}

#[actix_web::test]
async fn nobody_but_an_operator_has_a_say() {
    let fixture = Fixture::new();
    let close = format!("/admin/connections/{DESKTOP}/close");
    for (method, path) in [("POST", "/admin/drain"), ("GET", "/admin/status"), ("POST", close.as_str())] {
        assert_eq!(call(&fixture, method, path, "wrong", "").await.0, 401, "{path}");
        assert_eq!(call(&fixture, "DELETE", path, ADMIN_TOKEN, "").await.0, 405, "{path}");
    }
    assert!(!fixture.relay.state().draining);
}

#[actix_web::test]
async fn the_status_says_what_the_process_is_and_holds() {
    let fixture = Fixture::new();
    {
        let mut state = fixture.relay.state();
        state.load = Load { desktops: 1, phones: 2, unregistered: 3, accounts: 4, pending: 5, leases: 6 };
        state.storage.unwritten_statuses = 7;
        let (age, last_seen) = (Some(Duration::from_secs(20)), Duration::from_secs(25));
        let live = [(0, false), (1, true)].map(|(n, is_draining)| LiveProcess {
            record: ProcessRecord {
                instance: RelayInstanceId(uuid::Uuid::from_u128(n)),
                version: "1.2.3".into(),
                host: "somewhere".into(),
                pid: 7,
                started_at: EpochMs(1_789_214_400_000),
                is_draining,
            },
            last_seen,
        });
        state.processes = SeenProcesses { age, live: live.into() };
    }
    for (away, storage) in [(false, "ok"), (true, "unavailable")] {
        fixture.store.set_away(away);
        let before = EpochMs::now();
        let (status, mut body) = call(&fixture, "GET", "/admin/status", ADMIN_TOKEN, "").await;
        // What is known by its age moves with the clock.
        let is_ago = |time: Value, ago: Duration| {
            let at = parse_rfc3339(time.as_str().unwrap()).unwrap();
            before.minus(ago) <= at && at <= EpochMs::now().minus(ago)
        };
        assert!(is_ago(body["processesReadAt"].take(), Duration::from_secs(20)));
        for process in body["processes"].as_array_mut().unwrap() {
            assert!(is_ago(process["lastSeenAt"].take(), Duration::from_secs(25)));
        }
        let expected = json!({
            "relayInstanceId": uuid::Uuid::nil(), "version": env!("CARGO_PKG_VERSION"),
            "startedAt": "2026-09-12T12:00:00.000Z", "uptimeMs": 90_000,
            "drain": {"phase": "serving", "inFlight": 0, "socketsLeft": 0, "elapsedMs": 0},
            "sockets": {"desktop": 1, "mobile": 2, "unregistered": 3},
            "accounts": 4, "pending": 5, "leases": 6, "storage": storage, "unwrittenStatuses": 7, "processesReadAt": null, "processes": [
                {"relayInstanceId": uuid::Uuid::nil(), "self": true, "phase": "serving", "version": "1.2.3", "host": "somewhere", "pid": 7,
                 "startedAt": "2026-09-12T12:00:00.000Z", "lastSeenAt": null},
                {"relayInstanceId": uuid::Uuid::from_u128(1), "self": false, "phase": "draining", "version": "1.2.3", "host": "somewhere",
                 "pid": 7, "startedAt": "2026-09-12T12:00:00.000Z", "lastSeenAt": null},
            ],
        });
        assert_eq!((status, body), (200, expected));
    }
}

#[actix_web::test]
async fn a_connection_is_closed_by_its_id() {
    let fixture = Fixture::new();
    let id = uuid::Uuid::from_u128(7);
    fixture.relay.state().connections.push(ConnectionInfo {
        connection_id: ConnectionId(id),
        user: ALICE.parse().unwrap(),
        role: Role::Desktop,
        route: Route::Desktop(DESKTOP.parse().unwrap()),
        connected_for: Duration::ZERO,
        silent_for: Duration::ZERO,
        queued_bytes: 0,
    });
    for unknown in ["nope", DESKTOP] {
        let (status, body) = call(&fixture, "POST", &format!("/admin/connections/{unknown}/close"), ADMIN_TOKEN, "").await;
        assert_eq!((status, &body["error"]["code"]), (404, &json!("connectionNotFound")), "{unknown}");
    }
    let close = format!("/admin/connections/{id}/close");
    assert_eq!(call(&fixture, "POST", &close, ADMIN_TOKEN, "").await, (204, Value::Null));
    assert_eq!(call(&fixture, "POST", &close, ADMIN_TOKEN, "").await.0, 404);
}
