//! A glance at the start of a message over the rate limit: whether it is a request that is answered (device-lane section 4).
//!
//! The text may be cut off anywhere. What is there is read by the grammar and not guessed: `id` and `traceparent` count only as
//! keys of the payload, `type` only as a key of the message, each whole and once. Any fault before the cut, and anything that is
//! needed and lies behind it, means no answer. Values that are passed over cost no stack, however deep.

use crate::{
    envelope::{Key, string},
    limits::RPC_ID_BYTES_MAX,
    trace_context::is_traceparent,
};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::{fmt, marker::PhantomData};

/// The id, as JSON text, of a request that may be refused for its rate. `cut` says that the message goes on behind `start`.
pub fn refusable_id(start: &[u8], cut: bool) -> Option<&str> {
    let mut seen = Seen::default();
    let mut deserializer = serde_json::Deserializer::from_slice(start);
    let read = deserializer.deserialize_map(Message(&mut seen)).and_then(|()| deserializer.end());
    if read.is_err_and(|error| !(cut && error.is_eof())) || !seen.is_request {
        return None;
    }
    let id = seen.id?;
    let text = string(id)?;
    let names_a_request = text.len() <= RPC_ID_BYTES_MAX && !text.trim().is_empty();
    let traced = is_traceparent(&string(seen.traceparent?)?);
    (names_a_request && traced).then_some(id.get())
}

/// What has been read before the end, or before the cut.
#[derive(Default)]
struct Seen<'a> {
    is_request: bool,
    id: Option<&'a RawValue>,
    traceparent: Option<&'a RawValue>,
}

/// The message: `type` and `payload`, each once.
struct Message<'s, 'a>(&'s mut Seen<'a>);

impl<'de> Visitor<'de> for Message<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut has_type, mut has_payload) = (false, false);
        while let Some(key) = map.next_key_seed(Key(PhantomData))? {
            match &*key {
                "type" if !has_type => {
                    has_type = true;
                    self.0.is_request = map.next_value_seed(Key(PhantomData))? == "rpc.request";
                }
                "payload" if !has_payload => {
                    has_payload = true;
                    map.next_value_seed(Payload(self.0))?;
                }
                _ => return Err(A::Error::custom("no message has this key, or twice")),
            }
        }
        Ok(())
    }
}

/// The fields of a request, each once.
struct Payload<'s, 'a>(&'s mut Seen<'a>);

impl<'de> DeserializeSeed<'de> for Payload<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Payload<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a payload")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        const PASSED_OVER: [&str; 4] = ["method", "params", "idempotencyKey", "tracestate"];
        let mut passed_over = [false; PASSED_OVER.len()];
        while let Some(key) = map.next_key_seed(Key(PhantomData))? {
            match &*key {
                "id" if self.0.id.is_none() => self.0.id = Some(map.next_value()?),
                "traceparent" if self.0.traceparent.is_none() => self.0.traceparent = Some(map.next_value()?),
                other => match PASSED_OVER.iter().position(|field| *field == other) {
                    Some(field) if !passed_over[field] => {
                        passed_over[field] = true;
                        map.next_value::<IgnoredAny>()?;
                    }
                    Some(_) | None => return Err(A::Error::custom("no request has this field, or twice")),
                },
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"";

    fn whole(text: &str) -> Option<&str> {
        refusable_id(text.as_bytes(), false)
    }

    fn cut(text: &str) -> Option<&str> {
        refusable_id(text.as_bytes(), true)
    }

    fn request(fields: &str) -> String {
        format!("{{\"type\":\"rpc.request\",\"payload\":{{{fields}}}}}")
    }

    #[test]
    fn the_id_comes_back_as_it_was_written_whatever_the_order() {
        let (id, trace) = (r#""id":"\u0041 b""#, format!("\"traceparent\":{TRACE}"));
        let params = r#""params":{"id":"nested","traceparent":"","payload":{"id":"nested"},"type":"ping"}"#;
        for fields in [
            format!("{id},{trace},{params}"),
            format!("{params},{trace},{id}"),
            format!(" {trace} , {params} , {id} "),
            format!("\"method\":\"system.ping\",{trace},{params},\"idempotencyKey\":null,\"tracestate\":\"\",{id}"),
            format!("{trace},\"i\\u0064\":\"\\u0041 b\""),
        ] {
            for message in [request(&fields), format!("{{\"payload\":{{{fields}}},\"type\":\"rpc.request\"}}")] {
                assert_eq!(whole(&message), Some(r#""\u0041 b""#), "{message}");
            }
        }
    }

    #[test]
    fn everything_else_gets_no_answer() {
        let trace = format!("\"traceparent\":{TRACE}");
        let good = format!("\"id\":\"a\",{trace}");
        assert_eq!(whole(&request(&good)), Some("\"a\""));
        for fields in [
            String::new(),
            "\"id\":\"a\"".to_owned(),
            trace.clone(),
            format!("\"id\":1,{trace}"),
            format!("\"id\":null,{trace}"),
            format!("\"id\":{{\"id\":\"a\"}},{trace}"),
            format!("\"id\":\" \",{trace}"),
            format!("\"id\":\"\\ud800\",{trace}"),
            "\"id\":\"a\",\"traceparent\":\"00-x\"".to_owned(),
            "\"id\":\"a\",\"traceparent\":null".to_owned(),
            format!("\"params\":{{\"id\":\"a\"}},{trace}"),
            format!("\"params\":[],\"params\":{{}},{good}"),
            format!("{good},\"id\":\"b\""),
            format!("{good},{trace}"),
            format!("{good},\"clientId\":\"x\""),
            format!("{good},\"params\":[}}"),
            format!("\"params\":{{]}},{good}"),
            format!("\"params\":01,{good}"),
        ] {
            assert_eq!(whole(&request(&fields)), None, "{fields}");
        }
        for message in [
            String::new(),
            "[]".to_owned(),
            request(&good).replace("rpc.request", "rpc.response"),
            request(&good).replace("rpc.request", "register"),
            format!("{{\"payload\":{{{good}}}}}"),
            format!("{{\"type\":\"rpc.request\",{good}}}"),
            format!("{{\"type\":\"rpc.request\",\"payload\":[{{{good}}}]}}"),
            format!("{{\"type\":\"rpc.request\",\"type\":\"rpc.request\",\"payload\":{{{good}}}}}"),
            format!("{{\"type\":\"rpc.request\",\"more\":1,\"payload\":{{{good}}}}}"),
            format!("{}x", request(&good)),
            format!("{} {}", request(&good), request(&good)),
        ] {
            assert_eq!(whole(&message), None, "{message}");
        }
        assert_eq!(refusable_id(b"{\"type\":\"rpc.request\",\"payload\":{\"id\":\"\xff\"", true), None);
    }

    #[test]
    fn ids_are_answered_up_to_128_decoded_bytes() {
        for (id, answered) in [("é".repeat(64), true), ("é".repeat(64) + "a", false), ("\\u0041".repeat(128), true)] {
            let message = request(&format!("\"id\":\"{id}\",\"traceparent\":{TRACE}"));
            assert_eq!(whole(&message).is_some(), answered, "{id}");
        }
    }

    /// Cut at every byte, a message is answered exactly from the byte on at which all that is needed has come.
    #[test]
    fn what_lies_behind_the_cut_is_not_guessed() {
        let needed =
            format!("{{\"type\":\"rpc.request\",\"payload\":{{\"params\":{{\"id\":\"nested\"}},\"id\":\"é\",\"traceparent\":{TRACE}");
        let message =
            format!("{needed},\"method\":\"system.ping\",\"params2\":[1,2,{{\"id\":\"nested\"}}]}}}}").replace("params2", "tracestate");
        for length in 0..message.len() {
            let answer = refusable_id(&message.as_bytes()[..length], true);
            assert_eq!(answer, (length >= needed.len()).then_some("\"é\""), "{length}");
            assert_eq!(refusable_id(&message.as_bytes()[..length], false), None, "{length} and no more comes");
        }
        let payload_first = format!("{{\"payload\":{{\"id\":\"a\",\"traceparent\":{TRACE}}},\"type\":\"rpc.request\"");
        assert_eq!(cut(&payload_first), Some("\"a\""));
        assert_eq!(cut(&payload_first[..payload_first.len() - 1]), None);
        assert_eq!(cut(&format!("{needed},]")), None, "a fault before the cut");
    }

    #[test]
    fn depth_costs_no_stack() {
        let deep = format!("\"params\":{}{},\"id\":\"a\",\"traceparent\":{TRACE}", "[".repeat(200_000), "]".repeat(200_000));
        assert_eq!(whole(&request(&deep)), Some("\"a\""));
    }
}
