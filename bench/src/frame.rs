//! The frames the two ends exchange, and just enough reading to match them.
//!
//! The generator shares the machine with the server it measures, so it never parses: it looks for its own plain values, which
//! hold no escapes, and compares bodies byte for byte.

use memchr::{memchr, memmem};
use std::fmt;

/// A valid W3C `traceparent`; the relay checks its form and forwards it as it came.
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// What a received frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call to answer.
    Request,
    /// The answer to a call.
    Response,
    /// `registered` or `resumed`: the socket may be used.
    Registered,
    /// A refusal outside of any call.
    Error,
    /// Presence and whatever else the generator does not care about.
    Other,
}

/// Tells frames apart by their `type`, which every sender here writes first.
pub fn kind(frame: &[u8]) -> Kind {
    match text_field(frame, b"\"type\":\"") {
        Some(b"rpc.request") => Kind::Request,
        Some(b"rpc.response") => Kind::Response,
        Some(b"registered" | b"resumed") => Kind::Registered,
        Some(b"error") => Kind::Error,
        Some(_) | None => Kind::Other,
    }
}

/// A phone's call. `params` is JSON text.
pub fn request(id: CallId, params: &str) -> Vec<u8> {
    format!(r#"{{"type":"rpc.request","payload":{{"id":"{id}","method":"system.ping","params":{params},"traceparent":"{TRACEPARENT}"}}}}"#)
        .into_bytes()
}

/// A desktop's answer to `request`, or nothing when that has no id. The floor adds no `clientId`; then it stays empty.
pub fn response(request: &[u8], result: &str) -> Option<Vec<u8>> {
    let id = std::str::from_utf8(text_field(request, ID)?).ok()?;
    let client = std::str::from_utf8(text_field(request, b"\"clientId\":\"").unwrap_or_default()).ok()?;
    Some(format!(r#"{{"type":"rpc.response","payload":{{"clientId":"{client}","id":"{id}","result":{result}}}}}"#).into_bytes())
}

/// Whether a request arrived with exactly these `params`.
pub fn has_params(frame: &[u8], params: &str) -> bool {
    has_body(frame, b"\"params\":", params)
}

/// Whether a response arrived with exactly this `result`; false for an error answer.
pub fn has_result(frame: &[u8], result: &str) -> bool {
    has_body(frame, b"\"result\":", result)
}

fn has_body(frame: &[u8], key: &[u8], body: &str) -> bool {
    memmem::find(frame, key).is_some_and(|at| frame[at + key.len()..].starts_with(body.as_bytes()))
}

/// `"clientId":"` and `"userId":"` do not match: their letter before the `d` is a capital.
const ID: &[u8] = b"\"id\":\"";

/// The text behind the first `key`, which ends in the value's opening quote.
pub(crate) fn text_field<'a>(frame: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let start = memmem::find(frame, key)? + key.len();
    let length = memchr(b'"', &frame[start..])?;
    Some(&frame[start..start + length])
}

/// A call's id. It looks like a UUID and carries what the phone needs to know when the answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    /// Counts the calls of one slot, so that a late answer to a call given up is not taken for the next one's.
    pub sequence: u32,
    /// Which place in the phone's window.
    pub slot: u16,
    /// When the call was due, in nanoseconds of the run's clock; 48 bits travel, which is three days.
    pub due_nanos: u64,
}

const DUE_BITS: u64 = (1 << 48) - 1;

impl CallId {
    /// Reads the id of a frame; `None` when it has none or one of another form.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let id = std::str::from_utf8(text_field(frame, ID)?).ok()?;
        let mut groups = id.split('-');
        let sequence = u32::from_str_radix(groups.next().filter(|group| group.len() == 8)?, 16).ok()?;
        let slot = u16::from_str_radix(groups.next().filter(|group| group.len() == 4)?, 16).ok()?;
        let due_nanos = u64::from_str_radix(groups.nth(2).filter(|group| group.len() == 12)?, 16).ok()?;
        groups.next().is_none().then_some(Self { sequence, slot, due_nanos })
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:04x}-4000-8000-{:012x}", self.sequence, self.slot, self.due_nanos & DUE_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const CALL: CallId = CallId { sequence: 0xfeed_beef, slot: 513, due_nanos: DUE_BITS };

    fn parsed(frame: &[u8]) -> Value {
        serde_json::from_slice(frame).expect("valid JSON")
    }

    #[test]
    fn an_id_survives_the_round_trip() {
        for id in [CALL, CallId { sequence: 0, slot: 0, due_nanos: 0 }, CallId { sequence: 7, slot: u16::MAX, due_nanos: 1 }] {
            assert_eq!(CallId::of(&request(id, "{}")), Some(id));
            assert_eq!(id.to_string().len(), 36);
        }
    }

    #[test]
    fn ids_of_another_form_are_not_read() {
        for id in [
            "",
            "1",
            "00000001-0000-4000-8000",
            "00000001-0000-4000-8000-00000000000g",
            "00000001-0000-4000-8000-000000000001-2",
            "1-2-3-4-5",
        ] {
            assert_eq!(CallId::of(format!(r#"{{"id":"{id}"}}"#).as_bytes()), None, "{id}");
        }
        assert_eq!(CallId::of(br#"{"clientId":"00000001-0000-4000-8000-000000000001"}"#), None);
    }

    #[test]
    fn a_request_is_what_the_device_lane_asks_for() {
        let frame = request(CALL, r#"{"a":1}"#);
        assert_eq!(
            parsed(&frame),
            json!({"type": "rpc.request", "payload": {
                "id": "feedbeef-0201-4000-8000-ffffffffffff", "method": "system.ping", "params": {"a": 1},
                "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            }})
        );
        assert_eq!(kind(&frame), Kind::Request);
        assert!(has_params(&frame, r#"{"a":1}"#));
        assert!(!has_params(&frame, r#"{"a":2}"#));
    }

    #[test]
    fn an_answer_names_the_client_that_the_relay_added() {
        let forwarded =
            br#"{"type":"rpc.request","payload":{"clientId":"phone::desktop","userId":"u","id":"a-b","method":"system.ping","params":{}}}"#;
        let answer = response(forwarded, r#"{"ok":true}"#).expect("an answer");
        assert_eq!(
            parsed(&answer),
            json!({"type": "rpc.response", "payload": {"clientId": "phone::desktop", "id": "a-b", "result": {"ok": true}}})
        );
        assert_eq!(kind(&answer), Kind::Response);
        assert!(has_result(&answer, r#"{"ok":true}"#));
        assert!(!has_result(&answer, r#"{"ok":false}"#));
    }

    #[test]
    fn an_error_answer_has_no_result() {
        let refusal =
            br#"{"type":"rpc.response","payload":{"id":"a","error":{"code":-32010,"message":"Desktop is offline"},"isFinal":true}}"#;
        assert_eq!(kind(refusal), Kind::Response);
        assert!(!has_result(refusal, "{}"));
    }

    #[test]
    fn a_request_without_an_id_has_no_answer() {
        assert_eq!(response(br#"{"type":"rpc.request","payload":{}}"#, "{}"), None);
    }
}
