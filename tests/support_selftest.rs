//! The test harness itself: a proxy that does not stall, or a raw socket that is not raw, would let every other test lie.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use futures_util::{SinkExt, StreamExt};
use std::{net::SocketAddr, time::Duration};
use support::{
    PATIENCE,
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
    relay_process::is_error,
    stall_proxy::{Network, StallProxy},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_tungstenite::{
    accept_async,
    tungstenite::{
        Error, Message,
        error::ProtocolError,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

/// Long enough for loopback to deliver what it is going to deliver.
const A_MOMENT: Duration = Duration::from_millis(100);

async fn connected_through(proxy: &StallProxy, server: &TcpListener) -> (TcpStream, TcpStream) {
    let (client, accepted) = tokio::join!(TcpStream::connect(proxy.address()), server.accept());
    (client.unwrap(), accepted.unwrap().0)
}

async fn proxied() -> (StallProxy, TcpStream, TcpStream) {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = StallProxy::start(server.local_addr().unwrap()).await;
    let (client, accepted) = connected_through(&proxy, &server).await;
    (proxy, client, accepted)
}

async fn expect_bytes(stream: &mut TcpStream, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    timeout(PATIENCE, stream.read_exact(&mut bytes)).await.expect("bytes come").unwrap();
    assert_eq!(bytes, expected);
}

async fn expect_nothing(stream: &mut TcpStream) {
    let mut byte = [0];
    assert!(timeout(A_MOMENT, stream.read(&mut byte)).await.is_err(), "nothing should come");
}

/// `Ok(0)` for a FIN, an error for a RST.
async fn read_end(stream: &mut TcpStream) -> std::io::Result<usize> {
    let mut byte = [0];
    timeout(PATIENCE, stream.read(&mut byte)).await.expect("an end comes")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_working_network_forwards_bytes_and_fins_both_ways() {
    let (_proxy, mut client, mut server) = proxied().await;
    client.write_all(b"up").await.unwrap();
    expect_bytes(&mut server, b"up").await;
    client.shutdown().await.unwrap();
    assert_eq!(read_end(&mut server).await.unwrap(), 0);
    server.write_all(b"down, after the client's FIN").await.unwrap();
    expect_bytes(&mut client, b"down, after the client's FIN").await;
    drop(server);
    assert_eq!(read_end(&mut client).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_tires_of_idle_connections_cuts_those_and_no_others() {
    let (proxy, mut client, mut server) = proxied().await;
    let other_server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    proxy.lead_to(other_server.local_addr().unwrap());
    let (mut busy, mut answering) = connected_through(&proxy, &other_server).await;
    let idle_max = 10 * A_MOMENT;
    proxy.set(Network::CutsIdle(idle_max));
    let start = Instant::now();
    while start.elapsed() < 3 * idle_max {
        answering.write_all(b".").await.unwrap();
        expect_bytes(&mut busy, b".").await;
        tokio::time::sleep(A_MOMENT).await;
    }
    assert_eq!(read_end(&mut client).await.unwrap(), 0);
    assert_eq!(read_end(&mut server).await.unwrap(), 0);
    busy.write_all(b"still there").await.unwrap();
    expect_bytes(&mut answering, b"still there").await;
    // Neither was it cut before its time, nor is one that is left alone later.
    assert_eq!(read_end(&mut busy).await.unwrap(), 0);
    assert!(start.elapsed() >= 4 * idle_max - A_MOMENT, "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_swallows_pings_passes_everything_else_however_it_arrives() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = StallProxy::swallowing_pings(server.local_addr().unwrap()).await;
    let head = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec();
    let swallowed = [Frame::new(opcode::PING, "ping"), Frame::new(opcode::PONG, ""), Frame::new(opcode::PING, [9; 125])];
    for mask in [None, Some([1, 2, 3, 4])] {
        let passing = [Frame::text("short"), Frame::text(&"m".repeat(200)), Frame::text(&"l".repeat(70_000)), Frame::close(1000, "x")];
        let (mut all, mut expected) = (head.clone(), head.clone());
        for (index, frame) in passing.into_iter().enumerate() {
            let frame = Frame { mask, ..frame };
            let ping = Frame { mask, ..swallowed[index % swallowed.len()].clone() };
            all.extend([ping.encode(), frame.encode(), ping.encode()].concat());
            expected.extend(frame.encode());
        }
        for piece_bytes in [1, 7, 1_000, all.len()] {
            let (mut client, mut accepted) = connected_through(&proxy, &server).await;
            let write = async {
                for piece in all.chunks(piece_bytes) {
                    client.write_all(piece).await.unwrap();
                }
            };
            tokio::join!(write, expect_bytes(&mut accepted, &expected));
            expect_nothing(&mut accepted).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_network_forwards_nothing_and_loses_nothing() {
    let (proxy, mut client, mut server) = proxied().await;
    client.write_all(b"1").await.unwrap();
    expect_bytes(&mut server, b"1").await;
    proxy.set(Network::Stalls);
    client.write_all(b"2").await.unwrap();
    server.write_all(b"3").await.unwrap();
    expect_nothing(&mut server).await;
    expect_nothing(&mut client).await;
    proxy.set(Network::Works);
    expect_bytes(&mut server, b"2").await;
    expect_bytes(&mut client, b"3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_fin_comes_once_the_network_works_again() {
    let (proxy, mut client, mut server) = proxied().await;
    proxy.set(Network::HoldsFins);
    client.write_all(b"last").await.unwrap();
    drop(client);
    expect_bytes(&mut server, b"last").await;
    expect_nothing(&mut server).await;
    proxy.set(Network::Works);
    assert_eq!(read_end(&mut server).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_ends_what_is_there_even_when_stalled_and_nothing_later() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = StallProxy::start(server.local_addr().unwrap()).await;
    let (mut client, mut accepted) = connected_through(&proxy, &server).await;
    proxy.set(Network::Stalls);
    proxy.cut();
    assert_eq!(read_end(&mut client).await.unwrap(), 0);
    assert_eq!(read_end(&mut accepted).await.unwrap(), 0);
    proxy.set(Network::Works);
    let (mut client, mut accepted) = connected_through(&proxy, &server).await;
    client.write_all(b"new").await.unwrap();
    expect_bytes(&mut accepted, b"new").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_is_a_reset() {
    let (proxy, mut client, mut server) = proxied().await;
    client.write_all(b"1").await.unwrap();
    expect_bytes(&mut server, b"1").await;
    proxy.reset();
    assert_eq!(read_end(&mut client).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(read_end(&mut server).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_refuses_keeps_what_is_there_and_its_address() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = StallProxy::start(server.local_addr().unwrap()).await;
    let (mut client, mut accepted) = connected_through(&proxy, &server).await;
    for _ in 0..2 {
        proxy.set(Network::Refuses);
        let refused = async {
            // Until the listener is closed, a connection is taken and ended at once.
            while TcpStream::connect(proxy.address()).await.is_ok() {}
        };
        timeout(PATIENCE, refused).await.expect("it refuses");
        assert!(timeout(A_MOMENT, server.accept()).await.is_err(), "nobody gets through");
        client.write_all(b"still there").await.unwrap();
        expect_bytes(&mut accepted, b"still there").await;
        proxy.set(Network::Works);
        let connected = async { while TcpStream::connect(proxy.address()).await.is_err() {} };
        timeout(PATIENCE, connected).await.expect("it takes connections again");
        server.accept().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delay_is_kept_both_ways_and_loses_nothing() {
    const DELAY: Duration = Duration::from_millis(50);
    let (proxy, mut client, mut server) = proxied().await;
    proxy.set(Network::Delays(DELAY));
    let begun = Instant::now();
    client.write_all(b"up").await.unwrap();
    expect_bytes(&mut server, b"up").await;
    assert!(begun.elapsed() >= DELAY);
    server.write_all(b"down").await.unwrap();
    expect_bytes(&mut client, b"down").await;
    assert!(begun.elapsed() >= 2 * DELAY);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_leads_new_connections_elsewhere() {
    let (before, after) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let proxy = StallProxy::start(before.local_addr().unwrap()).await;
    let (mut client, mut accepted) = connected_through(&proxy, &before).await;
    proxy.lead_to(after.local_addr().unwrap());
    client.write_all(b"as before").await.unwrap();
    expect_bytes(&mut accepted, b"as before").await;
    let (mut client, mut accepted) = connected_through(&proxy, &after).await;
    client.write_all(b"elsewhere").await.unwrap();
    expect_bytes(&mut accepted, b"elsewhere").await;
}

/// A websocket server for one client: echoes texts, and reports what it received and how it ended.
async fn echo_server() -> (RawOptions, mpsc::UnboundedReceiver<Result<Message, Error>>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let (report, reports) = mpsc::unbounded_channel();
    let serving = tokio::spawn(async move {
        let (stream, _from) = listener.accept().await.unwrap();
        let mut socket = accept_async(stream).await.unwrap();
        while let Some(message) = socket.next().await {
            if let Ok(Message::Text(text)) = &message {
                let answer = match text.as_str() {
                    "close" => Message::Close(Some(CloseFrame { code: CloseCode::from(4002), reason: "replaced".into() })),
                    other => Message::text(other),
                };
                socket.send(answer).await.unwrap();
            }
            let _ = report.send(message);
        }
    });
    (RawOptions { address, path: "/".to_owned(), headers: Vec::new(), receive_buffer_bytes: None }, reports, serving)
}

async fn next_report(reports: &mut mpsc::UnboundedReceiver<Result<Message, Error>>) -> Result<Message, Error> {
    timeout(PATIENCE, reports.recv()).await.expect("the server sees something").expect("the server runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn well_formed_frames_are_understood_at_every_length_form() {
    let (options, _reports, _serving) = echo_server().await;
    let mut socket = RawSocket::open(&options).await;
    for length in [0, 1, 125, 126, 65_535, 65_536, 300_000] {
        let text = "é".repeat(length / 2) + &"x".repeat(length % 2);
        socket.text(&text).await;
        assert_eq!(socket.next_text().await, text);
    }
    socket.fragmented_text("ééé", 1).await;
    assert_eq!(socket.next_text().await, "ééé");
    socket.frame(&Frame::new(opcode::PING, "p")).await;
    assert_eq!(socket.read(PATIENCE).await, Received::Frame { fin: true, opcode: opcode::PONG, payload: b"p".to_vec() });
    assert_eq!(socket.read(A_MOMENT).await, Received::Nothing);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_broken_rule_arrives_as_that_broken_rule() {
    let unmasked = Frame { mask: None, ..Frame::text("x") };
    let reserved = Frame { rsv: 4, ..Frame::text("x") };
    let opcode_3 = Frame::new(3, "x");
    let lone_continuation = Frame::new(opcode::CONTINUATION, "x");
    let fragmented_ping = Frame { fin: false, ..Frame::new(opcode::PING, "x") };
    for frame in [unmasked, reserved, opcode_3, lone_continuation, fragmented_ping] {
        let (options, mut reports, _serving) = echo_server().await;
        let mut socket = RawSocket::open(&options).await;
        socket.frame(&frame).await;
        let Err(Error::Protocol(error)) = next_report(&mut reports).await else { panic!("{frame:?} is a violation") };
        let as_meant = match frame {
            Frame { mask: None, .. } => error == ProtocolError::UnmaskedFrameFromClient,
            Frame { rsv: 4, .. } => error == ProtocolError::NonZeroReservedBits,
            Frame { opcode: opcode::CONTINUATION, .. } => error == ProtocolError::UnexpectedContinueFrame,
            Frame { opcode: opcode::PING, .. } => error == ProtocolError::FragmentedControlFrame,
            _ => matches!(error, ProtocolError::UnknownDataFrameType(3) | ProtocolError::InvalidOpcode(3)),
        };
        assert!(as_meant, "{frame:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_can_lie_and_a_frame_can_stop_half_way() {
    let claim = Frame::header_only(opcode::TEXT, 1 << 30).encode();
    assert_eq!(claim, [0x81, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 0x37, 0xfa, 0x21, 0x3d]);

    let (options, mut reports, _serving) = echo_server().await;
    let mut socket = RawSocket::open(&options).await;
    let frame = Frame::text("whole");
    socket.half_frame(&frame, 7).await;
    assert!(timeout(A_MOMENT, reports.recv()).await.is_err(), "half a frame is no message");
    socket.write(&frame.encode()[7..]).await;
    assert_eq!(next_report(&mut reports).await.unwrap(), Message::text("whole"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_is_seen_as_one_by_the_server() {
    let (options, mut reports, _serving) = echo_server().await;
    RawSocket::open(&options).await.reset();
    match next_report(&mut reports).await {
        Err(Error::Io(error)) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        Err(Error::Protocol(error)) => assert_eq!(error, ProtocolError::ResetWithoutClosingHandshake),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn close_code_reason_and_the_end_after_it_are_told_apart() {
    let (options, _reports, _serving) = echo_server().await;
    let mut socket = RawSocket::open(&options).await;
    socket.text("before").await;
    socket.text("close").await;
    assert_eq!(socket.closed(PATIENCE).await, Some((4002, "replaced".to_owned())));
    socket.frame(&Frame::close(4002, "")).await;
    assert_eq!(socket.read(PATIENCE).await, Received::End);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_a_server_ends_is_told_apart() {
    for (bytes, reset, expected) in
        [(&b""[..], false, Received::End), (&b"\x81\x05ab"[..], false, Received::EndInsideFrame), (&b""[..], true, Received::Reset)]
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut socket = RawSocket::connect(listener.local_addr().unwrap(), None).await;
        let (mut server, _from) = listener.accept().await.unwrap();
        server.write_all(bytes).await.unwrap();
        if reset {
            socket2::SockRef::from(&server).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(server);
        assert_eq!(socket.read(PATIENCE).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_receive_buffer_stops_a_sender_early() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut socket = RawSocket::connect(listener.local_addr().unwrap(), Some(4 * 1024)).await;
    let (mut server, _from) = listener.accept().await.unwrap();
    socket2::SockRef::from(&server).set_send_buffer_size(16 * 1024).unwrap();
    let much = vec![0; 4 * 1024 * 1024];
    {
        let mut writing = std::pin::pin!(server.write_all(&much));
        assert!(timeout(A_MOMENT, &mut writing).await.is_err(), "4 MiB do not fit");
        let (written, taken) = tokio::join!(writing, socket.discard(much.len(), PATIENCE));
        written.unwrap();
        assert_eq!(taken, much.len());
    }
    assert_eq!(socket.discard(1, A_MOMENT).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_is_refused_gives_its_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = RawOptions { address, path: "/".to_owned(), headers: Vec::new(), receive_buffer_bytes: None };
    let server = async {
        let (mut stream, _from) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        stream
    };
    let (opened, _stream) = tokio::join!(RawSocket::try_open(&options), server);
    assert!(opened.err().unwrap().starts_with("HTTP/1.1 401 "));
}

#[test]
fn error_lines_are_told_from_lines_that_speak_of_errors() {
    for line in [
        "2026-01-01T00:00:00Z ERROR relay: it broke",
        r#"{"timestamp":"t","level":"ERROR","fields":{}}"#,
        "thread 'main' panicked at src/main.rs:1:1:",
    ] {
        assert!(is_error(line), "{line}");
    }
    for line in ["2026-01-01T00:00:00Z  WARN relay: an ERROR frame was sent", r#"{"level":"WARN","message":"ERROR"}"#, ""] {
        assert!(!is_error(line), "{line}");
    }
}
