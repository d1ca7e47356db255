//! C37: what a large message took is given back when it has passed, however many have passed over a connection that stays.

use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawSocket, Received, opcode},
    scale::scaled,
    wire::{Before, KIB, MIB, Rig, eventually, next_of, payload_field, registered, request_of, response, round_trip},
};

/// Writes a text in one frame, masked with zeros: the test masks byte by byte otherwise.
async fn send_large(socket: &mut RawSocket, text: &str) {
    let header = Frame { mask: Some([0; 4]), ..Frame::header_only(opcode::TEXT, text.len() as u64) };
    socket.write(&header.encode()).await;
    socket.write(text.as_bytes()).await;
}

/// A message of this size each way.
async fn exchange(phone: &mut RawSocket, desktop: &mut RawSocket, bytes: usize) {
    send_large(phone, &request_of("large", bytes)).await;
    let received = next_of(desktop, "rpc.request").await;
    let params = payload_field(&received, "params");
    assert!(params.len() > bytes - KIB, "{} bytes came", params.len());
    send_large(desktop, &response(&received, params)).await;
    let answer = next_of(phone, "rpc.response").await;
    assert!(payload_field(&answer, "result") == params, "the value was changed");
}

/// What also an idle connection does now and then.
async fn ping(socket: &mut RawSocket) {
    socket.frame(&Frame::new(opcode::PING, "idle")).await;
    loop {
        match socket.read(PATIENCE).await {
            Received::Frame { opcode: opcode::PONG, .. } => return,
            // The relay's own.
            Received::Frame { opcode: opcode::PING, .. } => {}
            Received::Frame { .. } | Received::End | Received::EndInsideFrame | Received::Reset | Received::Nothing => panic!("no pong"),
        }
    }
}

/// How much resident memory has grown since.
fn grown_kib(rig: &Rig, since_kib: u64) -> usize {
    usize::try_from(rig.relay.rss_kib().saturating_sub(since_kib)).unwrap()
}

/// What is left of large messages are the buffers of the HTTP layer and the codec, which each connection has for itself.
#[tokio::test(flavor = "multi_thread")]
async fn heavy_connections_that_carried_large_messages_keep_small_buffers_only() {
    const KEPT_BY_EACH_KIB: usize = 320;
    let count = scaled(50, 500);
    let rig = Rig::start(&[], count).await;
    let mut desktop = rig.desktop().await;
    let mut phones = Vec::new();
    for index in 0..count {
        phones.push(rig.phone(index).await);
        round_trip(&mut phones[index], &mut desktop, "small").await;
    }
    let idle_kib = rig.relay.rss_kib();
    let mut kept_kib = Vec::new();
    for _ in 0..scaled(3, 10) {
        for phone in &mut phones {
            exchange(phone, &mut desktop, scaled(2 * MIB, 32 * MIB)).await;
        }
        for socket in phones.iter_mut().chain([&mut desktop]) {
            ping(socket).await;
        }
        kept_kib.push(grown_kib(&rig, idle_kib));
    }
    let (first, last) = (kept_kib[0], kept_kib[kept_kib.len() - 1]);
    assert!(last < count * KEPT_BY_EACH_KIB, "{last} KiB are kept by {count} connections");
    assert!(last < first + 4 * KIB, "more with each round: {kept_kib:?} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_result_of_32_mib_takes_its_size_and_gives_it_back() {
    let rig = Rig::start(&[], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    round_trip(&mut phone, &mut desktop, "small").await;
    let idle_kib = rig.relay.rss_kib();
    for _ in 0..2 {
        exchange(&mut phone, &mut desktop, 32 * MIB - KIB).await;
        round_trip(&mut phone, &mut desktop, "small").await;
        let kept_kib = grown_kib(&rig, idle_kib);
        assert!(kept_kib < 8 * KIB, "{kept_kib} KiB are kept");
    }
    let peak_kib = usize::try_from(rig.relay.rss_peak_kib() - idle_kib).unwrap();
    assert!((32 * KIB..48 * KIB).contains(&peak_kib), "32 MiB took {peak_kib} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_message_that_stops_costs_what_has_come_of_it_and_gives_it_back() {
    const CLAIMS: usize = 20;
    let rig = Rig::start(&[], 1).await;
    let mut desktop = rig.desktop().await;
    let before = Before::of(&rig.relay).await;
    let mut phone = rig.phone(0).await;
    round_trip(&mut phone, &mut desktop, "small").await;
    let idle_kib = rig.relay.rss_kib();
    // One account's sockets that do not replace each other: registered first, as nobody else may claim so much.
    let accounts = Account::new(&rig.relay, CLAIMS, 0).await;
    let mut desktops = Vec::new();
    for device in &accounts.desktops {
        let mut socket = registered(&accounts.raw_desktop(), *device).await;
        socket.frame(&Frame::header_only(opcode::TEXT, 32 * MIB as u64)).await;
        socket.write(b"x").await;
        desktops.push(socket);
    }
    round_trip(&mut phone, &mut desktop, "claimed").await;
    let grown = grown_kib(&rig, idle_kib);
    assert!(grown < 4 * KIB, "{CLAIMS} claims of 32 MiB took {grown} KiB");

    let part = vec![b'x'; MIB];
    for socket in &mut desktops {
        socket.write(&part).await;
    }
    // All of it has been read when the last of it has been taken out of the kernel.
    eventually("the parts have come", async || grown_kib(&rig, idle_kib) >= CLAIMS * KIB).await;
    round_trip(&mut phone, &mut desktop, "partly").await;
    let grown = grown_kib(&rig, idle_kib);
    assert!(grown < CLAIMS * KIB * 3 / 2 + 4 * KIB, "{CLAIMS} MiB that have come took {grown} KiB");

    desktops.into_iter().for_each(RawSocket::reset);
    drop(phone);
    before.given_back(&rig.relay).await;
    let kept = grown_kib(&rig, idle_kib);
    assert!(kept < 8 * KIB, "{kept} KiB are kept");
}
