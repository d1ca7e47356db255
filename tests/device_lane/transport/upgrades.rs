//! Requests that are no proper upgrades, and extensions that are not agreed on.

use super::{each_is_closed, round_trip};
use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawOptions, opcode},
    wire::{Before, Rig, registered, request},
};
use std::{fmt::Write, net::SocketAddr};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";

/// What may be right about a malformed request.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Status(u16),
    /// Any 4xx, or the connection ends without an answer.
    RefusedOrEnded,
}

/// An upgrade request, taken apart so that a case can break it.
struct Upgrade {
    line: String,
    headers: Vec<String>,
    body: Vec<u8>,
}

impl Upgrade {
    fn of(account: &Account) -> Self {
        let headers = [
            format!("Host: {}", account.address.authority()),
            "Connection: Upgrade".into(),
            "Upgrade: websocket".into(),
            "Sec-WebSocket-Version: 13".into(),
            KEY.into(),
            format!("Authorization: Bearer {}", account.token),
            "X-Client-Type: desktop".into(),
        ];
        Upgrade { line: "GET /ws/device-link HTTP/1.1".into(), headers: headers.into(), body: Vec::new() }
    }

    fn line(mut self, line: &str) -> Self {
        self.line = line.into();
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|header| !header.starts_with(&format!("{name}:")));
        self
    }

    fn with(mut self, header: &str) -> Self {
        self.headers.push(header.into());
        self
    }

    fn instead(self, header: &str) -> Self {
        let name = header.split(':').next().unwrap();
        self.without(name).with(header)
    }

    fn body(mut self, body: &[u8]) -> Self {
        self.body = body.into();
        self
    }

    fn encode(self) -> Vec<u8> {
        let head = [vec![self.line], self.headers].concat().join("\r\n");
        [head.as_bytes(), b"\r\n\r\n", &self.body].concat()
    }
}

/// Writes bytes and reads a head; empty if the connection ends before there is one.
async fn answer(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let write = async {
        // The relay may answer and close before it has read all of it.
        let _ = writer.write_all(bytes).await;
        let _ = writer.shutdown().await;
    };
    let read = async {
        let mut head = Vec::new();
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            if reader.read_buf(&mut head).await.unwrap_or(0) == 0 {
                break;
            }
        }
        String::from_utf8_lossy(&head).into_owned()
    };
    timeout(PATIENCE, async { tokio::join!(write, read).1 }).await.expect("an answer, or an end")
}

fn status(head: &str) -> Option<u16> {
    head.strip_prefix("HTTP/1.1 ").or_else(|| head.strip_prefix("HTTP/1.0 "))?.split(' ').next()?.parse().ok()
}

/// Bytes without a pattern, the same in each run.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_upgrade_is_refused_and_leaves_nothing_behind() {
    let mut rig = Rig::start(&[], 0).await;
    let account = &rig.account;
    let before = Before::of(&rig.relay).await;
    let upgrade = || Upgrade::of(account);
    let many_headers = (0..2_001).fold(String::new(), |mut text, index| {
        write!(text, "X-Header-{index}: value\r\n").unwrap();
        text
    });
    let long_header = format!("X-Long: {}", "x".repeat(1024 * 1024));
    let tls_hello = [&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03][..], &noise(509)].concat();
    let ping = Frame::text(r#"{"type":"ping","payload":{}}"#).encode();
    let chunked_ping = [format!("{:x}\r\n", ping.len()).as_bytes(), &ping, b"\r\n0\r\n\r\n"].concat();
    use Answer::{RefusedOrEnded, Status};
    let cases = [
        ("plain GET", Status(400), Upgrade { headers: vec![upgrade().headers.remove(0)], ..upgrade() }.encode()),
        ("no Host", Status(400), upgrade().without("Host").encode()),
        ("two Hosts", Status(400), upgrade().with("Host: elsewhere").encode()),
        ("no key", Status(400), upgrade().without("Sec-WebSocket-Key").encode()),
        ("two keys", Status(400), upgrade().with(KEY).encode()),
        ("short key", Status(400), upgrade().instead("Sec-WebSocket-Key: c2hvcnQ=").encode()),
        ("long key", Status(400), upgrade().instead(&format!("{KEY}AAAA")).encode()),
        ("key that is no base64", Status(400), upgrade().instead("Sec-WebSocket-Key: !!!!!!!!!!!!!!!!!!!!!!==").encode()),
        ("version 8", Status(426), upgrade().instead("Sec-WebSocket-Version: 8").encode()),
        ("no version", Status(426), upgrade().without("Sec-WebSocket-Version").encode()),
        ("versions 13 and 8", Status(426), upgrade().with("Sec-WebSocket-Version: 8").encode()),
        ("h2c", Status(400), upgrade().instead("Upgrade: h2c").encode()),
        ("websockets", Status(400), upgrade().instead("Upgrade: websockets").encode()),
        ("no Upgrade", Status(400), upgrade().without("Upgrade").encode()),
        ("no Connection", Status(400), upgrade().without("Connection").encode()),
        ("Connection without upgrade", Status(400), upgrade().instead("Connection: keep-alive").encode()),
        ("2,001 headers", RefusedOrEnded, upgrade().with(many_headers.trim_end()).encode()),
        ("a header of 1 MiB", RefusedOrEnded, upgrade().with(&long_header).encode()),
        ("POST", Status(405), upgrade().line("POST /ws/device-link HTTP/1.1").with("Content-Length: 0").encode()),
        ("PUT", Status(405), upgrade().line("PUT /ws/device-link HTTP/1.1").with("Content-Length: 0").encode()),
        ("HTTP/1.0", RefusedOrEnded, upgrade().line("GET /ws/device-link HTTP/1.0").encode()),
        ("HTTP/2.7", RefusedOrEnded, upgrade().line("GET /ws/device-link HTTP/2.7").encode()),
        ("body", Status(400), upgrade().with(&format!("Content-Length: {}", ping.len())).body(&ping).encode()),
        ("chunked body", RefusedOrEnded, upgrade().with("Transfer-Encoding: chunked").body(&chunked_ping).encode()),
        ("path with %00", Status(404), upgrade().line("GET /ws/device-link%00 HTTP/1.1").encode()),
        ("path with a slash more", Status(404), upgrade().line("GET /ws/device-link/ HTTP/1.1").encode()),
        ("no token", Status(401), upgrade().without("Authorization").encode()),
        ("no client type", Status(400), upgrade().without("X-Client-Type").encode()),
        ("client type tablet", Status(400), upgrade().instead("X-Client-Type: tablet").encode()),
        ("TLS hello", RefusedOrEnded, tls_hello),
        ("noise", RefusedOrEnded, noise(4_096)),
        ("every byte", RefusedOrEnded, (0..=u8::MAX).collect()),
        ("NULs", RefusedOrEnded, vec![0; 1_000]),
        ("half a head", RefusedOrEnded, upgrade().encode()[..60].to_vec()),
        ("nothing", RefusedOrEnded, Vec::new()),
    ];
    for (name, right, bytes) in &cases {
        let head = answer(rig.relay.ready().public, bytes).await;
        let as_it_should = match right {
            Status(code) => status(&head) == Some(*code),
            RefusedOrEnded => head.is_empty() || status(&head).is_some_and(|code| (400..500).contains(&code)),
        };
        assert!(as_it_should, "{name}: {right:?} is right, not {head:?}");
        if status(&head) == Some(426) {
            assert!(head.to_lowercase().contains("\r\nsec-websocket-version: 13\r\n"), "{name}: {head}");
        }
    }
    before.all_well(&mut rig.relay, 16 * 1024).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_looks_odd_but_is_an_upgrade_works() {
    let rig = Rig::start(&[], 0).await;
    let upgrade = || Upgrade::of(&rig.account);
    let absolute = format!("GET http://{}/ws/device-link HTTP/1.1", rig.account.address.authority());
    let cases = [
        upgrade().line(&absolute),
        upgrade().instead("Connection: keep-alive, Upgrade"),
        upgrade().instead("connection: UPGRADE").without("Connection"),
        upgrade().instead("Upgrade: WebSocket"),
        upgrade().with("Content-Length: 0"),
        upgrade().with("Sec-WebSocket-Extensions: permessage-deflate"),
        upgrade().with("Sec-WebSocket-Protocol: chat"),
        upgrade().body(&Frame::text(r#"{"type":"ping","payload":{}}"#).encode()),
    ];
    for case in cases {
        let bytes = case.encode();
        let head = answer(rig.relay.ready().public, &bytes).await;
        assert_eq!(status(&head), Some(101), "{}: {head}", String::from_utf8_lossy(&bytes));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compression_is_not_agreed_on_and_then_a_violation() {
    let mut rig = Rig::start(&[], 1).await;
    let before = Before::of(&rig.relay).await;
    let offers = [
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate; server_max_window_bits=99; x=\"\\\"\"",
        "x-webkit-deflate-frame, permessage-deflate; client_no_context_takeover",
        ";;;,,,===",
    ];
    for offer in offers {
        let header = format!("Sec-WebSocket-Extensions: {offer}");
        let head = answer(rig.relay.ready().public, &Upgrade::of(&rig.account).with(&header).encode()).await;
        assert_eq!(status(&head), Some(101), "{head}");
        assert!(!head.to_lowercase().contains("sec-websocket-extensions"), "{offer} was agreed on: {head}");
    }
    let mut desktop = rig.desktop().await;
    let mut offering: RawOptions = rig.account.raw_phone();
    offering.headers.push(("Sec-WebSocket-Extensions".into(), offers[1].into()));
    let mut phone = registered(&offering, rig.account.phones[0]).await;
    round_trip(&mut phone, &mut desktop, "uncompressed").await;

    let compressed = [Frame::text(&request("compressed", "1")), Frame::new(opcode::TEXT, noise(1_000)), Frame::text("")];
    let frames = compressed.map(|frame| Frame { rsv: 4, ..frame }.encode());
    each_is_closed(&rig, &mut desktop, frames, 1002, "protocolViolation").await;
    drop((phone, desktop));
    before.all_well(&mut rig.relay, 16 * 1024).await;
}
