//! Phones that get more events than they read for the moment: who reads gets everything in order, however much it is; who reads nothing
//! is retired, and nobody else is delayed.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::support::{
    PATIENCE,
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
    scale::scaled,
    timeline::{event, interest, next_update},
    wire::{Before, KIB, MIB, Rig, connection_of, registered, round_trip},
};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// The desktop is not paced: this is about what comes out.
const UNPACED: [&str; 4] = ["--rate-burst", "1000000", "--rate-per-second", "1000000"];

/// Half of what may wait for one connection: the reader need not be as fast as the writer.
const BURST_BYTES: usize = 32 * MIB;

/// The interval after which the buffer is written, with what a busy machine takes.
const SOON: Duration = Duration::from_millis(250 + 1_000);

const SESSION: &str = "s";

/// The payload of the next event with this name; presence in between is left out.
async fn next_event(socket: &mut RawSocket, name: &str) -> Value {
    loop {
        let mut frame: Value = serde_json::from_str(&socket.next_text().await).unwrap();
        assert_eq!(frame["type"], "event");
        if frame["payload"]["eventType"] == name {
            return frame["payload"]["payload"].take();
        }
        assert_eq!(frame["payload"]["eventType"], "device-status");
    }
}

/// The phone watches a session; what the desktop is told gives the generation.
async fn watch(phone: &mut RawSocket, desktop: &mut RawSocket) -> String {
    phone.text(&interest(SESSION, true)).await;
    next_update(desktop).await.generation().to_owned()
}

fn timeline(generation: &str, number: usize, bytes: usize) -> String {
    let pad = "x".repeat(bytes);
    event("chat:stream", &format!(r#"{{"appSessionId":"{SESSION}","authorizationGeneration":"{generation}","n":{number},"pad":"{pad}"}}"#))
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_gets_any_burst_whole_and_in_order() {
    let rig = Rig::start(&UNPACED, 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let generation = watch(&mut phone, &mut desktop).await;
    // Tiny ones, some of a slice's size, and oversized ones.
    let sizes = [10, 1_000, 64 * KIB, 10, 600 * KIB, 100, 300 * KIB];
    let frames = BURST_BYTES / sizes.iter().sum::<usize>() * sizes.len();
    for burst in 0..scaled(1, 30) {
        let numbers = move || burst * frames..(burst + 1) * frames;
        // A task of its own: while the next frame is written this one reads.
        let reading = tokio::spawn(async move {
            for number in numbers() {
                let frame = next_event(&mut phone, "chat:stream").await;
                assert_eq!((frame["n"].as_u64(), frame["pad"].as_str().unwrap().len()), (Some(number as u64), sizes[number % sizes.len()]));
            }
            phone
        });
        for number in numbers() {
            let frame = timeline(&generation, number, sizes[number % sizes.len()]);
            let header = Frame { mask: Some([0; 4]), ..Frame::header_only(opcode::TEXT, frame.len() as u64) };
            desktop.write(&[&header.encode(), frame.as_bytes()].concat()).await;
        }
        phone = reading.await.unwrap();
    }
    round_trip(&mut phone, &mut desktop, "afterwards").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_waits_for_others_no_longer_than_the_interval_and_many_do_not_wait() {
    let rig = Rig::start(&[&UNPACED[..], &["--flush-interval", "1s"]].concat(), 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let start = Instant::now();
    desktop.text(&event("test:small", "{}")).await;
    // A reply does not wait behind it.
    round_trip(&mut phone, &mut desktop, "beside").await;
    next_event(&mut phone, "test:small").await;
    assert!(start.elapsed() >= Duration::from_secs(1), "written after {:?}", start.elapsed());
    let start = Instant::now();
    let large = format!(r#"{{"pad":"{}"}}"#, "x".repeat(64 * KIB));
    desktop.text(&event("test:large", &large)).await;
    next_event(&mut phone, "test:large").await;
    assert!(start.elapsed() < Duration::from_secs(1), "written after {:?}", start.elapsed());
}

/// The kernel's buffers are large beside a slow reader's second: that it has no room for a while does not mean that nothing moves.
#[tokio::test(flavor = "multi_thread")]
async fn who_reads_slowly_but_steadily_is_not_retired() {
    const PACE: (usize, Duration) = (5 * KIB, Duration::from_millis(100));
    const SLOW_FOR: Duration = Duration::from_secs(4);
    let rig = Rig::start(&UNPACED, 1).await;
    let mut desktop = rig.desktop().await;
    let options = RawOptions { receive_buffer_bytes: Some(4_096), ..rig.account.raw_phone() };
    let mut phone = registered(&options, rig.account.phones[0]).await;
    let frame = event("test:slow", &format!(r#"{{"pad":"{}"}}"#, "x".repeat(64 * KIB)));
    desktop.text(&frame).await;
    let frame_bytes = 10 + phone.next_text().await.len();
    let frames = 96;
    for _ in 0..frames {
        desktop.text(&frame).await;
    }
    let (start, mut left) = (Instant::now(), frames * frame_bytes);
    while start.elapsed() < SLOW_FOR {
        left -= phone.discard(PACE.0, PATIENCE).await;
        tokio::time::sleep(PACE.1).await;
    }
    let connection = connection_of(&rig.relay, rig.account.user, rig.account.phones[0]).await.expect("it reads, so it is there");
    assert!(connection["queuedBytes"].as_u64().unwrap() >= 512 * KIB as u64, "its buffer was full all the time");
    assert_eq!(phone.discard(left, PATIENCE).await, left);
    round_trip(&mut phone, &mut desktop, "afterwards").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_reads_nothing_is_retired_and_the_others_get_theirs_in_time() {
    let rig = Rig::start(&UNPACED, 4).await;
    let mut desktop = rig.desktop().await;
    let mut readers = Vec::new();
    for index in 1..4 {
        let mut reader = rig.phone(index).await;
        watch(&mut reader, &mut desktop).await;
        readers.push(reader);
    }
    let before = Before::of(&rig.relay).await;
    let options = RawOptions { receive_buffer_bytes: Some(4_096), ..rig.account.raw_phone() };
    let mut frozen = registered(&options, rig.account.phones[0]).await;
    let generation = watch(&mut frozen, &mut desktop).await;
    let (mut number, mut full, mut most_queued) = (0, None, 0);
    loop {
        let sent = Instant::now();
        desktop.text(&timeline(&generation, number, 200 * KIB)).await;
        for reader in &mut readers {
            assert_eq!(next_event(reader, "chat:stream").await["n"], number);
        }
        assert!(sent.elapsed() < SOON, "the others wait for {:?}", sent.elapsed());
        number += 1;
        let Some(connection) = connection_of(&rig.relay, rig.account.user, rig.account.phones[0]).await else { break };
        let queued = usize::try_from(connection["queuedBytes"].as_u64().unwrap()).unwrap();
        most_queued = most_queued.max(queued);
        if queued >= 512 * KIB {
            full.get_or_insert(Instant::now());
        }
    }
    // A second, a quarter for the sweep, two until the connection is ended from outside, and what a busy machine takes.
    let after = full.expect("it was full before it was gone").elapsed();
    assert!(Duration::from_millis(500) < after && after < Duration::from_secs(6), "gone after {after:?}");
    before.given_back(&rig.relay).await;
    let taken = frozen.discard(usize::MAX, PATIENCE).await;
    assert!(taken < number * 200 * KIB, "all {taken} bytes came: it was not frozen");
    let end = frozen.read(PATIENCE).await;
    assert!(matches!(end, Received::End | Received::EndInsideFrame | Received::Reset), "{end:?}");
    assert!(most_queued < 64 * MIB, "{most_queued} bytes waited for it");
    let mut back = rig.phone(0).await;
    back.text(&interest(SESSION, true)).await;
    // Behind it; what the desktop is told says nothing, since it was also told when the frozen one went.
    round_trip(&mut back, &mut desktop, "back").await;
    desktop.text(&timeline(&generation, number, 1)).await;
    assert_eq!(next_event(&mut back, "chat:stream").await["n"], number);
}
