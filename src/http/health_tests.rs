use crate::http::{
    admin_routes, public_routes,
    testing::{ADMIN_TOKEN, ALICE, BOB, DESKTOP, Fixture, PHONE, bearer_of, no_device_link},
};
use actix_web::{App, test};
use relay_actors::{
    persistence::Statement,
    relay::{ConnectionInfo, StorageHealth},
};
use relay_protocol::{
    device::Role,
    id::{ConnectionId, Route},
};
use serde_json::{Value, json};
use std::time::Duration;

async fn get_public(fixture: &Fixture, path: &str) -> (u16, Value) {
    let app = test::init_service(App::new().configure(|config| public_routes(config, fixture.api.clone(), &no_device_link()))).await;
    let response = test::call_service(&app, test::TestRequest::with_uri(path).to_request()).await;
    (response.status().as_u16(), test::read_body_json(response).await)
}

async fn get_admin(fixture: &Fixture, path: &str, authorization: Option<&str>) -> (u16, Value) {
    let app = test::init_service(App::new().configure(|config| admin_routes(config, fixture.api.clone()))).await;
    let mut request = test::TestRequest::with_uri(path);
    if let Some(value) = authorization {
        request = request.insert_header(("Authorization", value));
    }
    let response = test::call_service(&app, request.to_request()).await;
    (response.status().as_u16(), test::read_body_json(response).await)
}

#[actix_web::test]
async fn readiness_tells_why_on_the_admin_listener_only() {
    let fixture = Fixture::new();
    for (away, draining) in [(false, false), (true, false), (false, true), (true, true)] {
        fixture.store.set_away(away);
        fixture.relay.state().draining = draining;
        let (status, word) = if away || draining { (503, "notReady") } else { (200, "ready") };
        assert_eq!(get_public(&fixture, "/readyz").await, (status, json!({"status": word})));
        let storage = if away { "unavailable" } else { "ok" };
        let detailed = json!({"status": word, "storage": storage, "unwrittenStatuses": 0, "draining": draining});
        assert_eq!(get_admin(&fixture, "/readyz", None).await, (status, detailed));
        assert_eq!(get_public(&fixture, "/livez").await, (200, json!({"status": "live"})));
        assert_eq!(get_admin(&fixture, "/livez", None).await, (200, json!({"status": "live"})));
    }
}

#[actix_web::test]
async fn statements_that_fail_are_named_with_the_time_since_when() {
    let fixture = Fixture::new();
    let minute = Duration::from_secs(60);
    let failing_for = [(Statement::Devices, minute), (Statement::Statuses, 2 * minute)].into();
    fixture.relay.state().storage = StorageHealth { failing_for, unwritten_statuses: 3 };
    for (away, status, storage) in [(false, 200, "failing"), (true, 503, "unavailable")] {
        fixture.store.set_away(away);
        let (answered, health) = get_admin(&fixture, "/readyz", None).await;
        assert_eq!((answered, &health["storage"], &health["unwrittenStatuses"]), (status, &json!(storage), &json!(3)), "{health}");
        let since = |statement: &str| humantime::parse_rfc3339(health["failingSince"][statement].as_str().unwrap()).unwrap();
        assert_eq!(since("devices").duration_since(since("statuses")).unwrap(), minute);
        assert!(since("devices").elapsed().unwrap() >= minute, "{health}");
        assert_eq!(health["failingSince"].as_object().unwrap().len(), 2);
        assert_eq!(get_public(&fixture, "/readyz").await.1.as_object().unwrap().len(), 1, "nothing of it is public");
    }
}

#[actix_web::test]
async fn connections_are_for_the_admin_token_only() {
    let fixture = Fixture::new();
    let (_, account_token) = bearer_of(ALICE);
    for authorization in [None, Some("Bearer wrong"), Some(account_token.as_str())] {
        let (status, body) = get_admin(&fixture, "/admin/connections", authorization).await;
        assert_eq!((status, &body["error"]["code"]), (401, &json!("unauthorized")));
    }
    let in_query = format!("/admin/connections?token={ADMIN_TOKEN}");
    assert_eq!(get_admin(&fixture, &in_query, None).await.0, 401);
    let bearer = format!("Bearer {ADMIN_TOKEN}");
    assert_eq!(get_admin(&fixture, "/admin/connections", Some(&bearer)).await, (200, json!({"connections": []})));
    for path in ["/admin/nope", "/api/devices", "/"] {
        assert_eq!(get_admin(&fixture, path, Some(&bearer)).await.1["error"]["code"], "notFound", "{path}");
    }
}

#[actix_web::test]
async fn connections_are_listed_by_account() {
    let fixture = Fixture::new();
    let (desktop, phone) = (DESKTOP.parse().unwrap(), PHONE.parse().unwrap());
    for (user, role, route) in [(ALICE, Role::Desktop, Route::Desktop(desktop)), (BOB, Role::Mobile, Route::Phone { phone, desktop })] {
        fixture.relay.state().connections.push(ConnectionInfo {
            connection_id: ConnectionId(uuid::Uuid::nil()),
            user: user.parse().unwrap(),
            role,
            route,
            connected_for: Duration::from_secs(60),
            silent_for: Duration::from_secs(1),
            queued_bytes: 7,
        });
    }
    let bearer = format!("Bearer {ADMIN_TOKEN}");
    let (status, all) = get_admin(&fixture, "/admin/connections", Some(&bearer)).await;
    assert_eq!((status, all["connections"].as_array().unwrap().len()), (200, 2));

    let (_, of_bob) = get_admin(&fixture, &format!("/admin/connections?user={}", BOB.to_uppercase()), Some(&bearer)).await;
    let [connection] = of_bob["connections"].as_array().unwrap().as_slice() else { panic!("{of_bob}") };
    let time = |key: &str| humantime::parse_rfc3339(connection[key].as_str().unwrap()).unwrap();
    assert_eq!(time("lastInboundAt").duration_since(time("connectedAt")).unwrap(), Duration::from_secs(59));
    assert_eq!(
        *connection,
        json!({
            "connectionId": uuid::Uuid::nil(), "userId": BOB, "role": "mobile", "route": format!("{PHONE}::{DESKTOP}"),
            "connectedAt": connection["connectedAt"], "lastInboundAt": connection["lastInboundAt"], "queuedBytes": 7,
        })
    );
    for query in ["user=nope", "user=", "users=x", "user"] {
        let (status, body) = get_admin(&fixture, &format!("/admin/connections?{query}"), Some(&bearer)).await;
        assert_eq!((status, &body["error"]["code"]), (400, &json!("invalidPayload")), "{query}");
    }
}
