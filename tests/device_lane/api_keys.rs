//! API keys over real sockets: what each set of scopes allows, and that a key that is revoked opens nothing any more and keeps
//! nothing open. Logging out closes in the same way, and is here too.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use super::{
    closes::{desktop, ends, phone, told},
    registration::{accepted, answers, connections, naming, next_answer, next_status, open_desktop, open_phone, refused, resume_of, send},
};
use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawOptions, RawSocket},
    relay_process::RelayProcess,
    scale::scaled,
    wire::eventually,
};
use relay_endpoints::devices::{ApiError, DeviceChange};
use relay_protocol::{device::Role, identity::Scopes};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// What came instead of an upgrade: status and error code.
async fn not_upgraded(account: &Account) -> (u16, String) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let upgrade = client
        .get(account.address.http("/ws/device-link"))
        .bearer_auth(&account.token)
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("X-Client-Type", "desktop");
    let answer = upgrade.send().await.unwrap();
    let status = answer.status().as_u16();
    let body: Value = answer.json().await.unwrap();
    (status, body["error"]["code"].as_str().unwrap().to_owned())
}

fn status_of<T: std::fmt::Debug>(outcome: Result<T, ApiError>) -> u16 {
    match outcome {
        Ok(_) => 200,
        Err(ApiError::Refused { status, error }) => {
            assert_eq!((error.code.as_str(), error.retryable), ("insufficientScope", false));
            status
        }
        Err(error) => panic!("{error}"),
    }
}

fn status(allowed: bool) -> u16 {
    if allowed { 200 } else { 403 }
}

/// What a phone's request comes to: zero when the desktop receives it and answers, else the refusal's number.
async fn outcome(phone: &mut RawSocket, desktop: &mut RawSocket, method: &str, key: Option<&str>) -> i64 {
    let mut payload = json!({"id": method, "method": method, "traceparent": TRACE});
    if let Some(key) = key {
        payload["idempotencyKey"] = json!(key);
    }
    send(phone, "rpc.request", &payload).await;
    let refusal = async {
        let (_, answer) = next_answer(phone).await;
        match answer["error"]["code"].as_i64() {
            Some(code) => {
                let needs = if method == "session.get" { "read" } else { "write" };
                let scopes = (code == -32027).then(|| json!(["rpc", needs]));
                assert_eq!(answer["error"]["data"].get("requiredScopes"), scopes.as_ref(), "{answer}");
                assert_eq!(answer["error"]["data"]["retryable"], false, "{answer}");
                code
            }
            None => 0,
        }
    };
    let answering = async {
        loop {
            let (kind, request) = next_answer(desktop).await;
            assert_eq!((kind.as_str(), &request["method"]), ("rpc.request", &json!(method)));
            let response = json!({"clientId": request["clientId"], "id": request["id"], "result": null});
            send(desktop, "rpc.response", &response).await;
        }
    };
    tokio::select! {
        code = refusal => code,
        () = answering => unreachable!("it answers until it is stopped"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_set_of_scopes_allows_what_it_names_and_nothing_else() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    // Answering needs no more than the socket.
    let answering = account.with_token(&account.api_key("rpc").await.api_key);
    let (mut desktop, _) = desktop(&answering, 0).await;
    for names in ["rpc", "read", "write", "rpc,read", "rpc,write", "read,write", "rpc,read,write"] {
        let has = |scope: &str| names.split(',').any(|name| name == scope);
        let key = account.api_key(names).await;
        assert_eq!(key.shown.scopes, names.parse::<Scopes>().unwrap());
        let bearer = account.with_token(&key.api_key);

        assert_eq!(status_of(bearer.devices().list().await), status(has("read")), "{names}");
        let rename = DeviceChange { device_name: Some(names.to_owned()), relay_eligible: None };
        assert_eq!(status_of(bearer.devices().change(account.desktops[0], &rename).await), status(has("write")), "{names}");

        if !has("rpc") {
            assert_eq!(not_upgraded(&bearer).await, (403, "insufficientScope".to_owned()), "{names}");
            continue;
        }
        let (mut phone, _) = phone(&bearer, 0, 0).await;
        let (reads, writes) = (if has("read") { 0 } else { -32027 }, if has("write") { 0 } else { -32027 });
        assert_eq!(outcome(&mut phone, &mut desktop, "session.get", None).await, reads, "{names}");
        assert_eq!(outcome(&mut phone, &mut desktop, "session.rename", Some("k")).await, writes, "{names}");
        // Behind the method, before the key.
        let keyless = if has("write") { -32026 } else { -32027 };
        assert_eq!(outcome(&mut phone, &mut desktop, "session.rename", None).await, keyless, "{names}");
        assert_eq!(outcome(&mut phone, &mut desktop, "session.nonsense", None).await, -32601, "{names}");
    }
}

/// C89 for `revoked`: closed at once, and whatever the key had open is resumed by nobody.
#[tokio::test(flavor = "multi_thread")]
async fn revoking_a_key_closes_its_sockets_and_ends_its_sessions() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 3, 2).await;
    let (key, other) = (account.api_key("rpc,read").await, account.api_key("rpc,read,write").await);
    let (own, others) = (account.with_token(&key.api_key), account.with_token(&other.api_key));

    let (mut watcher, _) = phone(&account, 1, 0).await;
    let (mut desktop_of_own, desktop_session) = desktop(&own, 0).await;
    told(&mut watcher, account.desktops[0], "online", "registered").await;
    let (mut phone_of_own, phone_session) = phone(&own, 0, 1).await;
    let mut unregistered = open_desktop(&own).await;
    answers(&mut unregistered).await;
    let (mut desktop_of_others, others_session) = desktop(&others, 1).await;
    told(&mut watcher, account.desktops[1], "online", "registered").await;
    let (cut, cut_session) = desktop(&own, 2).await;
    told(&mut watcher, account.desktops[2], "online", "registered").await;
    cut.reset();
    told(&mut watcher, account.desktops[2], "reconnecting", "socketClosed").await;

    account.api_keys().revoke(key.shown.api_key_id).await.unwrap();
    for socket in [&mut desktop_of_own, &mut phone_of_own, &mut unregistered] {
        ends(socket, 1008, "revoked").await;
    }
    let mut gone = BTreeSet::new();
    for _ in 0..2 {
        let event = next_status(&mut watcher).await;
        assert_eq!((&event["status"], &event["reason"]), (&json!("disconnected"), &json!("loggedOut")), "{event}");
        gone.insert(event["deviceId"].as_str().unwrap().to_owned());
    }
    assert_eq!(gone, [account.desktops[0], account.desktops[2]].map(|device| device.to_string()).into());
    assert_eq!(not_upgraded(&own).await, (401, "unauthorized".to_owned()));
    assert!(matches!(own.devices().list().await, Err(ApiError::Refused { status: 401, .. })));

    for (device, session) in [(account.desktops[0], &desktop_session), (account.desktops[2], &cut_session)] {
        let mut socket = open_desktop(&account).await;
        refused(&mut socket, &naming(device, resume_of(session)), "invalidResume", false).await;
    }
    let mut socket = open_phone(&account, Some(account.desktops[1])).await;
    refused(&mut socket, &naming(account.phones[0], resume_of(&phone_session)), "invalidResume", false).await;

    // Nothing happened to what another credential opened.
    answers(&mut desktop_of_others).await;
    answers(&mut watcher).await;
    desktop_of_others.reset();
    told(&mut watcher, account.desktops[1], "reconnecting", "socketClosed").await;
    let mut again = open_desktop(&account).await;
    accepted(&mut again, &naming(account.desktops[1], resume_of(&others_session)), "resumed").await;
}

/// Sockets open and register all the time while their key is revoked: at every place of the way in one of them is caught.
#[tokio::test(flavor = "multi_thread")]
async fn sockets_that_open_and_register_while_their_key_is_revoked_do_not_stay() {
    const DESKTOPS: usize = 6;
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, DESKTOPS, 0).await;
    for round in 0..scaled(3, 50) {
        let key = account.api_key("rpc").await;
        let (started, mut first) = tokio::sync::mpsc::channel::<()>(DESKTOPS);
        let openers: Vec<_> = (0..DESKTOPS)
            .map(|index| {
                let (own, started) = (account.with_token(&key.api_key), started.clone());
                tokio::spawn(async move {
                    let options = RawOptions::device_link(&own.address, &own.token, Role::Desktop, None);
                    let mut sockets = Vec::new();
                    loop {
                        match RawSocket::try_open(&options).await {
                            Ok(mut socket) => {
                                // Closed already, perhaps; then this goes nowhere.
                                let register = json!({"type": "register", "payload": naming(own.desktops[index], json!({}))});
                                let frame = Frame::text(&register.to_string()).encode();
                                let _sent = socket.try_write(&frame, PATIENCE).await;
                                sockets.push(socket);
                                let _ = started.try_send(());
                            }
                            Err(answer) => {
                                assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
                                return sockets;
                            }
                        }
                    }
                })
            })
            .collect();
        first.recv().await.unwrap();
        account.api_keys().revoke(key.shown.api_key_id).await.unwrap();
        let mut revoked = 0;
        for opener in openers {
            for mut socket in opener.await.unwrap() {
                let close = socket.closed(PATIENCE).await;
                match close.as_ref().map(|(code, reason)| (*code, reason.as_str())) {
                    Some((1008, "revoked")) => revoked += 1,
                    // By the next socket of the same opener.
                    Some((4002, "replaced")) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(revoked > 0, "round {round}");
        // An answered close is in the table until TCP has ended.
        eventually("nothing stays", async || connections(&relay, account.user).await.is_empty()).await;
    }
}

/// C89 for `loggedOut`, of one device.
#[tokio::test(flavor = "multi_thread")]
async fn logging_a_device_out_closes_its_sockets_and_ends_its_sessions() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 2).await;
    let (mut watcher, _) = phone(&account, 1, 0).await;
    let (mut first, first_session) = desktop(&account, 0).await;
    told(&mut watcher, account.desktops[0], "online", "registered").await;
    let (mut to_first, _) = phone(&account, 0, 0).await;
    let (mut to_second, phone_session) = phone(&account, 0, 1).await;

    assert_eq!(account.log_out(&json!({"deviceId": account.desktops[0]})).await, 204);
    ends(&mut first, 1008, "loggedOut").await;
    told(&mut watcher, account.desktops[0], "disconnected", "loggedOut").await;
    assert_eq!(account.log_out(&json!({"deviceId": account.phones[0]})).await, 204);
    ends(&mut to_first, 1008, "loggedOut").await;
    ends(&mut to_second, 1008, "loggedOut").await;

    let (mut desktop_again, mut phone_again) = (open_desktop(&account).await, open_phone(&account, Some(account.desktops[1])).await);
    refused(&mut desktop_again, &naming(account.desktops[0], resume_of(&first_session)), "invalidResume", false).await;
    refused(&mut phone_again, &naming(account.phones[0], resume_of(&phone_session)), "invalidResume", false).await;
    // The token is still good: the device may come back as from nothing.
    accepted(&mut desktop_again, &naming(account.desktops[0], json!({})), "registered").await;
    told(&mut watcher, account.desktops[0], "online", "registered").await;
    assert_eq!(account.log_out(&json!({"deviceId": account.user})).await, 404);
    answers(&mut desktop_again).await;
}

/// C89 for `loggedOut`, of the account.
#[tokio::test(flavor = "multi_thread")]
async fn logging_an_account_out_closes_everything_of_it_and_nothing_else() {
    let relay = RelayProcess::start(&[]).await;
    let (account, other) = (Account::new(&relay, 2, 1).await, Account::new(&relay, 1, 0).await);
    let by_key = account.with_token(&account.api_key("rpc,write").await.api_key);
    let (mut first, first_session) = desktop(&account, 0).await;
    let (mut second, second_session) = desktop(&by_key, 1).await;
    let (mut phone_socket, phone_session) = phone(&account, 0, 0).await;
    let mut unregistered = open_desktop(&account).await;
    answers(&mut unregistered).await;
    let (mut stranger, _) = desktop(&other, 0).await;

    assert_eq!(by_key.log_out(&json!({})).await, 204);
    for socket in [&mut first, &mut second, &mut phone_socket, &mut unregistered] {
        ends(socket, 1008, "loggedOut").await;
    }
    answers(&mut stranger).await;

    let (mut again, mut phone_again) = (open_desktop(&account).await, open_phone(&account, Some(account.desktops[0])).await);
    for (device, session) in [(account.desktops[0], &first_session), (account.desktops[1], &second_session)] {
        refused(&mut again, &naming(device, resume_of(session)), "invalidResume", false).await;
    }
    refused(&mut phone_again, &naming(account.phones[0], resume_of(&phone_session)), "invalidResume", false).await;
    accepted(&mut again, &naming(account.desktops[0], json!({})), "registered").await;
    // Neither a JWT nor a key is ended by it.
    desktop(&by_key, 1).await;
}

/// C87: what another account has is as if it were not there, and nothing happens to it.
#[tokio::test(flavor = "multi_thread")]
async fn another_accounts_keys_and_sockets_are_out_of_reach() {
    let relay = RelayProcess::start(&[]).await;
    let (account, foreign) = (Account::new(&relay, 1, 0).await, Account::new(&relay, 1, 0).await);
    let key = account.api_key("rpc").await;
    let (mut socket, _) = desktop(&account.with_token(&key.api_key), 0).await;

    assert_eq!(foreign.api_keys().list().await.unwrap(), []);
    let unknown = foreign.api_keys().revoke(foreign.desktops[0].to_string().parse().unwrap()).await;
    let refused = foreign.api_keys().revoke(key.shown.api_key_id).await;
    for refused in [refused, unknown] {
        assert!(matches!(refused, Err(ApiError::Refused { status: 404, error }) if error.code == "apiKeyNotFound"));
    }
    assert_eq!(foreign.log_out(&json!({"deviceId": account.desktops[0]})).await, 404);
    assert_eq!(foreign.log_out(&json!({})).await, 204);
    answers(&mut socket).await;
    assert_eq!(account.api_keys().list().await.unwrap(), [key.shown]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_not_judged_while_storage_cannot_answer() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 0).await;
    let own = account.with_token(&account.api_key("rpc").await.api_key);
    let (mut socket, _) = desktop(&own, 0).await;
    let database = relay.data_dir().sql().await;
    database.run("ALTER TABLE api_keys RENAME TO elsewhere").await;
    assert_eq!(not_upgraded(&own).await, (503, "storageUnavailable".to_owned()));
    answers(&mut socket).await;
    answers(&mut open_desktop(&account).await).await;
    database.run("ALTER TABLE elsewhere RENAME TO api_keys").await;
    answers(&mut open_desktop(&own).await).await;
}
