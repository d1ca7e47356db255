//! The gate's rules, frame by frame and at every split of the input.

use super::{
    bucket::Rate,
    gate::{Gate, GateLimits, Passed},
    gate_testing::frame_claiming,
};
use crate::clock;
use bytes::Bytes;
use proptest::prelude::*;
use relay_protocol::{close::CloseReason, device::Role};

const TEXT: u8 = 0x1;
const CONTINUATION: u8 = 0x0;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const FIN: u8 = 0x80;

const UNLIMITED: Rate = Rate { burst: u32::MAX, per_second: u32::MAX };
const LIMITS: GateLimits = GateLimits {
    message_bytes_max: 100_000,
    unregistered_message_bytes_max: 1_000,
    fragments_max: 5,
    piece_bytes_max: usize::MAX,
    rate: UNLIMITED,
};

fn frame(first: u8, length: usize) -> Vec<u8> {
    frame_claiming(first, length as u64, &vec![b'x'; length])
}

fn close_frame(code: u16, reason: &[u8]) -> Vec<u8> {
    let payload = [&code.to_be_bytes(), reason].concat();
    frame_claiming(FIN | CLOSE, payload.len() as u64, &payload)
}

/// Feeds the input in chunks of one size; what was passed on, and why it ended.
fn feed(input: &[u8], chunk_bytes: usize, registered: bool) -> (Vec<u8>, Option<CloseReason>) {
    let mut gate = Gate::new(LIMITS, Role::Mobile, clock::now());
    let mut passed_on = Vec::new();
    for chunk in input.chunks(chunk_bytes) {
        let Passed { held, bytes, violation, .. } = gate.judge(chunk, registered, clock::now());
        passed_on.extend_from_slice(&held);
        passed_on.extend_from_slice(&chunk[..bytes]);
        if violation.is_some() {
            return (passed_on, violation);
        }
    }
    (passed_on, None)
}

/// The same verdict, and the same bytes passed on, however the input is cut.
fn judged(frames: &[Vec<u8>], registered: bool) -> (usize, Option<CloseReason>) {
    let input = frames.concat();
    let whole = feed(&input, input.len().max(1), registered);
    for chunk_bytes in [1, 2, 3, 7, 13, 14, 15, 1_000] {
        assert_eq!(feed(&input, chunk_bytes, registered), whole, "in chunks of {chunk_bytes}");
    }
    assert!(input.starts_with(&whole.0));
    (whole.0.len(), whole.1)
}

fn verdict(frames: &[Vec<u8>]) -> Option<CloseReason> {
    judged(frames, true).1
}

#[test]
fn a_message_is_claimed_by_its_headers_before_anything_of_it_has_come() {
    let whole = frame(FIN | TEXT, 70_000);
    let (header, payload) = whole.split_at(14);
    let mut gate = Gate::new(LIMITS, Role::Desktop, clock::now());
    let claimed = |gate: &mut Gate, bytes: &[u8]| gate.judge(bytes, true, clock::now()).claimed;
    assert_eq!(claimed(&mut gate, &header[..9]), 0, "the length is not whole");
    assert_eq!(claimed(&mut gate, &header[9..]), 70_000);
    assert_eq!(claimed(&mut gate, payload), 0, "once");
    // Fragments are claimed one by one; control frames are not, and a refused one is not.
    let fragments =
        [frame(TEXT, 300), frame(FIN | PING, 100), frame(CONTINUATION, 200), frame(FIN | CONTINUATION, 0), frame(FIN | TEXT, 7)];
    assert_eq!(claimed(&mut gate, &fragments.concat()), 507);
    assert_eq!(claimed(&mut gate, &frame(FIN | TEXT, 100_001)), 0);
}

#[test]
fn good_frames_pass_unchanged() {
    let frames = [
        frame(FIN | TEXT, 0),
        frame(FIN | TEXT, 125),
        frame(FIN | TEXT, 126),
        frame(FIN | TEXT, 65_535),
        frame(FIN | TEXT, 65_536),
        frame(TEXT, 10),
        frame(FIN | PING, 125),
        frame(CONTINUATION, 0),
        frame(FIN | 0xa, 0),
        frame(FIN | CONTINUATION, 10),
        close_frame(1000, b""),
    ];
    assert_eq!(judged(&frames, true), (frames.concat().len(), None));
}

#[test]
fn broken_framing_is_1002() {
    for (name, frames) in [
        ("reserved bit 1", vec![frame(FIN | 0x40 | TEXT, 1)]),
        ("reserved bit 2", vec![frame(FIN | 0x20 | TEXT, 1)]),
        ("reserved bit 3", vec![frame(FIN | 0x10 | PING, 1)]),
        ("reserved opcode", vec![frame(FIN | 0x3, 1)]),
        ("reserved control opcode", vec![frame(FIN | 0xb, 1)]),
        ("no mask", vec![vec![FIN | TEXT, 1, b'x']]),
        ("continuation without a start", vec![frame(FIN | CONTINUATION, 1)]),
        ("continuation after a whole message", vec![frame(FIN | TEXT, 1), frame(FIN | CONTINUATION, 1)]),
        ("a new message inside an open one", vec![frame(TEXT, 1), frame(FIN | TEXT, 1)]),
        ("binary inside an open message", vec![frame(TEXT, 1), frame(FIN | BINARY, 1)]),
        ("a ping of 126 bytes", vec![frame(FIN | PING, 126)]),
        ("a fragmented ping", vec![frame(PING, 1)]),
        ("a close frame of one byte", vec![frame(FIN | CLOSE, 1)]),
    ] {
        assert_eq!(verdict(&frames), Some(CloseReason::ProtocolViolation), "{name}");
    }
}

#[test]
fn binary_is_1003_from_its_header() {
    assert_eq!(judged(&[frame(FIN | TEXT, 5), frame_claiming(FIN | BINARY, 5, &[])], true), (11, Some(CloseReason::Binary)));
}

#[test]
fn a_message_over_the_cap_is_1009_from_its_header() {
    let max = LIMITS.message_bytes_max;
    assert_eq!(verdict(&[frame(FIN | TEXT, max)]), None);
    for claim in [max as u64 + 1, 1 << 30, (1 << 63) - 1, u64::MAX] {
        assert_eq!(judged(&[frame_claiming(FIN | TEXT, claim, b"")], true), (0, Some(CloseReason::TooLarge)), "{claim}");
    }
    // Not even the mask is waited for.
    let header = frame_claiming(FIN | TEXT, 1 << 40, b"");
    assert_eq!(judged(&[header[..10].to_vec()], true).1, Some(CloseReason::TooLarge));
}

#[test]
fn fragments_are_summed_and_counted() {
    let max = LIMITS.message_bytes_max;
    let cut = |sizes: &[usize]| {
        let last = sizes.len() - 1;
        let frames = sizes
            .iter()
            .enumerate()
            .map(|(index, size)| frame(if index == 0 { TEXT } else { CONTINUATION } | if index == last { FIN } else { 0 }, *size));
        frames.collect::<Vec<_>>()
    };
    assert_eq!(verdict(&cut(&[max / 2, max / 2])), None);
    assert_eq!(verdict(&cut(&[max / 2, max / 2 + 1])), Some(CloseReason::TooLarge));
    assert_eq!(verdict(&cut(&[max, 0, 0, 0, 0])), None);
    assert_eq!(verdict(&cut(&[0, 0, 0, 0, 0, 0])), Some(CloseReason::TooLarge));
    // The sum starts anew with each message.
    let twice: Vec<_> = [cut(&[max / 2, max / 2]), cut(&[max / 2, max / 2])].concat();
    assert_eq!(verdict(&twice), None);
}

#[test]
fn before_registration_the_cap_is_small() {
    let max = LIMITS.unregistered_message_bytes_max;
    assert_eq!(judged(&[frame(FIN | TEXT, max)], false).1, None);
    assert_eq!(judged(&[frame(FIN | TEXT, max + 1)], false).1, Some(CloseReason::TooLarge));
    assert_eq!(judged(&[frame(FIN | TEXT, max + 1)], true).1, None);
}

#[test]
fn a_close_frame_is_judged_by_its_code_and_then_its_text() {
    for good in [close_frame(1000, b""), close_frame(4999, "bye 😀".as_bytes()), frame(FIN | CLOSE, 0), close_frame(1014, &[b'x'; 123])] {
        assert_eq!(judged(std::slice::from_ref(&good), true), (good.len(), None));
    }
    let violations = [
        (close_frame(999, b""), CloseReason::ProtocolViolation),
        (close_frame(1005, b"\xff"), CloseReason::ProtocolViolation),
        (close_frame(5000, b""), CloseReason::ProtocolViolation),
        (close_frame(1000, b"\xff"), CloseReason::NotUtf8),
        (close_frame(3000, b"bye \xf0\x9f\x98"), CloseReason::NotUtf8),
    ];
    for (bad, reason) in violations {
        // The codec is not shown all of it.
        assert_eq!(judged(std::slice::from_ref(&bad), true), (bad.len() - 1, Some(reason)), "{bad:?}");
    }
}

#[test]
fn nothing_counts_after_a_close_frame() {
    let close = close_frame(1000, b"");
    let (passed, violation) = judged(&[close.clone(), frame(FIN | 0x70 | 0x3, 126), frame(FIN | TEXT, 1)], true);
    assert_eq!((passed, violation), (close.len(), None));
}

#[test]
fn a_message_is_unfinished_from_its_first_byte_to_its_last() {
    let mut gate = Gate::new(LIMITS, Role::Mobile, clock::now());
    let mut feed = |bytes: &[u8]| {
        gate.judge(bytes, true, clock::now());
        (gate.progress().unfinished, gate.progress().grew)
    };
    let message = frame(FIN | TEXT, 300);
    assert_eq!(feed(&message[..1]), (true, false));
    assert_eq!(feed(&message[1..50]), (true, true));
    assert_eq!(feed(&message[50..]), (false, true));
    assert_eq!(feed(&frame(TEXT, 3)), (true, true));
    assert_eq!(feed(&frame(FIN | PING, 3)), (true, false), "a ping is not growth");
    assert_eq!(feed(&frame(FIN | CONTINUATION, 0)), (false, true));
    assert_eq!(feed(&frame(FIN | PING, 3)), (false, false));
}

proptest! {
    /// However wild the bytes are, nothing is passed on but a prefix of them, and cuts change nothing.
    #[test]
    fn any_bytes_are_judged_alike_in_any_chunks(input in proptest::collection::vec(any::<u8>(), 0..200), chunk_bytes in 1..40_usize) {
        let whole = feed(&input, input.len().max(1), true);
        prop_assert!(input.starts_with(&whole.0));
        prop_assert_eq!(feed(&input, chunk_bytes, true), whole);
    }

    /// Well-formed traffic with small lengths, cut anywhere.
    #[test]
    fn good_traffic_passes_in_any_chunks(sizes in proptest::collection::vec((0..3_u8, 0..300_usize), 0..20), chunk_bytes in 1..400_usize) {
        let mut input = Vec::new();
        for (kind, size) in sizes {
            match kind {
                0 => input.extend(frame(FIN | TEXT, size)),
                1 => input.extend(frame(FIN | PING, size.min(125))),
                _ => input.extend([frame(TEXT, size), frame(FIN | PING, 0), frame(FIN | CONTINUATION, size)].concat()),
            }
        }
        prop_assert_eq!(feed(&input, chunk_bytes, true), (input, None));
    }
}

#[test]
fn a_header_that_is_held_back_is_not_copied_twice() {
    let mut gate = Gate::new(LIMITS, Role::Mobile, clock::now());
    let whole = frame(FIN | TEXT, 3);
    let mut judge = |bytes: &[u8]| gate.judge(bytes, true, clock::now());
    assert_eq!(judge(&whole[..4]), Passed { judged: 4, claimed: 3, ..Passed::default() });
    assert_eq!(judge(&whole[4..5]), Passed { judged: 1, ..Passed::default() });
    assert_eq!(judge(&whole[5..]), Passed { held: Bytes::copy_from_slice(&whole[..5]), bytes: 4, judged: 4, ..Passed::default() });
}
