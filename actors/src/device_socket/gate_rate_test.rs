//! The gate's rate limit: what takes a token, what is swallowed, what waits, and what is answered, at every split of the input.

use super::{
    bucket::Rate,
    gate::{Gate, GateLimits, Passed},
    gate_testing::frame_claiming,
};
use crate::clock;
use relay_protocol::{close::CloseReason, device::Role};
use std::time::{Duration, Instant};

const TEXT: u8 = 0x81;
const TEXT_START: u8 = 0x01;
const CONTINUATION: u8 = 0x00;
const LAST: u8 = 0x80;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;
const TRACE: &str = "\"traceparent\":\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"";
const SECOND: Duration = Duration::from_secs(1);

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    frame_claiming(first, payload.len() as u64, payload)
}

fn request(id: &str, params: &str) -> String {
    format!("{{\"type\":\"rpc.request\",\"payload\":{{\"id\":{id},{TRACE},\"method\":\"system.ping\",\"params\":{params}}}}}")
}

fn gate(role: Role, burst: u32, now: Instant) -> Gate {
    let rate = Rate { burst, per_second: 1 };
    Gate::new(GateLimits { message_bytes_max: 60_000, rate, ..GateLimits::default() }, role, now)
}

/// What has become of some input.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    passed: Vec<u8>,
    refused: Vec<String>,
    violation: Option<CloseReason>,
}

/// Feeds the input in chunks of one size; a frame that has to wait gets its time.
fn feed(gate: &mut Gate, input: &[u8], chunk_bytes: usize, registered: bool, now: &mut Instant) -> Outcome {
    let mut outcome = Outcome::default();
    for mut chunk in input.chunks(chunk_bytes) {
        while !chunk.is_empty() {
            let Passed { held, bytes, judged, violation, paced_until, refused, claimed: _, piece: _ } = gate.judge(chunk, registered, *now);
            outcome.passed.extend_from_slice(&held);
            outcome.passed.extend_from_slice(&chunk[..bytes]);
            outcome.refused.extend(refused.map(String::from));
            outcome.violation = violation;
            if violation.is_some() {
                return outcome;
            }
            *now = paced_until.unwrap_or(*now);
            chunk = &chunk[judged..];
        }
    }
    outcome
}

/// A phone with this burst sends this at once; the outcome is the same in any chunks.
fn phone(burst: u32, input: &[u8], registered: bool) -> Outcome {
    let fed = |chunk_bytes| {
        let mut now = clock::now();
        feed(&mut gate(Role::Mobile, burst, now), input, chunk_bytes, registered, &mut now)
    };
    let whole = fed(input.len());
    for chunk_bytes in 1..input.len().min(300) {
        assert_eq!(fed(chunk_bytes), whole, "in chunks of {chunk_bytes}");
    }
    whole
}

#[test]
fn what_is_dropped_claims_no_memory() {
    let now = clock::now();
    let mut gate = gate(Role::Mobile, 1, now);
    assert_eq!(gate.judge(&text("{}"), true, now).claimed, 2);
    assert_eq!(gate.judge(&text(&request(r#""a""#, "1")), true, now).claimed, 0);
}

fn text(message: &str) -> Vec<u8> {
    frame(TEXT, message.as_bytes())
}

#[test]
fn messages_and_pings_take_a_token_and_pongs_none() {
    let kept = [text("{}"), frame(PONG, b"x"), frame(PONG, b"x"), frame(PING, b"last token"), frame(PONG, b"y")].concat();
    let over = [frame(PING, b"over"), text("{}"), frame(PING, b"")].concat();
    let outcome = phone(2, &[&kept[..], &over, &frame(PONG, b"z")].concat(), true);
    assert_eq!(outcome, Outcome { passed: [kept, frame(PONG, b"z")].concat(), ..Outcome::default() });
}

#[test]
fn fragments_are_one_message_and_a_ping_between_them_is_another() {
    let fragmented = [frame(TEXT_START, b"{"), frame(CONTINUATION, b""), frame(PING, b"p"), frame(LAST, b"}")].concat();
    assert_eq!(phone(2, &fragmented, true).passed, fragmented);
    let without_ping = [frame(TEXT_START, b"{"), frame(CONTINUATION, b""), frame(LAST, b"}")].concat();
    assert_eq!(phone(1, &fragmented, true).passed, without_ping, "the message goes on around a ping that is swallowed");
}

#[test]
fn a_dropped_request_is_answered_with_its_id_however_it_was_cut() {
    let message = request("\"\\u0041é\"", "1");
    let bytes = message.as_bytes();
    let between = [frame(PONG, b"x"), frame(PING, b"swallowed")].concat();
    let pieces = [frame(TEXT_START, &bytes[..33]), between, frame(CONTINUATION, &bytes[33..90]), frame(LAST, &bytes[90..])];
    let outcome = phone(1, &[text("{}"), pieces.concat(), text(&request("\"b\"", "1"))].concat(), true);
    assert_eq!(outcome.refused, ["\"\\u0041é\""], "and the second time there is no token for an answer");
    assert_eq!(outcome.passed, [text("{}"), frame(PONG, b"x")].concat());
}

#[test]
fn a_message_goes_with_the_token_that_it_had_when_it_began() {
    let now = clock::now();
    let mut gate = gate(Role::Mobile, 1, now);
    let (first, second) = (request("\"a\"", "1"), request("\"b\"", "2"));
    assert_eq!(gate.judge(&text(&first), true, now).bytes, text(&first).len());
    let (start, rest) = (&text(&second)[..20], &text(&second)[20..]);
    assert_eq!(gate.judge(start, true, now), Passed { judged: 20, ..Passed::default() });
    let swallowed = gate.judge(rest, true, now + 10 * SECOND);
    assert_eq!((swallowed.bytes, swallowed.refused.as_deref()), (0, Some("\"b\"")));
    let third = gate.judge(&text(&second), true, now + 10 * SECOND);
    assert_eq!((third.bytes, third.refused), (text(&second).len(), None));
}

#[test]
fn an_answer_takes_what_it_needs_from_the_first_4_kib() {
    let behind = |bytes: usize| {
        let start = "{\"type\":\"rpc.request\",\"payload\":{\"params\":\"";
        let needed = format!("\",\"id\":\"a\",{TRACE}");
        let filler = "x".repeat(bytes - start.len() - needed.len());
        text(&format!("{start}{filler}{needed},\"method\":\"system.ping\"}}}}"))
    };
    for (message, refused) in [(behind(4_096), vec!["\"a\""]), (behind(4_097), vec![])] {
        assert_eq!(phone(1, &[text("{}"), message].concat(), true).refused, refused);
    }
    let long = text(&request("\"a\"", &format!("\"{}\"", "x".repeat(50_000))));
    assert_eq!(phone(1, &[text("{}"), long].concat(), true).refused, ["\"a\""]);
}

#[test]
fn before_registration_nothing_is_answered() {
    let outcome = phone(1, &[text("{}"), text(&request("\"a\"", "1"))].concat(), false);
    assert_eq!(outcome, Outcome { passed: text("{}"), ..Outcome::default() });
}

#[test]
fn a_dropped_message_keeps_the_rules_of_framing() {
    let (over, start) = (text("{}"), frame(TEXT_START, b"{"));
    for (bad, violation) in [
        ([start.clone(), text("{}")].concat(), CloseReason::ProtocolViolation),
        (frame(LAST, b"{}"), CloseReason::ProtocolViolation),
        (frame(0xc1, b"{}"), CloseReason::ProtocolViolation),
        (frame(0x82, b"{}"), CloseReason::Binary),
        ([frame(TEXT_START, &[b'x'; 40_000]), frame(LAST, &[b'x'; 20_001])].concat(), CloseReason::TooLarge),
        (frame(PING, &[b'x'; 126]), CloseReason::ProtocolViolation),
    ] {
        let outcome = phone(1, &[over.clone(), bad].concat(), true);
        assert_eq!(outcome, Outcome { passed: over.clone(), violation: Some(violation), ..Outcome::default() });
    }
    let now = clock::now();
    let mut gate = gate(Role::Mobile, 1, now);
    gate.judge(&over, true, now);
    gate.judge(&start, true, now);
    assert!(gate.progress().unfinished);
    gate.judge(&frame(LAST, b"}"), true, now);
    assert!(!gate.progress().unfinished);
}

#[test]
fn a_desktop_waits_and_loses_nothing() {
    let input: Vec<u8> =
        (0..7).flat_map(|number| [text(&number.to_string()), frame(PONG, b"x"), frame(PING, b"p")]).collect::<Vec<_>>().concat();
    for chunk_bytes in (1..input.len()).chain([input.len()]) {
        let start = clock::now();
        let mut now = start;
        let outcome = feed(&mut gate(Role::Desktop, 5, start), &input, chunk_bytes, true, &mut now);
        assert_eq!(outcome, Outcome { passed: input.clone(), ..Outcome::default() }, "in chunks of {chunk_bytes}");
        assert_eq!(now - start, 9 * SECOND, "14 take a token, and five were there");
    }
}

#[test]
fn a_desktop_waits_before_its_next_frame_is_touched() {
    let now = clock::now();
    let mut gate = gate(Role::Desktop, 1, now);
    let (first, second) = (text("1"), text("2"));
    let both = [first.clone(), second.clone()].concat();
    let judged = gate.judge(&both, true, now);
    assert_eq!((judged.bytes, judged.judged, judged.paced_until), (first.len(), first.len(), Some(now + SECOND)));
    assert!(!gate.progress().unfinished);
    let early = gate.judge(&second, true, now + SECOND - Duration::from_millis(1));
    assert_eq!(early, Passed { paced_until: Some(now + SECOND), ..Passed::default() });
    assert_eq!(gate.judge(&second, true, now + SECOND).bytes, second.len());
    gate.lift_rate_limit();
    assert_eq!(gate.judge(&both, true, now + SECOND).bytes, both.len(), "what is discarded does not wait");
}
