//! C37: what a large message took is given back when it has passed, however many have passed over a connection that stays.

use super::expect_pong;
use crate::support::{
    raw_socket::{Frame, RawSocket, opcode},
    scale::scaled,
    wire::{KIB, MIB, Rig, next_of, payload_field, request_of, response, round_trip},
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

#[tokio::test(flavor = "multi_thread")]
async fn heavy_connections_that_carried_large_messages_are_as_small_as_before() {
    let count = scaled(50, 500);
    let rig = Rig::start(&[], count).await;
    let mut desktop = rig.desktop().await;
    let mut phones = Vec::new();
    for index in 0..count {
        phones.push(rig.phone(index).await);
        round_trip(&mut phones[index], &mut desktop, "small").await;
    }
    let idle_kib = rig.relay.rss_kib();
    for round in 0..scaled(3, 10) {
        let begun = std::time::Instant::now();
        for phone in &mut phones {
            exchange(phone, &mut desktop, scaled(2 * MIB, 32 * MIB)).await;
        }
        for phone in &mut phones {
            phone.frame(&Frame::new(opcode::PING, "idle")).await;
            expect_pong(phone, b"idle").await;
        }
        let kept_kib = rig.relay.rss_kib() - idle_kib;
        eprintln!("round {round}: {kept_kib} KiB kept, idle {idle_kib}, peak {} {:?}", rig.relay.rss_peak_kib(), begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_result_of_32_mib_takes_its_size_and_gives_it_back() {
    let rig = Rig::start(&[], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    round_trip(&mut phone, &mut desktop, "small").await;
    let idle_kib = rig.relay.rss_kib();
    for round in 0..5 {
        exchange(&mut phone, &mut desktop, 32 * MIB - KIB).await;
        round_trip(&mut phone, &mut desktop, "small").await;
        let kept_kib = rig.relay.rss_kib() - idle_kib;
        eprintln!("round {round}: {kept_kib} KiB kept, idle {idle_kib}, peak {}", rig.relay.rss_peak_kib());
    }
}
