//! Timeline events: a phone's interest, and numbered frames of a desktop that a phone reads without parsing.

use crate::{frame, payload};
use memchr::memmem;

/// The session that phones watch.
const SESSION: &str = "bench";
/// What the desktop's frames go under where nobody gave them a generation, as at the floor.
const NO_GENERATION: &str = "00000000-0000-4000-8000-000000000000";
/// Before the number, between number and due time, and behind it: the end of each frame, at fixed places.
const NUMBER: &[u8] = br#","number":""#;
const DUE: &[u8] = br#"","due":""#;
const END: &[u8] = br#""}}}"#;
/// Hexadecimal digits of number and time.
const DIGITS: usize = 16;

/// A phone's word that it watches the session, or that it goes on watching.
pub fn interest() -> Vec<u8> {
    format!(
        r#"{{"type":"event","payload":{{"eventType":"chat:timeline-interest","payload":{{"appSessionId":"{SESSION}","active":true}}}}}}"#
    )
    .into_bytes()
}

/// The generation in a `chat:timeline-interest-updated`; none when nobody watches, or in any other frame.
pub fn generation(frame: &[u8]) -> Option<&str> {
    memmem::find(frame, br#""eventType":"chat:timeline-interest-updated""#)?;
    std::str::from_utf8(frame::text_field(frame, br#""authorizationGeneration":""#)?).ok()
}

/// A desktop's timeline frame. One is made for all, and only its number and time are written anew.
#[derive(Clone, Debug)]
pub struct Stream {
    text: Vec<u8>,
    size: usize,
}

/// What a timeline frame says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Counts the desktop's frames from zero.
    pub number: u64,
    /// When it was due, in nanoseconds of the run's clock.
    pub due_nanos: u64,
}

impl Stream {
    /// A frame whose payload is `size` bytes at a phone, or as small as it can be. It has no `timelineKey`, so each one must arrive.
    pub fn new(size: usize) -> Self {
        let mut stream = Self { text: Vec::new(), size };
        stream.set_generation(NO_GENERATION);
        stream
    }

    /// Sends under another generation from now on.
    pub fn set_generation(&mut self, generation: &str) {
        let (number, due) = (String::from_utf8_lossy(NUMBER), String::from_utf8_lossy(DUE));
        let zeros = "0".repeat(DIGITS);
        let body = body(self.size);
        self.text = format!(
            r#"{{"type":"event","payload":{{"eventType":"chat:stream","payload":{{"authorizationGeneration":"{generation}","appSessionId":"{SESSION}","body":{body}{number}{zeros}{due}{zeros}{}"#,
            String::from_utf8_lossy(END)
        )
        .into_bytes();
    }

    /// The frame with this stamp.
    pub fn stamped(&mut self, stamp: Stamp) -> &[u8] {
        let due_at = self.text.len() - END.len() - DIGITS;
        write_hex(&mut self.text[due_at..due_at + DIGITS], stamp.due_nanos);
        let number_at = due_at - DUE.len() - DIGITS;
        write_hex(&mut self.text[number_at..number_at + DIGITS], stamp.number);
        &self.text
    }

    /// What each frame ends in at a phone, up to its number.
    pub fn body_and_number_key(&self) -> Vec<u8> {
        [body(self.size).as_bytes(), NUMBER].concat()
    }

    /// Bytes of the payload at a phone.
    pub fn payload_bytes(&self) -> usize {
        around_body() + body(self.size).len()
    }
}

/// Reads the stamp of a frame that arrived, if it is a timeline frame that ends in `body_and_number_key` before its number.
pub fn stamp(frame: &[u8], body_and_number_key: &[u8]) -> Option<Stamp> {
    let (rest, due) = frame.strip_suffix(END)?.split_last_chunk::<DIGITS>()?;
    let (rest, number) = rest.strip_suffix(DUE)?.split_last_chunk::<DIGITS>()?;
    rest.ends_with(body_and_number_key).then_some(Stamp { number: read_hex(number)?, due_nanos: read_hex(due)? })
}

fn body(size: usize) -> String {
    payload::make(size.saturating_sub(around_body()))
}

/// Bytes of a payload at a phone beside its body.
fn around_body() -> usize {
    r#"{"appSessionId":"","body":}"#.len() + SESSION.len() + NUMBER.len() + DUE.len() + 2 * DIGITS + 1
}

fn write_hex(into: &mut [u8], mut value: u64) {
    for digit in into.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(value & 0xf) as usize];
        value >>= 4;
    }
}

fn read_hex(digits: &[u8; DIGITS]) -> Option<u64> {
    digits.iter().try_fold(0, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const STAMP: Stamp = Stamp { number: 0x1234_5678_9abc_def0, due_nanos: u64::MAX };

    /// What a relay makes of a desktop's frame: without the generation, and with the desktop's id.
    fn relayed(frame: &[u8], generation: &str) -> Vec<u8> {
        let text = std::str::from_utf8(frame).expect("text");
        text.replace(&format!(r#""authorizationGeneration":"{generation}","#), "")
            .replace(r#""chat:stream","#, r#""chat:stream","sourceDeviceId":"be9c0002-0000-4000-8000-000000000000","#)
            .into_bytes()
    }

    #[test]
    fn a_stamp_arrives_through_a_relay_and_through_the_floor() {
        let mut stream = Stream::new(200);
        stream.set_generation("0f5e1c2a-7a1e-4b57-9c0d-5b8a4a3e2d10");
        let end = stream.body_and_number_key();
        let frame = stream.stamped(STAMP).to_vec();
        assert_eq!(stamp(&frame, &end), Some(STAMP));
        let relayed = relayed(&frame, "0f5e1c2a-7a1e-4b57-9c0d-5b8a4a3e2d10");
        assert_eq!(stamp(&relayed, &end), Some(STAMP));
        let parsed: Value = serde_json::from_slice(&relayed).expect("valid JSON");
        assert_eq!(parsed["payload"]["payload"]["appSessionId"], SESSION);
        assert_eq!(parsed["payload"]["payload"]["number"], "123456789abcdef0");
        assert_eq!(parsed["payload"]["payload"]["due"], "ffffffffffffffff");
    }

    #[test]
    fn a_payload_has_its_size_at_the_phone() {
        for (size, expected) in [(0, 106), (106, 106), (107, 107), (200, 200), (16_384, 16_384)] {
            let mut stream = Stream::new(size);
            let relayed = relayed(stream.stamped(STAMP), NO_GENERATION);
            let at = memmem::find(&relayed, br#"{"appSessionId""#).expect("a payload");
            assert_eq!((relayed.len() - at - "}}".len(), stream.payload_bytes()), (expected, expected));
        }
    }

    #[test]
    fn another_body_and_another_frame_have_no_stamp() {
        let mut stream = Stream::new(300);
        let end = Stream::new(301).body_and_number_key();
        assert_eq!(stamp(stream.stamped(STAMP), &end), None);
        for frame in
            [&b""[..], b"\"}}}", br#"{"type":"pong","payload":{}}"#, br#"{"type":"event","payload":{"eventType":"device-status"}}"#]
        {
            assert_eq!(stamp(frame, &end), None);
        }
    }

    #[test]
    fn a_generation_is_read_from_the_relay_s_word_only() {
        let updated = |generation: Value| {
            let payload = json!({"appSessionId": SESSION, "active": generation.is_string(), "authorizationGeneration": generation});
            format!(r#"{{"type":"event","payload":{{"eventType":"chat:timeline-interest-updated","payload":{payload}}}}}"#).into_bytes()
        };
        assert_eq!(generation(&updated("g".into())), Some("g"));
        assert_eq!(generation(&updated(Value::Null)), None);
        assert_eq!(generation(Stream::new(200).stamped(STAMP)), None);
    }
}
