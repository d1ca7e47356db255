//! Pings, closes, and frames that no rule allows.

use super::{each_is_closed, expect_pong};
use crate::support::{
    PATIENCE,
    raw_socket::{Frame, RawSocket, opcode},
    wire::{Rig, next_of, payload_field, request},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_ping_of_up_to_125_bytes_gets_exactly_its_pong() {
    let rig = Rig::start(&[], 1).await;
    let mut unregistered = RawSocket::open(&rig.account.raw_phone()).await;
    let mut phone = rig.phone(0).await;
    for length in [0, 1, 124, 125] {
        let payload: Vec<u8> = (0..length).map(|byte| byte ^ 0x80).collect();
        for socket in [&mut unregistered, &mut phone] {
            socket.frame(&Frame::new(opcode::PING, payload.clone())).await;
            expect_pong(socket, &payload).await;
        }
    }
    // A pong that nobody asked for is not answered: the next thing is the answer to the ping after it.
    phone.frame(&Frame::new(opcode::PONG, "unsolicited")).await;
    phone.frame(&Frame::new(opcode::PING, "next")).await;
    expect_pong(&mut phone, b"next").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ping_between_fragments_gets_its_pong_and_the_message_stays_whole() {
    let rig = Rig::start(&[], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let message = request("in-three", r#"{"text":"one two three"}"#);
    let pieces: Vec<&[u8]> = message.as_bytes().chunks(message.len().div_ceil(3)).collect();
    phone.frame(&Frame { fin: false, ..Frame::new(opcode::TEXT, pieces[0]) }).await;
    for (ping, piece, fin) in [("first", pieces[1], false), ("second", pieces[2], true)] {
        phone.frame(&Frame::new(opcode::PING, ping)).await;
        expect_pong(&mut phone, ping.as_bytes()).await;
        phone.frame(&Frame { fin, ..Frame::new(opcode::CONTINUATION, piece) }).await;
    }
    let received = next_of(&mut desktop, "rpc.request").await;
    assert_eq!(payload_field(&received, "params"), payload_field(&message, "params"));
}

#[tokio::test(flavor = "multi_thread")]
async fn control_frames_that_are_long_or_fragmented_are_violations() {
    let rig = Rig::start(&[], 1).await;
    let mut desktop = rig.desktop().await;
    let mut violations = Vec::new();
    for opcode in [opcode::PING, opcode::PONG, opcode::CLOSE] {
        let close_code = 1000_u16.to_be_bytes();
        for length in [126, 127, 65_536] {
            let payload = [&close_code[..], &vec![b'x'; length - 2]].concat();
            violations.push(Frame::new(opcode, payload).encode());
        }
        violations.push(Frame { fin: false, ..Frame::new(opcode, close_code) }.encode());
    }
    // Also inside a message.
    let start = Frame { fin: false, ..Frame::text("{") };
    violations.push([start.encode(), Frame { fin: false, ..Frame::new(opcode::PING, "x") }.encode()].concat());
    each_is_closed(&rig, &mut desktop, violations, 1002, "protocolViolation").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unmasked_and_reserved_frames_are_violations() {
    let rig = Rig::start(&[], 1).await;
    let mut desktop = rig.desktop().await;
    let text = request("forbidden", "1");
    let mut violations = Vec::new();
    for opcode in [opcode::TEXT, opcode::PING, opcode::CLOSE] {
        let payload = if opcode == opcode::TEXT { text.clone().into_bytes() } else { 1000_u16.to_be_bytes().to_vec() };
        violations.push(Frame { mask: None, ..Frame::new(opcode, payload.clone()) }.encode());
        violations.extend([1, 2, 4, 7].map(|rsv| Frame { rsv, ..Frame::new(opcode, payload.clone()) }.encode()));
    }
    violations.extend([3, 4, 5, 6, 7, 0xb, 0xc, 0xd, 0xe, 0xf].map(|opcode| Frame::new(opcode, text.clone()).encode()));
    each_is_closed(&rig, &mut desktop, violations, 1002, "protocolViolation").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_has_no_payload_or_a_code_that_a_peer_may_send() {
    let rig = Rig::start(&[], 1).await;
    let mut desktop = rig.desktop().await;
    let forbidden = [0, 999, 1004, 1005, 1006, 1015, 1016, 2000, 2999, 5000, 65_535];
    let mut violations: Vec<_> = forbidden.map(|code| Frame::close(code, "").encode()).to_vec();
    violations.push(Frame::close(1005, "with a reason").encode());
    violations.push(Frame::new(opcode::CLOSE, [3]).encode());
    each_is_closed(&rig, &mut desktop, violations, 1002, "protocolViolation").await;

    for code in [1000, 1001, 1003, 1007, 1011, 3000, 4000, 4999] {
        let mut phone = rig.phone(0).await;
        phone.frame(&Frame::close(code, "goodbye")).await;
        assert_eq!(phone.closed(PATIENCE).await, Some((code, String::new())));
    }
    let mut phone = rig.phone(0).await;
    phone.frame(&Frame::new(opcode::CLOSE, "")).await;
    assert_eq!(phone.closed(PATIENCE).await, Some((1005, String::new())));
}
