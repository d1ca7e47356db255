//! Sizes, fragments, and bytes that arrive in any pieces.

use super::{each_is_closed, expect_pong, is_closed_at_once};
use crate::support::{
    PATIENCE,
    raw_socket::{Frame, RawSocket, Received, opcode},
    scale::scaled,
    wire::{KIB, MIB, Rig, next_of, payload_field, request, request_of},
};
use std::time::Duration;
use tokio::time::sleep;

const FRAGMENTS_MAX: usize = 4_096;

/// The cap, and the flag's value that sets it.
fn cap() -> (usize, &'static str) {
    (scaled(MIB, 32 * MIB), ["1MiB", "32MiB"][scaled(0, 1)])
}

/// The frames of a text in `count` fragments.
fn fragments(text: &str, count: usize) -> Vec<Frame> {
    let pieces: Vec<&[u8]> = text.as_bytes().chunks(text.len().div_ceil(count)).collect();
    let opcode_of = |index| if index == 0 { opcode::TEXT } else { opcode::CONTINUATION };
    let last = pieces.len() - 1;
    pieces.iter().enumerate().map(|(index, piece)| Frame { fin: index == last, ..Frame::new(opcode_of(index), *piece) }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_up_to_the_cap_passes_in_any_number_of_fragments() {
    let (cap, flag) = cap();
    let rig = Rig::start(&["--max-message", flag], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    for (bytes, count) in [cap - 1, cap].into_iter().flat_map(|bytes| [1, 2, 1_000].map(|count| (bytes, count))) {
        let message = request_of(&format!("{bytes}-{count}"), bytes);
        for frame in fragments(&message, count) {
            phone.frame(&frame).await;
        }
        let received = next_of(&mut desktop, "rpc.request").await;
        assert!(payload_field(&received, "params") == payload_field(&message, "params"), "{bytes} bytes in {count} frames were changed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_the_cap_is_refused_by_the_header_that_passes_it() {
    let (cap, flag) = cap();
    let rig = Rig::start(&["--max-message", flag], 1).await;
    let mut desktop = rig.desktop().await;
    for count in [1, 2, 1_000] {
        let mut frames = fragments(&request_of("over", cap + 1), count);
        let last = frames.pop().unwrap();
        let mut phone = rig.phone(0).await;
        for frame in frames {
            phone.frame(&frame).await;
        }
        // The payload of the last frame never comes: the header alone says that the sum is too large.
        phone.frame(&Frame { fin: true, ..Frame::header_only(last.opcode, last.payload.len() as u64) }).await;
        is_closed_at_once(&rig, &mut phone, &mut desktop, 1009, "messageTooLarge").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_that_announces_the_largest_length_costs_nothing() {
    let rig = Rig::start(&[], 1).await;
    let mut desktop = rig.desktop().await;
    let before_kib = rig.relay.rss_peak_kib();
    for opcode in [opcode::TEXT; 20] {
        let mut phone = rig.phone(0).await;
        phone.frame(&Frame::header_only(opcode, (1 << 63) - 1)).await;
        is_closed_at_once(&rig, &mut phone, &mut desktop, 1009, "messageTooLarge").await;
    }
    let grown_kib = rig.relay.rss_peak_kib() - before_kib;
    assert!(grown_kib < 16 * 1024, "memory grew by {grown_kib} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sum_of_fragments_cannot_wrap_around() {
    let rig = Rig::start(&[], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    phone.frame(&Frame { fin: false, ..Frame::text("x") }).await;
    phone.frame(&Frame::header_only(opcode::CONTINUATION, u64::MAX)).await;
    is_closed_at_once(&rig, &mut phone, &mut desktop, 1009, "messageTooLarge").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_has_at_most_4096_fragments() {
    let rig = Rig::start(&[], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let message = request_of("many", FRAGMENTS_MAX);
    let bytes: Vec<u8> = fragments(&message, FRAGMENTS_MAX).iter().flat_map(Frame::encode).collect();
    phone.write(&bytes).await;
    let received = next_of(&mut desktop, "rpc.request").await;
    assert_eq!(payload_field(&received, "params"), payload_field(&message, "params"));

    let too_many = fragments(&request_of("too-many", FRAGMENTS_MAX + 1), FRAGMENTS_MAX + 1);
    assert_eq!(too_many.len(), FRAGMENTS_MAX + 1);
    let bytes = too_many.iter().flat_map(Frame::encode).collect();
    each_is_closed(&rig, &mut desktop, [bytes], 1009, "messageTooLarge").await;
    // Empty ones count too.
    let start = Frame { fin: false, ..Frame::text("x") }.encode();
    let empty = Frame { fin: false, ..Frame::new(opcode::CONTINUATION, "") }.encode().repeat(FRAGMENTS_MAX);
    each_is_closed(&rig, &mut desktop, [[start, empty].concat()], 1009, "messageTooLarge").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fragments_out_of_sequence_are_a_violation() {
    let rig = Rig::start(&[], 1).await;
    let mut desktop = rig.desktop().await;
    let start = Frame { fin: false, ..Frame::text(r#"{"type":"ping","#) };
    let lone = Frame::new(opcode::CONTINUATION, r#""payload":{}}"#);
    let lone_open = Frame { fin: false, ..lone.clone() };
    let (inside, inside_open) = (Frame::text("{}"), Frame { fin: false, ..Frame::text("{}") });
    let binary_inside = Frame::new(opcode::BINARY, "x");
    let after_end = [Frame::text("{}"), lone.clone()];
    let sequences: [&[Frame]; 6] = [
        std::slice::from_ref(&lone),
        &[lone_open],
        &[start.clone(), inside],
        &[start.clone(), inside_open],
        &[start, binary_inside],
        &after_end,
    ];
    // The last one is preceded by a whole message, which is answered first.
    let encoded = sequences.map(|frames| frames.iter().flat_map(Frame::encode).collect());
    each_is_closed(&rig, &mut desktop, encoded, 1002, "protocolViolation").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_is_refused_with_its_own_code() {
    let rig = Rig::start(&[], 1).await;
    let mut desktop = rig.desktop().await;
    let whole = Frame::new(opcode::BINARY, request("binary", "1"));
    let (empty, first) = (Frame::new(opcode::BINARY, ""), Frame { fin: false, ..whole.clone() });
    each_is_closed(&rig, &mut desktop, [whole, empty, first].map(|frame| frame.encode()), 1003, "binary").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn before_registration_a_message_has_at_most_64_kib() {
    let rig = Rig::start(&[], 1).await;
    let mut phone = RawSocket::open(&rig.account.raw_phone()).await;
    for count in [1, 2, 1_000] {
        for frame in fragments(&request_of("early", 64 * KIB), count) {
            phone.frame(&frame).await;
        }
        assert!(next_of(&mut phone, "error").await.contains("notRegistered"));
    }
    for count in [1, 2, 1_000] {
        let mut phone = RawSocket::open(&rig.account.raw_phone()).await;
        let bytes: Vec<u8> = fragments(&request_of("early", 64 * KIB + 1), count).iter().flat_map(Frame::encode).collect();
        phone.write(&bytes).await;
        assert_eq!(phone.closed(PATIENCE).await, Some((1009, "messageTooLarge".to_owned())));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_whole_however_their_bytes_arrive() {
    let rig = Rig::start(&[], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    for piece_bytes in [1, 2, 3, 5, 7, 13, 64, 126, 1_000] {
        let [first, second] = ["first", "second"].map(|id| request(&format!("{id}-{piece_bytes}"), r#"["é",1.0,"\ud83d"]"#));
        let mut frames = vec![Frame::text(&first), Frame::new(opcode::PING, format!("ping {piece_bytes}"))];
        frames.extend(fragments(&second, 7));
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        for piece in bytes.chunks(piece_bytes) {
            phone.write(piece).await;
        }
        for message in [first, second] {
            let received = next_of(&mut desktop, "rpc.request").await;
            for field in ["id", "params"] {
                assert_eq!(payload_field(&received, field), payload_field(&message, field), "in pieces of {piece_bytes}");
            }
        }
        expect_pong(&mut phone, format!("ping {piece_bytes}").as_bytes()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_message_is_kept_and_never_forwarded() {
    let rig = Rig::start(&[], 2).await;
    let (mut desktop, mut half, mut other) = (rig.desktop().await, rig.phone(0).await, rig.phone(1).await);
    let frame = Frame::text(&request("half", "1"));
    half.half_frame(&frame, 20).await;
    super::round_trip(&mut other, &mut desktop, "meanwhile").await;
    half.write(&frame.encode()[20..]).await;
    assert_eq!(payload_field(&next_of(&mut desktop, "rpc.request").await, "id"), r#""half""#);

    half.frame(&Frame { fin: false, ..frame.clone() }).await;
    half.reset();
    super::round_trip(&mut other, &mut desktop, "afterwards").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_an_endless_message_do_not_put_off_the_registration() {
    let rig = Rig::start(&["--register-timeout", "500ms"], 1).await;
    let mut phone = RawSocket::open(&rig.account.raw_phone()).await;
    phone.frame(&Frame { fin: false, ..Frame::text("{") }).await;
    let closed = loop {
        phone.try_write(&Frame { fin: false, ..Frame::new(opcode::CONTINUATION, " ") }.encode(), PATIENCE).await;
        let received = phone.read(Duration::from_millis(50)).await;
        if received != Received::Nothing {
            break received.close();
        }
    };
    assert_eq!(closed, Some((4001, "registrationTimeout".to_owned())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_socket_is_pinged_and_its_pongs_keep_it() {
    let rig = Rig::start(&["--heartbeat-interval", "200ms", "--silence-timeout", "1500ms"], 2).await;
    let (mut desktop, mut quiet, mut dead) = (rig.desktop().await, rig.phone(0).await, rig.phone(1).await);
    let pings = async {
        // Twice the silence limit.
        for _ in 0..15 {
            let Received::Frame { opcode: opcode::PING, payload, .. } = quiet.read(PATIENCE).await else { panic!("no ping") };
            quiet.frame(&Frame::new(opcode::PONG, payload)).await;
        }
    };
    let never_answers = async {
        let closed = dead.closed(PATIENCE).await;
        assert_eq!(closed, Some((4004, "silent".to_owned())));
    };
    let beats = async {
        for _ in 0..60 {
            desktop.frame(&Frame::new(opcode::PONG, "")).await;
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        _ = async { tokio::join!(pings, never_answers) } => {}
        () = beats => {}
    }
    quiet.text(&request("still-there", "1")).await;
    assert_eq!(payload_field(&next_of(&mut desktop, "rpc.request").await, "id"), r#""still-there""#);
}
