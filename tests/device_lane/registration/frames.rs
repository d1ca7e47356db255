//! What a socket may send before and after its registration, how large, and what opens one at all.

use super::{accepted, answers, naming, next_answer, next_error, open_desktop, open_phone, options, refused, send};
use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{RawOptions, RawSocket, Received},
    relay_process::RelayProcess,
    token::{TEST_SECRET, fresh_user, token_with},
};
use relay_protocol::device::Role;
use serde_json::{Value, json};

/// Largest message before a registration.
const CAP_BYTES: usize = 64 * 1024;
const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn expect_error(socket: &mut RawSocket, text: &str, code: &str) {
    socket.text(text).await;
    assert_eq!(next_error(socket).await, (code.to_owned(), false), "{text}");
}

fn request() -> Value {
    json!({"id": "1", "method": "system.ping", "traceparent": TRACEPARENT})
}

fn response() -> Value {
    json!({"clientId": "nobody", "id": "1", "result": null})
}

fn frame(kind: &str, payload: &Value) -> String {
    json!({"type": kind, "payload": payload}).to_string()
}

/// Frames that are wrong in any state.
async fn expect_table_of_bad_frames(socket: &mut RawSocket) {
    for text in [
        "",
        " ",
        "ping",
        "{",
        "null",
        "[]",
        "\"ping\"",
        "{}",
        r#"{"type":"ping"}"#,
        r#"{"payload":{}}"#,
        r#"{"type":null,"payload":{}}"#,
        r#"{"type":7,"payload":{}}"#,
        r#"{"Type":"ping","payload":{}}"#,
        r#"{"type":"ping","payload":{},"id":1}"#,
        r#"{"type":"ping","payload":[]}"#,
        r#"{"type":"ping","payload":{"at":1}}"#,
        r#"{"type":"ping","type":"ping","payload":{}}"#,
        r#"{"type":"ping","payload":{},"payload":{}}"#,
        r#"{"type":"ping","payload":{},"p\u0061yload":{}}"#,
        r#"{"type":"ping","\u0074ype":"ping","payload":{}}"#,
        r#"{"type":"ping","payload":{}}{}"#,
        r#"{"type":"ping","payload":{},}"#,
    ] {
        expect_error(socket, text, "invalidPayload").await;
    }
    for text in [
        r#"{"type":"","payload":{}}"#,
        r#"{"type":"Ping","payload":{}}"#,
        r#"{"type":"pong","payload":{}}"#,
        r#"{"type":"registered","payload":{}}"#,
        r#"{"type":"no.such.type","payload":null}"#,
        r#"{"payload":{"a":[1]},"type":"no.such.type"}"#,
    ] {
        expect_error(socket, text, "unknownMessageType").await;
    }
    answers(socket).await;
    socket.text(r#"{"payload":{},"\u0074ype":"pin\u0067"}"#).await;
    assert_eq!(next_answer(socket).await, ("pong".to_owned(), json!({})), "any order, any spelling");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_frames_are_answered_before_and_after_registration_and_the_socket_stays() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let mut desktop = open_desktop(&account).await;
    let mut phone = open_phone(&account, Some(account.desktops[0])).await;
    for (socket, device) in [(&mut desktop, account.desktops[0]), (&mut phone, account.phones[0])] {
        expect_table_of_bad_frames(socket).await;
        expect_error(socket, &frame("rpc.request", &request()), "notRegistered").await;
        expect_error(socket, &frame("rpc.response", &response()), "notRegistered").await;
        refused(socket, &naming("no-uuid", json!({})), "invalidDeviceId", false).await;
        expect_error(socket, &frame("rpc.request", &request()), "notRegistered").await;
        accepted(socket, &naming(device, json!({})), "registered").await;
        expect_table_of_bad_frames(socket).await;
        expect_error(socket, &frame("register", &naming(device, json!({}))), "alreadyRegistered").await;
        expect_error(socket, &frame("register", &naming("no-uuid", json!({}))), "alreadyRegistered").await;
        expect_error(socket, &frame("register", &json!({})), "invalidPayload").await;
    }
    expect_error(&mut desktop, &frame("rpc.request", &request()), "wrongRole").await;
    expect_error(&mut phone, &frame("rpc.response", &response()), "wrongRole").await;
    answers(&mut desktop).await;
    answers(&mut phone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_register_is_refused_while_the_first_is_being_decided() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 0).await;
    let mut socket = open_desktop(&account).await;
    let register = crate::support::raw_socket::Frame::text(&frame("register", &naming(account.desktops[0], json!({})))).encode();
    socket.write(&register.repeat(3)).await;
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let (kind, payload) = next_answer(&mut socket).await;
        kinds.push(if kind == "error" { payload["code"].as_str().unwrap().to_owned() } else { kind });
    }
    kinds.sort_unstable();
    assert_eq!(kinds, ["alreadyRegistered", "alreadyRegistered", "registered"]);
    answers(&mut socket).await;
}

/// A ping of exactly this many bytes.
fn padded_ping(bytes: usize) -> String {
    let ping = r#"{"type":"ping","payload":{}}"#;
    format!("{ping}{}", " ".repeat(bytes - ping.len()))
}

#[tokio::test(flavor = "multi_thread")]
async fn before_registration_a_message_may_have_64_kib_and_not_a_byte_more() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 0).await;
    let pong = ("pong".to_owned(), json!({}));
    let mut socket = open_desktop(&account).await;
    socket.text(&padded_ping(CAP_BYTES)).await;
    assert_eq!(next_answer(&mut socket).await, pong);
    socket.fragmented_text(&padded_ping(CAP_BYTES), 1_000).await;
    assert_eq!(next_answer(&mut socket).await, pong, "fragments, summed");
    accepted(&mut socket, &naming(account.desktops[0], json!({})), "registered").await;
    socket.text(&padded_ping(CAP_BYTES + 1)).await;
    assert_eq!(next_answer(&mut socket).await, pong, "the cap ends with the registration");

    for piece_bytes in [CAP_BYTES + 1, 1_000] {
        let mut socket = open_desktop(&account).await;
        refused(&mut socket, &naming("no-uuid", json!({})), "invalidDeviceId", false).await;
        socket.fragmented_text(&padded_ping(CAP_BYTES + 1), piece_bytes).await;
        assert_eq!(socket.closed(PATIENCE).await, Some((1009, "messageTooLarge".to_owned())));
        assert_eq!(socket.read(PATIENCE).await, Received::End);
    }
}

async fn refused_upgrade(options: &RawOptions) -> String {
    match RawSocket::try_open(options).await {
        Ok(_) => panic!("upgraded: {options:?}"),
        Err(answer) => answer.to_ascii_lowercase(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_valid_token_in_its_header_nothing_is_upgraded() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 0).await;
    let with_token = |token: &str| RawOptions::device_link(&account.address, token, Role::Desktop, None);
    let without = || {
        let mut options = with_token(&account.token);
        options.headers.retain(|(name, _)| name != "Authorization");
        options
    };
    let in_query = |name: &str| RawOptions { path: format!("/ws/device-link?{name}={}", account.token), ..without() };
    for options in [without(), in_query("token"), in_query("access_token"), in_query("authorization")] {
        let answer = refused_upgrade(&options).await;
        assert!(answer.starts_with("http/1.1 401 ") && answer.contains("\r\nwww-authenticate: bearer\r\n"), "{answer}");
    }
    let other_secret = "another-secret-of-thirty-two-bytes-or-more";
    for token in ["nonsense", &token_with(account.user, other_secret, 3600), &token_with(account.user, TEST_SECRET, -3600)] {
        let answer = refused_upgrade(&with_token(token)).await;
        assert!(answer.starts_with("http/1.1 401 "), "{answer}");
        assert!(answer.contains("\r\nwww-authenticate: bearer error=\"invalid_token\"\r\n"), "{answer}");
    }
    let mut basic = without();
    basic.headers.push(("Authorization".to_owned(), format!("Basic {}", account.token)));
    assert!(refused_upgrade(&basic).await.starts_with("http/1.1 401 "));
    RawSocket::open(&with_token(&token_with(fresh_user(), TEST_SECRET, 3600))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_says_once_which_kind_of_client_it_is() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 0).await;
    for kinds in [&[][..], &[""], &["phone"], &["Desktop"], &["desktop", "desktop"]] {
        let mut options = options(&account, Role::Desktop, None);
        options.headers.retain(|(name, _)| name != "X-Client-Type");
        options.headers.extend(kinds.iter().map(|kind| ("X-Client-Type".to_owned(), (*kind).to_owned())));
        let answer = refused_upgrade(&options).await;
        assert!(answer.starts_with("http/1.1 400 "), "{kinds:?}: {answer}");
    }
    // Who it is comes first.
    let mut neither = options(&account, Role::Desktop, None);
    neither.headers.clear();
    assert!(refused_upgrade(&neither).await.starts_with("http/1.1 401 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_names_its_desktop_in_header_or_payload() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 1).await;
    for (header, payload) in [(Some(0), None), (None, Some(1)), (Some(0), Some(0))] {
        let mut socket = open_phone(&account, header.map(|index: usize| account.desktops[index])).await;
        let target = payload.map(|index: usize| account.desktops[index]);
        send(&mut socket, "register", &naming(account.phones[0], json!({"targetDesktopDeviceId": target}))).await;
        let (kind, answer) = next_answer(&mut socket).await;
        let named = account.desktops[header.or(payload).unwrap()];
        assert_eq!((kind.as_str(), &answer["target"]["deviceId"]), ("registered", &json!(named)), "{answer}");
    }
}
