//! C69: every text that is stored comes back byte for byte, or is refused by name; nothing is tried again for ever.

use crate::{
    rig::{reports, storage_is_well, try_register},
    support::{account::Account, data_dir::DataDir, postgres::Server, raw_socket::RawSocket, relay_process::RelayProcess},
};
use relay_protocol::id::DeviceId;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;

/// Each text field with its longest value, in characters.
const FIELDS: [(&str, usize); 3] = [("deviceName", 200), ("platform", 64), ("appVersion", 64)];

async fn call(account: &Account, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.request(method, account.address.http(path)).bearer_auth(&account.token).json(body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

fn device(device: DeviceId) -> Value {
    json!({"deviceId": device, "role": "desktop", "deviceName": "desk", "platform": "linux", "appVersion": "1"})
}

/// Texts of exactly this many characters, but for the short ones.
fn odd_texts(characters: usize) -> Vec<String> {
    let repeated = |text: &str| text.repeat(characters);
    let combining = format!("e{}", "\u{301}".repeat(characters - 1));
    vec![
        "\u{fffe}\u{ffff}".to_owned(),
        "\u{feff}a byte order mark".to_owned(),
        "\u{202e}right to left\u{200d}".to_owned(),
        "\u{1}\u{7f}\u{85}\u{2028}".to_owned(),
        "it's \\ \"quoted\" %s $1 ; --".to_owned(),
        combining,
        repeated("\u{10ffff}"),
        repeated("\u{1f980}"),
    ]
}

async fn texts_are_kept_or_refused_by_name(data_dir: DataDir) {
    let relay = RelayProcess::start_on(Arc::new(data_dir), &["--log-format", "json"]).await;
    let account = Account::new(&relay, 1, 0).await;
    let desktop = account.desktops[0];
    let path = format!("/api/devices/{desktop}");
    let shown = async || {
        let (status, list) = call(&account, Method::GET, "/api/devices", &Value::Null).await;
        assert_eq!(status, 200);
        list["devices"][0].clone()
    };
    for (field, characters) in FIELDS {
        for text in odd_texts(characters) {
            let mut body = device(desktop);
            body[field] = json!(text);
            let (status, answer) = call(&account, Method::POST, "/api/devices", &body).await;
            assert_eq!((status, answer[field].as_str()), (200, Some(text.as_str())), "{field}");
            assert_eq!(shown().await[field].as_str(), Some(text.as_str()), "{field}");
        }
        let kept = shown().await;
        for text in ["\0", "a\0b", "\u{1f980}\0"] {
            let mut body = device(desktop);
            body[field] = json!(text);
            let (status, answer) = call(&account, Method::POST, "/api/devices", &body).await;
            assert_eq!((status, &answer["error"]["code"], &answer["error"]["retryable"]), (400, &json!("invalidPayload"), &json!(false)));
            assert!(answer["error"]["message"].as_str().unwrap().starts_with(field), "{answer}");
        }
        let mut too_long = device(desktop);
        too_long[field] = json!("\u{1f980}".repeat(characters + 1));
        assert_eq!(call(&account, Method::POST, "/api/devices", &too_long).await.0, 400, "{field}");
        assert_eq!(shown().await, kept, "what was refused changed nothing");
    }
    for text in odd_texts(200) {
        let (status, answer) = call(&account, Method::PATCH, &path, &json!({"deviceName": text})).await;
        assert_eq!((status, answer["deviceName"].as_str()), (200, Some(text.as_str())));
    }
    let (status, answer) = call(&account, Method::PATCH, &path, &json!({"deviceName": "a\0b"})).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalidPayload")));

    // What a socket says is not stored, and does no harm either.
    let mut socket = RawSocket::open(&account.raw_desktop()).await;
    for (name, resume_token) in [("a\0b", "\0"), ("\u{fffe}", "token\0"), ("e\u{301}", "\u{1f980}")] {
        let payload = json!({"deviceId": desktop, "relayProtocolVersion": "1.7", "deviceName": name, "sessionId": desktop, "resumeToken": resume_token});
        socket.text(&json!({"type": "register", "payload": payload}).to_string()).await;
        let answer: Value = serde_json::from_str(&socket.next_text().await).unwrap();
        assert_eq!((&answer["type"], &answer["payload"]["code"]), (&json!("error"), &json!("invalidResume")), "{answer}");
    }
    assert_eq!(try_register(&mut socket, desktop).await, Ok(()));
    storage_is_well(&relay).await;
    assert!(reports(&relay).is_empty(), "storage never failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_texts_are_kept_or_refused_by_name() {
    texts_are_kept_or_refused_by_name(DataDir::with_sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_texts_are_kept_or_refused_by_name() {
    texts_are_kept_or_refused_by_name(DataDir::with_postgres(Server::shared())).await;
}
