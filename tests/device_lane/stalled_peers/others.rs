//! C36: a burst harms nobody who reads on after a pause, and a peer that is stuck delays nobody else.

use super::{LIMITS, REPLIES, ask_many, freezing, is_gone, reply_at_length};
use crate::support::{
    neighbours::{Neighbours, Runner, slowest},
    raw_socket::Frame,
    scale::scaled,
    wire::{KIB, Rig, eventually, next_of, payload_field, registered, request, response, round_trip},
};
use std::time::Duration;
use tokio::time::Instant;

/// How much longer than in calm times others may wait: less than it takes until the stuck peer is given up.
const TOLERATED: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_to_a_phone_that_pauses_arrives_whole_and_in_order() {
    let rig = Rig::start(&[], 2).await;
    let (mut desktop, mut other) = (rig.desktop().await, rig.phone(1).await);
    // Far more than the kernel holds, and less than may wait for a connection.
    for (name, count, bytes) in [("small", 5_000, 2 * KIB), ("large", scaled(200, 800), 64 * KIB)] {
        let mut phone = registered(&freezing(rig.account.raw_phone()), rig.account.phones[0]).await;
        phone.text(&request(name, "1")).await;
        let asked = next_of(&mut desktop, "rpc.request").await;
        let filler = "f".repeat(bytes);
        let part =
            |number: usize| response(&asked, &format!("\"{number} {filler}\"")).replace(r#""result""#, r#""isFinal":false,"result""#);
        let burst: Vec<u8> = (0..count).flat_map(|number| Frame::text(&part(number)).encode()).collect();
        desktop.write(&burst).await;
        // All of it has been routed when something behind it has; until then the phone reads nothing.
        round_trip(&mut other, &mut desktop, &format!("behind {name}")).await;
        for number in 0..count {
            let part = next_of(&mut phone, "rpc.response").await;
            let result = payload_field(&part, "result");
            assert!(result.len() == filler.len() + 3 + number.to_string().len(), "{name} {number} is whole");
            assert!(result.starts_with(&format!("\"{number} ")), "{name} {number}: {}", &result[..20]);
        }
        round_trip(&mut phone, &mut desktop, &format!("after {name}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_stuck_phone_delays_nobody_else() {
    let rig = Rig::start(&LIMITS, 2).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(1).await);
    let mut pairs = Vec::new();
    for _ in 0..scaled(10, 50) {
        pairs.push(Neighbours::start(&rig.relay).await);
    }
    let runners = pairs.into_iter().map(Runner::start).collect();
    for trip in 0..scaled(100, 1_000) {
        round_trip(&mut phone, &mut desktop, &format!("calm {trip}")).await;
    }
    let (pairs, calm) = slowest(runners).await;

    let mut stuck = registered(&freezing(rig.account.raw_phone()), rig.account.phones[0]).await;
    let requests = ask_many(&mut stuck, &mut desktop, "stuck", REPLIES).await;
    let runners = pairs.into_iter().map(Runner::start).collect();
    let begun = Instant::now();
    for (number, request) in requests.iter().enumerate() {
        // One at a time: many at once would keep a core busy, and show nothing but that.
        reply_at_length(&mut desktop, request).await;
        round_trip(&mut phone, &mut desktop, &format!("between {number}")).await;
    }
    // Also those who share its desktop go on.
    let (mut trips, mut beside) = (0, Duration::ZERO);
    eventually("the stuck phone is gone", async || {
        trips += 1;
        let begun = Instant::now();
        round_trip(&mut phone, &mut desktop, &format!("beside {trips}")).await;
        beside = beside.max(begun.elapsed());
        is_gone(&rig, rig.account.phones[0]).await
    })
    .await;
    let stuck_for = begun.elapsed();
    let (_pairs, meanwhile) = slowest(runners).await;
    assert!(stuck_for > TOLERATED, "it was stuck for {stuck_for:?} only: nothing was measured");
    assert!(meanwhile < calm + TOLERATED, "{meanwhile:?} while one was stuck, {calm:?} before");
    assert!(trips > 1 && beside < calm + TOLERATED, "{beside:?} for the same account in {trips} trips, {calm:?} before");
}
