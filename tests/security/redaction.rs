//! C90: a mark stands in every secret and every payload, well formed and malformed, and in whatever came out of the relay it is searched
//! for: log lines at the finest level, what was printed, exported spans, every answer, every error frame and close reason, the admin listener.
//!
//! What a relay is for is left out: a frame reaches the peer that it is for, and an account is shown its devices' names. So is the name of
//! a field that no call and no frame has: whoever sent it is told, and nobody else.

use super::exchange;
use crate::support::{
    PATIENCE,
    account::Account,
    collector::Collector,
    push_server::{ACCESS_TOKEN, KeyFiles, PushServer, Reply, TokenEndpoint, push_flags},
    raw_socket::{Frame, RawSocket, opcode},
    relay_process::RelayProcess,
    signing_keys::P256_A,
    token::TEST_SECRET,
    wire::{next_of, payload_field, registered, request},
};
use relay_endpoints::devices::NewDevice;
use relay_protocol::{
    device::Role,
    id::DeviceId,
    push::{Environment, Provider, PushAddress},
};
use serde_json::{Value, json};
use std::{process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    time::timeout,
};

const MARK: &str = "mArKeR";
/// The same where only a UUID can stand.
const ID_MARK: &str = "c0ffee00-5ec2-4e75-8ade-0123456789ab";

/// What came out, and the secrets that must not be in it beside the marks.
struct Search {
    outputs: Vec<(String, String)>,
    secrets: Vec<String>,
}

impl Search {
    fn add(&mut self, from: impl Into<String>, output: impl Into<String>) {
        self.outputs.push((from.into(), output.into()));
    }

    fn assert_nothing_found(&self) {
        let mut found = Vec::new();
        for secret in self.secrets.iter().map(String::as_str).chain([MARK, ID_MARK]) {
            for (from, output) in &self.outputs {
                found.extend(output.lines().filter(|line| line.contains(secret)).map(|line| format!("{secret} from {from}: {line}")));
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    /// Each place of a call's head, with and without a token that is right.
    async fn call(&mut self, relay: &RelayProcess, token: &str) {
        let bad_tokens = [
            String::new(),
            format!("Authorization: Bearer {MARK}\r\n"),
            format!("Authorization: Bearer {MARK} {MARK}\r\n"),
            format!("Authorization: Basic {MARK}\r\n"),
            format!("Authorization: {MARK}\r\n"),
            format!("Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.{MARK}.{MARK}\r\n"),
            format!("Authorization: Bearer {}{MARK}\r\n", &token[..token.len() - 8]),
            format!("Authorization: Bearer rk_{}\r\n", MARK.repeat(8).split_at(43).0),
            format!("Authorization: Bearer rk_{MARK}\r\n"),
            format!("Authorization: Bearer {MARK}\u{e9}\r\n"),
            format!("Authorization: Bearer {token}\r\nAuthorization: Bearer {MARK}\r\n"),
        ];
        let good = format!("Authorization: Bearer {token}\r\n");
        let operator = format!("Authorization: Bearer {}\r\n", relay.admin_token());
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let ambient = format!("Cookie: session={MARK}\r\nReferer: https://page.test/?token={MARK}\r\nX-Forwarded-For: {MARK}\r\n");
        let subprotocol = format!("{upgrade}{ambient}Sec-WebSocket-Protocol: {MARK}\r\n");
        let close = format!("{ambient}Connection: close\r\n");
        let (public, admin) = (relay.ready().public, relay.ready().admin);
        for token in &bad_tokens {
            for (address, line) in [
                (public, format!("GET /api/devices?token={MARK}")),
                (public, format!("GET /api/presence-history?deviceId={MARK}")),
                (public, format!("DELETE /api/api-keys/{MARK}")),
                (admin, format!("GET /admin/connections?token={MARK}")),
            ] {
                let answer = exchange(address, &line, &format!("{close}{token}"), "").await;
                assert!(answer.starts_with("HTTP/1.1 4"), "{line}: {answer}");
                self.add(format!("{line} {token}"), answer);
            }
            let answer = exchange(public, &format!("GET /ws/device-link?token={MARK}"), &format!("{subprotocol}{token}"), "").await;
            assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
            self.add(format!("upgrade {token}"), answer);
        }
        for headers in [
            format!("X-Client-Type: {MARK}\r\n"),
            format!("X-Client-Type: mobile\r\nX-Target-Desktop-Device-ID: {MARK}\r\n"),
            format!("X-Client-Type: mobile\r\nX-Target-Desktop-Device-ID: {MARK}\r\nX-Target-Desktop-Device-ID: {MARK}\r\n"),
        ] {
            let answer = exchange(public, "GET /ws/device-link", &format!("{subprotocol}{good}{headers}"), "").await;
            self.add(format!("upgrade {headers}"), answer);
        }
        for (address, token, line) in [
            (public, &good, format!("GET /{MARK}?token={MARK}")),
            (public, &good, format!("PATCH /api/devices/{MARK}")),
            (public, &good, format!("{MARK} /api/devices")),
            (public, &good, format!("GET /api/devices/{ID_MARK}/presence?limit={MARK}&before={MARK}&unknown={MARK}")),
            (admin, &operator, format!("GET /admin/connections?user={MARK}")),
            (admin, &operator, format!("GET /admin/connections?unknown={MARK}")),
            (admin, &operator, format!("POST /admin/connections/{MARK}/close")),
            (admin, &operator, "GET /admin/connections".to_owned()),
            (admin, &operator, "GET /admin/status".to_owned()),
            (admin, &operator, "GET /metrics".to_owned()),
        ] {
            let answer = exchange(address, &line, &format!("{close}{token}"), "").await;
            self.add(line, answer);
        }
        let json = format!("{close}{good}Content-Type: application/json\r\n");
        for body in [
            MARK.to_owned(),
            format!("{{\"{MARK}"),
            json!({"unknown": MARK}).to_string(),
            json!(MARK).to_string(),
            json!({"deviceId": MARK, "role": MARK, "deviceName": MARK}).to_string(),
            json!({"role": "desktop", "deviceName": MARK.repeat(40), "platform": MARK, "appVersion": MARK}).to_string(),
            json!({"role": "desktop", "deviceName": MARK, "platform": MARK.repeat(20), "appVersion": MARK}).to_string(),
            json!({"name": MARK, "scopes": [MARK]}).to_string(),
            json!({"name": MARK.repeat(40), "scopes": ["rpc"]}).to_string(),
            json!({"deviceId": MARK}).to_string(),
            json!({"role": {"role": MARK}, "name": {"name": MARK}, "scopes": MARK}).to_string(),
        ] {
            for path in ["/api/devices", "/api/api-keys", "/api/auth/logout"] {
                let answer = exchange(public, &format!("POST {path}"), &json, &body).await;
                assert!(answer.starts_with("HTTP/1.1 4"), "{path} {body}: {answer}");
                self.add(format!("POST {path} {body}"), answer);
            }
        }
        let device = "0f8fad5b-d9cb-469f-a165-70867728950e";
        for body in [
            json!({"deviceId": device, "provider": "apns", "token": format!("{MARK}/")}),
            json!({"deviceId": device, "provider": "apns", "token": [MARK]}),
            json!({"deviceId": device, "provider": MARK, "token": MARK}),
            json!({"deviceId": device, "provider": "fcm", "token": MARK, "environment": "sandbox"}),
            json!({"deviceId": device, "provider": "fcm", "token": MARK}),
        ] {
            let answer = exchange(public, "PUT /api/devices/push-token", &json, &body.to_string()).await;
            assert!(answer.starts_with("HTTP/1.1 4"), "{body}: {answer}");
            self.add(format!("PUT {body}"), answer);
        }
    }

    /// A phone's token and a desktop's alert, on their way to both providers, one of which refuses it and repeats it.
    async fn pushes(&mut self, account: &Account, desktop: &mut RawSocket, providers: &Providers) {
        for (provider, token) in [(Provider::Apns, format!("{MARK}apns")), (Provider::Fcm, format!("{MARK}fcm"))] {
            let phone = account.add(Role::Mobile).await;
            let address = PushAddress { provider, token: token.parse().unwrap(), environment: Environment::Production, app_id: None };
            account.devices().claim_push_token(phone, &address).await.unwrap();
        }
        providers.apple.will_say(Reply::reason(400, "BadTopic"));
        let payload = json!({"notificationId": MARK, "title": MARK, "body": MARK, "appSessionId": MARK});
        desktop.text(&json!({"type": "event", "payload": {"eventType": "agent:notification", "payload": payload}}).to_string()).await;
        assert!(next_of(desktop, "event").await.contains(r#""accepted":true"#));
        assert!(providers.apple.seen(1).await[0].path.contains(MARK));
        providers.google.seen(1).await;
    }

    /// Frames that are refused, before a registration and behind one.
    async fn refused_frames(&mut self, account: &Account, device: DeviceId) {
        let mut socket = RawSocket::open(&account.raw_desktop()).await;
        let register = |changes: Value| {
            let mut payload = json!({"deviceId": device, "relayProtocolVersion": "1.7", "deviceName": MARK});
            payload.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            json!({"type": "register", "payload": payload}).to_string()
        };
        let mut frames = vec![
            MARK.to_owned(),
            format!("{{\"type\":\"{MARK}"),
            json!(MARK).to_string(),
            json!({"unknown": MARK}).to_string(),
            json!({"type": MARK, "payload": {}}).to_string(),
            json!({"type": "ping", "payload": {}, "unknown": MARK}).to_string(),
            json!({"type": "ping", "payload": MARK}).to_string(),
        ];
        let unregistered = [
            register(json!({"deviceId": MARK})),
            register(json!({"deviceId": ID_MARK})),
            register(json!({"relayProtocolVersion": MARK})),
            register(json!({"sessionId": ID_MARK, "resumeToken": MARK})),
            register(json!({"sessionId": MARK, "resumeToken": MARK})),
            register(json!({"sessionId": ID_MARK})),
            register(json!({"resumeToken": {"token": MARK}})),
            register(json!({"deviceName": [MARK], "platform": MARK})),
            register(json!({"unknown": MARK})),
            request(MARK, &json!({"secret": MARK}).to_string()),
        ];
        for frame in frames.iter().chain(&unregistered) {
            socket.text(frame).await;
            let answer = socket.next_text().await;
            assert!(answer.contains(r#""type":"error""#), "{frame}: {answer}");
            self.add(frame.as_str(), answer);
        }
        socket.register(device).await;
        frames.extend([
            request("id", &json!({"secret": MARK}).to_string()),
            json!({"type": "event", "payload": {"eventType": MARK, "payload": {"text": MARK}}}).to_string(),
            json!({"type": "event", "payload": {"eventType": "relay:news", "payload": {"text": MARK}}}).to_string(),
            json!({"type": "event", "payload": {"eventType": "agent:notification", "payload": {"text": MARK}}}).to_string(),
            json!({"type": "event", "payload": {"eventType": ["chat"], "payload": MARK}}).to_string(),
            json!({"type": "rpc.response", "payload": {"clientId": {MARK: MARK}, "id": MARK, "result": MARK}}).to_string(),
            json!({"type": "rpc.response", "payload": {"id": [MARK]}}).to_string(),
        ]);
        for frame in &frames {
            socket.text(frame).await;
            self.add(frame.as_str(), next_of(&mut socket, "error").await);
        }
        // Answers to nothing, and events for nobody, are dropped.
        for frame in [
            json!({"type": "rpc.response", "payload": {"clientId": ID_MARK, "id": MARK, "result": MARK}}),
            json!({"type": "event", "payload": {"eventType": "chat:stream", "payload": {
                "appSessionId": MARK, "authorizationGeneration": ID_MARK, "text": MARK,
            }}}),
        ] {
            socket.text(&frame.to_string()).await;
        }
        socket.text(r#"{"type":"ping","payload":{}}"#).await;
        next_of(&mut socket, "pong").await;
    }

    /// How sockets are closed that send this.
    async fn closed_by(&mut self, account: &Account, device: DeviceId) {
        for frame in [
            Frame::new(opcode::BINARY, MARK),
            Frame { rsv: 4, ..Frame::text(MARK) },
            Frame { mask: None, ..Frame::text(MARK) },
            Frame::new(0x3, MARK),
            Frame::new(opcode::TEXT, [MARK.as_bytes(), b"\xff"].concat()),
            Frame::new(opcode::PING, MARK.repeat(30)),
            Frame::close(1000, MARK),
            Frame::close(999, MARK),
        ] {
            let mut socket = registered(&account.raw_desktop(), device).await;
            socket.frame(&frame).await;
            let closed = socket.closed(PATIENCE).await;
            self.add(format!("{frame:?}"), closed.map(|(_, reason)| reason).unwrap_or_default());
        }
    }
}

/// Apple and Google, and the flags that set a relay up for both.
struct Providers {
    apple: PushServer,
    google: PushServer,
    _tokens: TokenEndpoint,
    _keys: KeyFiles,
    flags: Vec<String>,
}

impl Providers {
    async fn start() -> Self {
        let (apple, google, tokens) = (PushServer::start().await, PushServer::start().await, TokenEndpoint::start().await);
        let keys = KeyFiles::new();
        let flags = push_flags(&keys, &apple.url(), &google.url(), &tokens.url());
        Providers { apple, google, _tokens: tokens, _keys: keys, flags }
    }

    fn flags(&self) -> impl Iterator<Item = &str> {
        self.flags.iter().map(String::as_str)
    }
}

/// One request and each way to answer it, with marks in all that is the peers' own.
async fn traffic(desktop: &mut RawSocket, phone: &mut RawSocket) {
    let marked = json!({"text": MARK}).to_string();
    for (id, answer) in
        [("result", format!(r#""result":{marked}"#)), ("error", format!(r#""error":{{"code":-1,"message":"{MARK}","data":{marked}}}"#))]
    {
        phone.text(&request(id, &marked)).await;
        let asked = next_of(desktop, "rpc.request").await;
        assert!(asked.contains(MARK));
        let client = payload_field(&asked, "clientId");
        desktop.text(&format!(r#"{{"type":"rpc.response","payload":{{"clientId":{client},"id":"{id}",{answer}}}}}"#)).await;
        assert!(next_of(phone, "rpc.response").await.contains(MARK));
    }
    desktop.text(&json!({"type": "event", "payload": {"eventType": "files:changed", "payload": {"path": MARK}}}).to_string()).await;
    while !phone.next_text().await.contains(MARK) {}
}

async fn everything_that_came_out(format: &str) -> Search {
    let collector = Collector::start();
    let providers = Providers::start().await;
    let endpoint = collector.endpoint();
    let flags: Vec<&str> =
        ["--log", "trace", "--log-format", format, "--otlp-endpoint", &endpoint].into_iter().chain(providers.flags()).collect();
    let mut relay = RelayProcess::start(&flags).await;
    let account = Account::new(&relay, 2, 1).await;
    let named = NewDevice {
        device_id: None,
        role: Role::Desktop,
        device_name: MARK.to_owned(),
        platform: MARK.to_owned(),
        app_version: MARK.to_owned(),
        relay_eligible: None,
    };
    let named = account.devices().register(&named).await.unwrap().device_id;
    let key = account.api_key("rpc,read").await;
    let by_key = account.with_token(&key.api_key);

    let mut desktop = RawSocket::open(&account.raw_desktop()).await;
    let first = desktop.register(account.desktops[0]).await;
    let mut phone = RawSocket::open(&by_key.raw_phone()).await;
    let second = phone.register(account.phones[0]).await;
    let resume_tokens = [&first, &second].map(|answer| answer["resumeToken"].as_str().unwrap().to_owned());
    let mut secrets = vec![
        TEST_SECRET.to_owned(),
        relay.admin_token(),
        account.token.rsplit('.').next().unwrap().to_owned(),
        key.api_key.trim_start_matches("rk_").to_owned(),
    ];
    secrets.extend(resume_tokens);
    secrets.extend([ACCESS_TOKEN.to_owned(), P256_A.pem().lines().nth(1).unwrap().to_owned()]);
    let mut search = Search { outputs: Vec::new(), secrets };
    traffic(&mut desktop, &mut phone).await;
    search.pushes(&account, &mut desktop, &providers).await;
    search.call(&relay, &account.token).await;
    search.refused_frames(&account, named).await;
    search.closed_by(&account, account.desktops[1]).await;

    // A revoked key, and the end of the process.
    account.api_keys().revoke(key.shown.api_key_id).await.unwrap();
    let revoked = phone.closed(PATIENCE).await.unwrap();
    relay.signal("TERM");
    let ended = desktop.closed(PATIENCE).await.unwrap();
    assert!(relay.exited().await.success());
    search.add("closes", format!("{revoked:?} {ended:?}"));
    let log = relay.log();
    assert!(log.contains("TRACE") && log.contains("registered") && log.contains("stopped"), "the log is as detailed as it gets");
    search.add("the log", log);
    search.add("what was printed", relay.printed());
    assert!(!collector.spans().is_empty());
    search.add("the exported spans", collector.bodies().join("\n"));
    search
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_and_no_payload_comes_out_where_it_does_not_belong() {
    for format in ["pretty", "json"] {
        everything_that_came_out(format).await.assert_nothing_found();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_of_a_database_that_is_away_is_not_shown_at_any_level() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_relay"));
    command.env_clear().current_dir(directory.path()).env("RELAY_DATABASE_URL", format!("postgres://relay:{MARK}@127.0.0.1:1/data"));
    command.args(["serve", "--log", "trace", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]).kill_on_drop(true);
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut told = String::new();
    while !told.contains("waiting for the database") {
        told += &timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().expect("it tells that it waits");
    }
    process.kill().await.unwrap();
    while let Ok(Ok(Some(line))) = timeout(Duration::from_secs(1), lines.next_line()).await {
        told += &line;
    }
    assert!(!told.contains(MARK), "{told}");
}
