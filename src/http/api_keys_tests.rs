use super::*;
use crate::http::testing::{ALICE, BOB, DESKTOP, Fixture, api_key_of, bearer_of, call, call_with};
use serde_json::{Value, json};

fn revocations(fixture: &Fixture) -> Vec<(String, String)> {
    std::mem::take(&mut fixture.relay.state().revoked).iter().map(|(user, key)| (user.to_string(), key.to_string())).collect()
}

#[actix_web::test]
async fn a_key_is_shown_once_listed_and_revoked() {
    let fixture = Fixture::new();
    let made = call(&fixture, ALICE, "POST", "/api/api-keys", json!({"name": "CI", "scopes": ["read", "rpc"]})).await;
    assert_eq!(made.status, 201);
    assert_eq!((&made.body["name"], &made.body["scopes"]), (&json!("CI"), &json!(["rpc", "read"])));
    let (id, key) = (made.body["apiKeyId"].as_str().unwrap(), made.body["apiKey"].as_str().unwrap());
    assert!(key.starts_with("rk_") && key.len() == 46);

    let listed = call(&fixture, ALICE, "GET", "/api/api-keys", Value::Null).await;
    let mut shown = made.body.clone();
    shown.as_object_mut().unwrap().remove("apiKey");
    assert_eq!((listed.status, &listed.body), (200, &json!({"apiKeys": [shown]})));

    let bearer = ("Authorization", format!("Bearer {key}"));
    assert_eq!(call_with(&fixture, Some(bearer.clone()), "GET", "/api/devices", String::new()).await.status, 200);
    let path = format!("/api/api-keys/{}", id.to_uppercase());
    assert_eq!(call(&fixture, ALICE, "DELETE", &path, Value::Null).await.status, 204);
    assert_eq!(revocations(&fixture), [(ALICE.to_owned(), id.to_owned())]);
    let refused = call_with(&fixture, Some(bearer), "GET", "/api/devices", String::new()).await;
    assert_eq!((refused.status, refused.code()), (401, "unauthorized"));
    assert_eq!(refused.challenge.as_deref(), Some(r#"Bearer error="invalid_token""#));
    assert_eq!(call(&fixture, ALICE, "GET", "/api/api-keys", Value::Null).await.body, json!({"apiKeys": []}));

    let again = call(&fixture, ALICE, "DELETE", &path, Value::Null).await;
    assert_eq!((again.status, again.code()), (404, "apiKeyNotFound"));
    assert_eq!(revocations(&fixture).len(), 1, "what an earlier call could not close is closed");
}

#[actix_web::test]
async fn a_key_has_a_name_or_none_and_at_least_one_scope() {
    let fixture = Fixture::new();
    for (body, named) in [
        (json!({"scopes": []}), "scopes"),
        (json!({"scopes": "rpc"}), "scopes"),
        (json!({"scopes": ["admin"]}), "scopes"),
        (json!({"scopes": ["RPC"]}), "scopes"),
        (json!({}), "scopes"),
        (json!({"scopes": ["rpc"], "name": " "}), "name"),
        (json!({"scopes": ["rpc"], "name": "a\u{0}b"}), "name"),
        (json!({"scopes": ["rpc"], "name": "x".repeat(API_KEY_NAME_CHARS_MAX + 1)}), "name"),
        (json!({"scopes": ["rpc"], "name": 5}), "name"),
        (json!({"scopes": ["rpc"], "user": BOB}), "user"),
    ] {
        let refused = call(&fixture, ALICE, "POST", "/api/api-keys", body.clone()).await;
        assert_eq!((refused.status, refused.code()), (400, "invalidPayload"), "{body}");
        assert!(refused.message().contains(named), "{body}: {}", refused.message());
    }
    for body in [json!({"scopes": ["write", "write"]}), json!({"scopes": ["rpc"], "name": "\u{e4}".repeat(API_KEY_NAME_CHARS_MAX)})] {
        assert_eq!(call(&fixture, ALICE, "POST", "/api/api-keys", body).await.status, 201);
    }
}

#[actix_web::test]
async fn an_account_has_a_bounded_number_of_keys() {
    let fixture = Fixture::new();
    let one = json!({"scopes": ["rpc"]});
    for _ in 0..API_KEYS_PER_ACCOUNT_MAX {
        assert_eq!(call(&fixture, ALICE, "POST", "/api/api-keys", one.clone()).await.status, 201);
    }
    let refused = call(&fixture, ALICE, "POST", "/api/api-keys", one.clone()).await;
    assert_eq!((refused.status, refused.code(), &refused.body["error"]["retryable"]), (409, "tooManyApiKeys", &json!(false)));
    assert!(refused.message().contains("100"), "{}", refused.message());
    assert_eq!(call(&fixture, BOB, "POST", "/api/api-keys", one).await.status, 201);
}

/// C87: of another account's keys one sees, and changes, nothing.
#[actix_web::test]
async fn an_account_sees_and_revokes_its_own_keys_only() {
    let fixture = Fixture::new();
    let (id, bearer) = api_key_of(&fixture, ALICE, "read").await;
    assert_eq!(call(&fixture, BOB, "GET", "/api/api-keys", Value::Null).await.body, json!({"apiKeys": []}));
    let foreign = call(&fixture, BOB, "DELETE", &format!("/api/api-keys/{id}"), Value::Null).await;
    let unknown = call(&fixture, BOB, "DELETE", &format!("/api/api-keys/{DESKTOP}"), Value::Null).await;
    let nonsense = call(&fixture, BOB, "DELETE", "/api/api-keys/nonsense", Value::Null).await;
    for refused in [&foreign, &unknown, &nonsense] {
        assert_eq!((refused.status, &refused.body), (404, &foreign.body));
    }
    assert!(revocations(&fixture).iter().all(|(user, _)| user == BOB), "only the caller's own router is told");
    assert_eq!(call_with(&fixture, Some(bearer), "GET", "/api/devices", String::new()).await.status, 200);
}

#[actix_web::test]
async fn a_key_does_not_manage_keys() {
    let fixture = Fixture::new();
    let (id, bearer) = api_key_of(&fixture, ALICE, "rpc,read,write").await;
    let path = format!("/api/api-keys/{id}");
    for (method, path, body) in
        [("POST", "/api/api-keys", r#"{"scopes":["rpc"]}"#), ("GET", "/api/api-keys", ""), ("DELETE", path.as_str(), "")]
    {
        let refused = call_with(&fixture, Some(bearer.clone()), method, path, body.to_owned()).await;
        assert_eq!((refused.status, refused.code()), (403, "accountTokenRequired"), "{method}");
    }
    assert_eq!(revocations(&fixture), []);
    let listed = call(&fixture, ALICE, "GET", "/api/api-keys", Value::Null).await;
    assert_eq!(listed.body["apiKeys"].as_array().unwrap().len(), 1);
}

#[actix_web::test]
async fn calls_need_the_scope_of_their_method() {
    let fixture = Fixture::new();
    call(&fixture, ALICE, "POST", "/api/devices", device()).await;
    let path = format!("/api/devices/{DESKTOP}");
    let rename = json!({"deviceName": "Other"}).to_string();
    for (scopes, reads, writes) in [
        ("rpc", 403, 403),
        ("read", 200, 403),
        ("rpc,read", 200, 403),
        ("write", 403, 200),
        ("rpc,write", 403, 200),
        ("read,write", 200, 200),
    ] {
        let (_, bearer) = api_key_of(&fixture, ALICE, scopes).await;
        for (method, path, body, status, scope) in
            [("GET", "/api/devices", "", reads, "read"), ("PATCH", path.as_str(), rename.as_str(), writes, "write")]
        {
            let answer = call_with(&fixture, Some(bearer.clone()), method, path, body.to_owned()).await;
            assert_eq!(answer.status, status, "{scopes} {method}");
            if status == 403 {
                assert_eq!((answer.code(), &answer.body["error"]["retryable"]), ("insufficientScope", &json!(false)));
                assert!(answer.message().ends_with(&format!("scope {scope}")), "{}", answer.message());
                assert_eq!(answer.challenge, Some(format!(r#"Bearer error="insufficient_scope", scope="{scope}""#)));
            }
        }
    }
}

#[actix_web::test]
async fn what_cannot_be_a_key_costs_no_look_up() {
    let fixture = Fixture::new();
    let get = async |token: &str| {
        let bearer = Some(("Authorization", format!("Bearer {token}")));
        call_with(&fixture, bearer, "GET", "/api/devices", String::new()).await
    };
    let well_formed = format!("rk_{}", "A".repeat(43));
    for malformed in ["rk_", "rk_AAAA", &well_formed[..45], &format!("{well_formed}A"), &well_formed.to_uppercase()] {
        let refused = get(malformed).await;
        assert_eq!((refused.status, refused.code()), (401, "unauthorized"), "{malformed}");
    }
    assert_eq!(fixture.store.key_look_ups(), 0);
    assert_eq!(get(&well_formed).await.status, 401);
    assert_eq!(fixture.store.key_look_ups(), 1);
}

#[actix_web::test]
async fn storage_trouble_is_no_wrong_key() {
    let fixture = Fixture::new();
    let (id, bearer) = api_key_of(&fixture, ALICE, "read").await;
    fixture.store.set_away(true);
    let path = format!("/api/api-keys/{id}");
    let away = [
        call_with(&fixture, Some(bearer), "GET", "/api/devices", String::new()).await,
        call_with(&fixture, Some(bearer_of(ALICE)), "DELETE", &path, String::new()).await,
    ];
    for refused in away {
        assert_eq!((refused.status, refused.code(), &refused.body["error"]["retryable"]), (503, "storageUnavailable", &json!(true)));
    }
    assert_eq!(revocations(&fixture), [], "nothing was revoked");
    fixture.store.set_away(false);
    fixture.relay.state().router_away = true;
    let half = call(&fixture, ALICE, "DELETE", &path, Value::Null).await;
    assert_eq!((half.status, half.code()), (503, "routerUnavailable"));
}

fn device() -> Value {
    json!({"deviceId": DESKTOP, "role": "desktop", "deviceName": "Name", "platform": "linux", "appVersion": "1"})
}
