//! What the web framework does that nobody would expect: the traps 1 to 9 of the architecture, one test each.
//!
//! Those that a process shows from outside are here. The others are in the crate that has to know better:
//! - `trap_1_the_kernel_is_told_…` in `actors/src/device_socket/traps_test.rs`
//! - `trap_2_…` in `actors/src/mailbox.rs`
//! - of trap 3 the account of a lane, right to one slice, in `actors/src/device_socket/lane/lane_test.rs`
//! - `trap_5_…` in `actors/src/user_router/crash_test.rs`; the restart of the persistence actor in `actors/tests/paused_time.rs`
//! - `trap_6_…` in `actors/src/clock.rs`; what paused time drives in `actors/tests/paused_time.rs`
//! - `trap_8_accepted_sockets_…` in `src/server.rs`

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawOptions, RawSocket, opcode},
    relay_process::RelayProcess,
    scale::scaled,
    wire::{Before, KIB, MIB, Rig, connections, eventually, next_of, payload_field, registered, request, response, round_trip},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};

/// An actor is polled from inside its response body: one whose peer reads nothing stands still, and is ended from outside.
#[tokio::test(flavor = "multi_thread")]
async fn trap_1_a_frozen_actor_is_ended_from_outside() {
    // The silence limit, which the kernel is told too, is far away: only the kept handle can end it.
    let rig = Rig::start(&["--max-message", "4MiB", "--outbound-limit", "5MiB"], 1).await;
    let mut desktop = rig.desktop().await;
    let before = Before::of(&rig.relay).await;
    let small_buffer = RawOptions { receive_buffer_bytes: Some(4_096), ..rig.account.raw_phone() };
    let mut frozen = registered(&small_buffer, rig.account.phones[0]).await;
    let mut requests = Vec::new();
    for id in ["one", "two", "three", "four"] {
        frozen.text(&request(id, "1")).await;
        requests.push(next_of(&mut desktop, "rpc.request").await);
    }
    for request in requests {
        send_large(&mut desktop, &response(&request, &format!("\"{}\"", "x".repeat(4 * MIB - KIB)))).await;
    }
    // It sends all the time and reads nothing, until the connection has ended.
    let sending = async {
        while frozen.try_write(&Frame::new(opcode::PONG, "").encode(), PATIENCE).await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, sending).await.expect("the connection ends although nobody reads from it");
    before.given_back(&rig.relay).await;
    round_trip(&mut rig.phone(0).await, &mut desktop, "again").await;
}

/// Sends a text masked with zeros: a large one is masked byte by byte otherwise.
async fn send_large(socket: &mut RawSocket, text: &str) {
    let header = Frame { mask: Some([0; 4]), ..Frame::header_only(opcode::TEXT, text.len() as u64) };
    socket.write(&header.encode()).await;
    socket.write(text.as_bytes()).await;
}

/// The transport pulls ready-made frames in slices, so a large result is not held several times over.
#[tokio::test(flavor = "multi_thread")]
async fn heavy_trap_3_a_large_result_is_not_held_several_times() {
    let rig = Rig::start(&[], 1).await;
    let mut desktop = rig.desktop().await;
    let small_buffer = RawOptions { receive_buffer_bytes: Some(4_096), ..rig.account.raw_phone() };
    let mut phone = registered(&small_buffer, rig.account.phones[0]).await;
    round_trip(&mut phone, &mut desktop, "small").await;
    let before_kib = rig.relay.rss_peak_kib();
    phone.text(&request("large", "1")).await;
    let received = next_of(&mut desktop, "rpc.request").await;
    let result = format!("\"{}\"", "x".repeat(32 * MIB - KIB));
    send_large(&mut desktop, &response(&received, &result)).await;
    // All of it is in the relay before any of it is read.
    eventually("the result waits", async || {
        let there = connections(&rig.relay, Some(rig.account.user)).await;
        there.iter().any(|connection| connection["queuedBytes"].as_u64().unwrap() > 16 * MIB as u64)
    })
    .await;
    let answer = next_of(&mut phone, "rpc.response").await;
    assert!(payload_field(&answer, "result") == result);
    let grown_kib = rig.relay.rss_peak_kib() - before_kib;
    assert!(grown_kib < 80 * 1024, "32 MiB cost {grown_kib} KiB");
}

/// The codec buffers a frame before it looks at its size, and the handshake takes any version and any key: the gate and the upgrade
/// check come first. `Option<&RawValue>` would lose a `null`.
#[tokio::test(flavor = "multi_thread")]
async fn trap_4_the_gate_judges_before_anything_is_buffered() {
    let rig = Rig::start(&[], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let before_kib = rig.relay.rss_peak_kib();
    phone.frame(&Frame::header_only(opcode::TEXT, 1 << 30)).await;
    let body = vec![b'x'; 256 * KIB];
    for _ in 0..300 * MIB / body.len() {
        if !phone.try_write(&body, PATIENCE).await {
            break;
        }
    }
    let grown_kib = rig.relay.rss_peak_kib() - before_kib;
    assert!(grown_kib < 16 * 1024, "1 GiB that was only announced cost {grown_kib} KiB");

    let good = ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="];
    assert_eq!(upgrade_status(&rig, good).await, 101);
    assert_eq!(upgrade_status(&rig, ["Sec-WebSocket-Version: 8", good[1]]).await, 426);
    assert_eq!(upgrade_status(&rig, [good[0], "Sec-WebSocket-Key: any"]).await, 400);

    let mut phone = rig.phone(0).await;
    phone.text(&request("null", "null")).await;
    let received = next_of(&mut desktop, "rpc.request").await;
    assert_eq!(payload_field(&received, "params"), "null");
    desktop.text(&response(&received, "null")).await;
    let answer = next_of(&mut phone, "rpc.response").await;
    assert_eq!(payload_field(&answer, "result"), "null");
}

async fn upgrade_status(rig: &Rig, headers: [&str; 2]) -> u16 {
    let mut stream = TcpStream::connect(rig.relay.ready().public).await.unwrap();
    let request = format!(
        "GET /ws/device-link HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Client-Type: desktop\r\n\
         Authorization: Bearer {}\r\n{}\r\n\r\n",
        rig.account.token,
        headers.join("\r\n")
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut start = [0; "HTTP/1.1 101".len()];
    timeout(PATIENCE, stream.read_exact(&mut start)).await.expect("an answer comes").unwrap();
    std::str::from_utf8(&start[9..]).unwrap().parse().unwrap()
}

/// The websocket crate is to be replaced one day; what knows it stays in one folder.
#[test]
fn trap_7_only_the_socket_layer_knows_the_websocket_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let home = root.join("actors/src/device_socket");
    let mut sources = Vec::new();
    for folder in ["src", "actors", "protocol", "endpoints", "bench"] {
        collect_sources(&root.join(folder), &mut sources);
    }
    let knows = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        ["actix_web_actors", "actix_http::ws", "actix_web::ws"].iter().any(|name| text.contains(name))
    };
    let (inside, outside): (Vec<_>, Vec<_>) = sources.into_iter().filter(knows).partition(|path| path.starts_with(&home));
    assert!(!inside.is_empty(), "the scan finds what is there");
    assert_eq!(outside, Vec::<PathBuf>::new());
}

fn collect_sources(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
}

/// A reconnect storm arrives faster than it is accepted; the framework's own backlog is 1,024.
#[tokio::test(flavor = "multi_thread")]
async fn trap_8_the_backlog_holds_a_reconnect_storm() {
    const WANTED: u32 = 4_096;
    let relay = RelayProcess::start(&[]).await;
    // The kernel's own bound is not ours to raise.
    let allowed: u32 = fs::read_to_string("/proc/sys/net/core/somaxconn").map_or(WANTED, |text| text.trim().parse().unwrap());
    if let Some(backlog) = backlog_by_ss(relay.ready().public.port()) {
        assert_eq!(backlog, WANTED.min(allowed));
        return;
    }
    relay.signal("STOP");
    let mut connecting = JoinSet::new();
    for _ in 0..1_500.min(allowed) {
        connecting.spawn(timeout(PATIENCE, TcpStream::connect(relay.ready().public)));
    }
    let connected = connecting.join_all().await;
    relay.signal("CONT");
    let complete = connected.iter().filter(|connection| matches!(connection, Ok(Ok(_)))).count();
    assert_eq!(complete, connected.len(), "a process that accepts nothing keeps its callers waiting");
}

/// The backlog of a listening port, if there is a tool that shows it.
fn backlog_by_ss(port: u16) -> Option<u32> {
    let output = Command::new("ss").args(["-ltnH", &format!("sport = :{port}")]).output().ok()?;
    let text = String::from_utf8(output.stdout).unwrap();
    // State, Recv-Q, Send-Q: for a listener the third is its backlog.
    text.split_whitespace().nth(2)?.parse().ok()
}

/// The HTTP dispatcher alone keeps 16 KiB for an upgraded connection; what the relay adds must stay small.
#[tokio::test(flavor = "multi_thread")]
async fn heavy_trap_9_an_idle_registered_socket_is_small() {
    const PHONES: usize = 100;
    let relay = RelayProcess::start(&[]).await;
    let accounts = scaled(1_000, 5_000) / PHONES;
    let mut households = Vec::new();
    for _ in 0..=accounts {
        households.push(Account::new(&relay, 1, PHONES).await);
    }
    let mut sockets = Vec::new();
    let mut before_kib = 0;
    for (index, account) in households.iter().enumerate() {
        // The first account is there before it is measured, with all that a first one costs.
        if index == 1 {
            before_kib = relay.rss_kib();
        }
        for phone in &account.phones {
            sockets.push(registered(&account.raw_phone(), *phone).await);
        }
    }
    assert_eq!(connections(&relay, None).await.len(), sockets.len());
    let measured = (accounts * PHONES) as u64;
    let each_bytes = (relay.rss_kib() - before_kib) * 1024 / measured;
    assert!(each_bytes <= 24 * 1024, "an idle socket costs {each_bytes} bytes");
}
