//! Large frames on their way to the codec: the headers of their pieces, and that a message comes out as it went in.

use super::{
    bucket::Rate,
    gate::{Gate, GateLimits, Passed},
    gate_testing::frame_claiming,
    message_buffer::MessageBuffer,
};
use crate::clock;
use actix_http::ws::{Codec, Frame, Item};
use bytes::BytesMut;
use proptest::{collection::vec, prelude::*, sample::Index};
use relay_protocol::{close::CloseReason, device::Role};
use tokio_util::codec::Decoder;

const TEXT: u8 = 0x1;
const CONTINUATION: u8 = 0x0;
const PING: u8 = 0x9;
const FIN: u8 = 0x80;

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    frame_claiming(first, payload.len() as u64, payload)
}

fn gate(piece_bytes_max: usize) -> Gate {
    let rate = Rate { burst: u32::MAX, per_second: u32::MAX };
    Gate::new(GateLimits { piece_bytes_max, fragments_max: 5, rate, ..GateLimits::default() }, Role::Desktop, clock::now())
}

/// What passes of one chunk: each time what goes first, and how many bytes of the chunk follow it.
fn passed(gate: &mut Gate, mut chunk: &[u8]) -> Vec<(Vec<u8>, usize)> {
    let mut all = Vec::new();
    while !chunk.is_empty() {
        let Passed { held, bytes, judged, violation, .. } = gate.judge(chunk, true, clock::now());
        assert_eq!(violation, None);
        if bytes > 0 {
            all.push((held.to_vec(), bytes));
        }
        chunk = &chunk[judged..];
    }
    all
}

/// The first byte of a header and its length, and how far the mask has been turned.
fn piece(first: u8, length: u8, turned: usize) -> (Vec<u8>, usize) {
    let mut mask = [0x37, 0xfa, 0x21, 0x3d];
    mask.rotate_left(turned);
    ([&[first, 0x80 | length][..], &mask].concat(), usize::from(length))
}

#[test]
fn a_large_frame_passes_in_pieces_under_headers_of_their_own() {
    let large = frame(FIN | TEXT, b"abcdefghij");
    assert_eq!(passed(&mut gate(4), &large), [piece(TEXT, 4, 0), piece(CONTINUATION, 4, 0), piece(FIN, 2, 0)]);
    // As it comes: nothing waits for a piece to be full, so the mask is turned to where its text begins.
    let mut cut = gate(4);
    let pieces: Vec<_> = large.chunks(3).flat_map(|chunk| passed(&mut cut, chunk)).collect();
    assert_eq!(pieces, [piece(TEXT, 3, 0), piece(CONTINUATION, 3, 3), piece(CONTINUATION, 3, 2), piece(FIN, 1, 1)]);
    // A frame of just the size is not large.
    let whole = frame(FIN | TEXT, b"abcd");
    assert_eq!(passed(&mut gate(4), &whole), [(vec![], whole.len())]);
}

#[test]
fn the_clients_own_fragments_are_cut_alike_and_its_small_frames_are_not() {
    let ping = frame(FIN | PING, b"larger than a piece");
    let stream = [frame(TEXT, b"abcde"), ping.clone(), frame(CONTINUATION, b"f"), frame(FIN, b"ghijk"), frame(FIN | TEXT, b"l")].concat();
    let expected = [
        piece(TEXT, 4, 0),
        piece(CONTINUATION, 1, 0),
        (vec![], ping.len() + frame(CONTINUATION, b"f").len()),
        piece(CONTINUATION, 4, 0),
        piece(FIN, 1, 0),
        (vec![], frame(FIN | TEXT, b"l").len()),
    ];
    assert_eq!(passed(&mut gate(4), &stream), expected);
}

#[test]
fn a_piece_has_the_shortest_form_of_its_length() {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    for (length, form) in [
        (125, &[0x80 | 125][..]),
        (126, &[0x80 | 126, 0, 126]),
        (65_535, &[0x80 | 126, 0xff, 0xff]),
        (65_536, &[0x80 | 127, 0, 0, 0, 0, 0, 1, 0, 0]),
    ] {
        let first = passed(&mut gate(length), &frame(FIN | TEXT, &vec![b'x'; length + 4])).remove(0);
        assert_eq!(first, ([&[TEXT], form, &mask].concat(), length));
    }
}

#[test]
fn pieces_do_not_count_as_the_clients_fragments_and_those_are_bounded_as_before() {
    let mut gate = gate(4);
    let first = frame(TEXT, &[b'x'; 400]);
    assert_eq!(passed(&mut gate, &first).len(), 100);
    for _ in 1..5 {
        assert_eq!(passed(&mut gate, &frame(CONTINUATION, &[b'x'; 400])).len(), 100);
    }
    assert_eq!(gate.judge(&frame(FIN, b""), true, clock::now()).violation, Some(CloseReason::TooLarge));
}

#[test]
fn a_large_frame_grows_with_each_piece_and_is_unfinished_until_its_last() {
    let mut gate = gate(4);
    let large = frame(FIN | TEXT, &[b'x'; 200]);
    let (header, payload) = large.split_at(8);
    let mut judge = |bytes: &[u8]| {
        let claimed = gate.judge(bytes, true, clock::now()).claimed;
        (claimed, gate.progress().unfinished, gate.progress().grew)
    };
    assert_eq!(judge(&header[..7]), (200, true, true));
    assert_eq!(judge(&header[7..]), (0, true, false));
    for piece in payload[4..].chunks(4) {
        assert_eq!(judge(piece), (0, true, true));
    }
    assert_eq!(judge(&payload[..4]), (0, false, true));
}

/// A message in fragments, with pings between them.
fn frames_of(text: &str, cuts: &[Index], pings: bool) -> Vec<u8> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
    ends.push(text.len());
    ends.sort_unstable();
    let (mut frames, mut begun) = (Vec::new(), 0);
    for (index, end) in ends.iter().enumerate() {
        let opcode = if index == 0 { TEXT } else { CONTINUATION };
        let fin = if index + 1 == ends.len() { FIN } else { 0 };
        frames.extend(frame(fin | opcode, &text.as_bytes()[begun..*end]));
        begun = *end;
        if pings {
            frames.extend(frame(FIN | PING, b"ping"));
        }
    }
    frames
}

proptest! {
    /// Whatever the fragments, the chunks and the pieces are, the codec hands on the same messages, and no frame is larger than a piece.
    #[test]
    fn any_message_comes_out_as_it_went_in(
        messages in vec((any::<String>(), vec(any::<Index>(), 0..4), any::<bool>()), 1..5),
        chunks in vec(1..50_usize, 1..8),
        piece_bytes_max in 1..40_usize,
    ) {
        let sent: Vec<u8> = messages.iter().flat_map(|(text, cuts, pings)| frames_of(text, cuts, *pings)).collect();
        let mut rest = &sent[..];
        let (mut gate, mut passed_on) = (gate(piece_bytes_max), BytesMut::new());
        for chunk_bytes in chunks.iter().cycle() {
            let (mut chunk, behind) = rest.split_at(rest.len().min(*chunk_bytes));
            while !chunk.is_empty() {
                let Passed { held, bytes, judged, violation, .. } = gate.judge(chunk, true, clock::now());
                prop_assert_eq!(violation, None);
                passed_on.extend_from_slice(&held);
                passed_on.extend_from_slice(&chunk[..bytes]);
                chunk = &chunk[judged..];
            }
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        let (mut codec, mut message, mut received) = (Codec::new(), MessageBuffer::default(), Vec::new());
        while let Some(frame) = codec.decode(&mut passed_on).unwrap() {
            let (bytes, last) = match frame {
                Frame::Text(bytes) | Frame::Continuation(Item::Last(bytes)) => (bytes, true),
                Frame::Continuation(Item::FirstText(bytes) | Item::Continue(bytes)) => (bytes, false),
                Frame::Ping(_) => continue,
                other => panic!("{other:?}"),
            };
            prop_assert!(bytes.len() <= piece_bytes_max);
            message.extend(&bytes, 0);
            if last {
                received.push(String::from_utf8(message.take().to_vec()).unwrap());
            }
        }
        prop_assert!(passed_on.is_empty());
        prop_assert_eq!(received, messages.into_iter().map(|(text, _, _)| text).collect::<Vec<_>>());
    }
}
