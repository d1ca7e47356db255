//! Text is UTF-8 as a whole message: a character may be cut by a fragment's end, and nothing may be wrong anywhere.

use super::{each_is_closed, is_closed_at_once};
use crate::support::{
    raw_socket::{Frame, opcode},
    wire::{Rig, next_of, payload_field, request},
};

/// Characters of one to four bytes, at the edges of their lengths.
const CHARACTERS: &str = "\u{7f}\u{80}\u{7ff}\u{800}\u{d7ff}\u{e000}\u{ffff}\u{10000}\u{10ffff}é€😀";

#[tokio::test(flavor = "multi_thread")]
async fn a_character_may_be_cut_anywhere() {
    let rig = Rig::start(&[], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let params = format!("\"{CHARACTERS}\"");
    for cut in 1..request("cut-000", &params).len() {
        let text = request(&format!("cut-{cut:03}"), &params);
        let (start, end) = text.as_bytes().split_at(cut);
        let frames = [Frame { fin: false, ..Frame::new(opcode::TEXT, start) }, Frame::new(opcode::CONTINUATION, end)];
        phone.write(&frames.map(|frame| frame.encode()).concat()).await;
        let received = next_of(&mut desktop, "rpc.request").await;
        assert_eq!(payload_field(&received, "params"), params, "cut at {cut}");
        if cut % 32 == 0 {
            // A phone has at most 64 open requests.
            phone = rig.phone(0).await;
            desktop = rig.desktop().await;
        }
    }
    phone.fragmented_text(&request("each-byte", &params), 1).await;
    assert_eq!(payload_field(&next_of(&mut desktop, "rpc.request").await, "params"), params);
}

/// Texts that are not UTF-8, each inside an otherwise good request.
fn not_utf8() -> Vec<Vec<u8>> {
    let invalid: [&[u8]; 9] = [
        b"\xff",
        // A continuation byte without a start, and a start without its continuation.
        b"\x80",
        b"\xe2\x82",
        // Over-long forms of `/` and NUL.
        b"\xc0\xaf",
        b"\xe0\x80\x80",
        b"\xf0\x80\x80\xaf",
        // Both halves of an encoded surrogate pair.
        b"\xed\xa0\xbd",
        b"\xed\xb8\x80",
        // Above the last code point.
        b"\xf4\x90\x80\x80",
    ];
    let text = request("invalid", "\"^\"");
    let (start, end) = text.split_once('^').unwrap();
    invalid.into_iter().map(|invalid| [start.as_bytes(), invalid, end.as_bytes()].concat()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_utf8_is_closed_with_1007_in_one_frame_and_in_fragments() {
    let rig = Rig::start(&[], 1).await;
    let mut desktop = rig.desktop().await;
    let whole = not_utf8().into_iter().map(|text| Frame::new(opcode::TEXT, text).encode());
    each_is_closed(&rig, &mut desktop, whole, 1007, "notUtf8").await;
    // Three fragments, the fault in the second; and then one byte in each.
    for piece_bytes in [not_utf8()[0].len() / 3 + 1, 1] {
        let fragmented = not_utf8().into_iter().map(|text| {
            let pieces: Vec<&[u8]> = text.chunks(piece_bytes).collect();
            let frame = |(index, piece): (usize, &&[u8])| {
                let opcode = if index == 0 { opcode::TEXT } else { opcode::CONTINUATION };
                Frame { fin: index + 1 == pieces.len(), ..Frame::new(opcode, *piece) }.encode()
            };
            pieces.iter().enumerate().flat_map(frame).collect()
        });
        each_is_closed(&rig, &mut desktop, fragmented, 1007, "notUtf8").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_may_not_end_inside_a_character() {
    let rig = Rig::start(&[], 1).await;
    let mut desktop = rig.desktop().await;
    let cut = |length: usize| "😀".as_bytes()[..length].to_vec();
    let whole = (1..4).map(|length| Frame::new(opcode::TEXT, cut(length)).encode());
    each_is_closed(&rig, &mut desktop, whole, 1007, "notUtf8").await;
    let fragmented = (1..4).map(|length| {
        let start = Frame { fin: false, ..Frame::new(opcode::TEXT, cut(length)) };
        [start.encode(), Frame::new(opcode::CONTINUATION, "").encode()].concat()
    });
    each_is_closed(&rig, &mut desktop, fragmented, 1007, "notUtf8").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_a_close_is_text_too() {
    let rig = Rig::start(&[], 1).await;
    let mut desktop = rig.desktop().await;
    let close = |reason: &[u8]| Frame::new(opcode::CLOSE, [&1000_u16.to_be_bytes(), reason].concat());
    let invalid: [&[u8]; 4] = [b"\xff", b"bye \xc0\xaf", b"\xed\xa0\xbd", b"bye \xf0\x9f\x98"];
    each_is_closed(&rig, &mut desktop, invalid.map(|reason| close(reason).encode()), 1007, "notUtf8").await;
    // However its bytes arrive.
    let mut phone = rig.phone(0).await;
    for byte in close(b"bye \xff").encode() {
        phone.write(&[byte]).await;
    }
    is_closed_at_once(&rig, &mut phone, &mut desktop, 1007, "notUtf8").await;
    let mut phone = rig.phone(0).await;
    phone.frame(&close("bye 😀".as_bytes())).await;
    is_closed_at_once(&rig, &mut phone, &mut desktop, 1000, "").await;
}
