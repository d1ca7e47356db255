//! `rpc.request` and `rpc.response`: what the relay reads of them, and what it sends on (device-lane section 4).
//!
//! Values pass byte for byte. The relay writes the envelope anew around them, so the receiver sees each field once, in one order.

use crate::{
    contract::{self, Method},
    envelope::{RequestFields, ResponseFields, string},
    error::{FrameError, RpcRefusal},
    id::{Route, UserId},
    identity::Scopes,
    limits::RPC_ID_BYTES_MAX,
    params,
    text::{Span, Text, TextWriter, span},
    trace_context::{TraceParent, is_traceparent, is_tracestate},
};
use bytes::Bytes;
use bytestring::ByteString;
use serde_json::value::RawValue;
use std::{
    fmt,
    hash::{BuildHasher, Hash, Hasher},
};

/// What identifies an open request at its desktop: the id, decoded and trimmed. Two ids that differ in surrounding blanks are one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(std::sync::Arc<str>);

impl RequestId {
    /// Reads the id of a request or a response.
    fn read(raw: Option<&RawValue>) -> Result<(Self, &str), FrameError> {
        let raw = raw.ok_or_else(|| FrameError::invalid("missing field `id`"))?;
        let text = string(raw).ok_or_else(|| FrameError::invalid("`id` is not a string"))?;
        if text.len() > RPC_ID_BYTES_MAX {
            return Err(FrameError::invalid(format_args!("`id` is longer than {RPC_ID_BYTES_MAX} bytes")));
        }
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(FrameError::invalid("`id` is blank"));
        }
        Ok((RequestId(trimmed.into()), raw.get()))
    }

    /// An id for tests and for models.
    pub fn new(text: &str) -> Self {
        RequestId(text.trim().into())
    }

    /// The decoded, trimmed text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Ids are chosen by clients and may hold anything, so logs get a short, escaped form.
impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A phone's request that may be forwarded if routing allows.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its id, as the pending key wants it.
    pub id: RequestId,
    /// The method's entry in the contract.
    pub method: &'static Method,
    text: ByteString,
    id_json: Span,
    params: Option<Span>,
    idempotency_key: Option<Span>,
    traceparent: Span,
    tracestate: Option<Span>,
}

/// A phone's request: one to route, or one that is refused for what it says.
#[derive(Clone, Debug)]
pub enum Request {
    /// Well formed and in the contract.
    Call(Call),
    /// Refused.
    Refused {
        /// The id's JSON text, for the answer.
        id_json: Box<str>,
        /// Why.
        refusal: RpcRefusal,
    },
}

impl Request {
    pub(crate) fn read(scopes: Scopes, text: &ByteString, fields: &RequestFields<'_>) -> Result<Self, FrameError> {
        let (id, id_json) = RequestId::read(fields.id)?;
        for (name, raw) in [("method", fields.method), ("idempotencyKey", fields.idempotency_key)] {
            let is_string = raw.is_some_and(|raw| raw.get().starts_with('"'));
            if is_string && raw.and_then(string).is_none() {
                return Err(FrameError::invalid(format_args!("`{name}` holds a lone surrogate")));
            }
        }
        let id_json = span(text, id_json);
        match read_call(scopes, text, fields, id, id_json.clone()) {
            Ok(call) => Ok(Request::Call(call)),
            Err(refusal) => Ok(Request::Refused { id_json: text[id_json].into(), refusal }),
        }
    }
}

fn read_call(scopes: Scopes, text: &ByteString, fields: &RequestFields<'_>, id: RequestId, id_json: Span) -> Result<Call, RpcRefusal> {
    let name = fields.method.and_then(string).ok_or(RpcRefusal::InvalidRequest("method must be a string"))?;
    let idempotency_key = fields.idempotency_key.filter(|raw| raw.get() != "null");
    if idempotency_key.is_some_and(|raw| string(raw).is_none()) {
        return Err(RpcRefusal::InvalidRequest("idempotencyKey must be a string"));
    }
    let traceparent = fields.traceparent.ok_or(RpcRefusal::InvalidRequest("traceparent is required"))?;
    if !string(traceparent).is_some_and(|value| is_traceparent(&value)) {
        return Err(RpcRefusal::InvalidRequest("traceparent is not a W3C trace context"));
    }
    let tracestate = fields.tracestate;
    if tracestate.is_some_and(|raw| !string(raw).is_some_and(|value| is_tracestate(&value))) {
        return Err(RpcRefusal::InvalidRequest("tracestate is not a W3C trace state"));
    }
    let method = contract::find(&name).ok_or(RpcRefusal::MethodNotFound)?;
    let required = method.scopes();
    if !scopes.contains_all(required) {
        return Err(RpcRefusal::InsufficientScope { required });
    }
    if method.mutation && idempotency_key.is_none() {
        return Err(RpcRefusal::IdempotencyKeyRequired);
    }
    params::judge(method.name, fields.params)?;
    let at = |raw: &RawValue| span(text, raw.get());
    Ok(Call {
        id,
        method,
        id_json,
        params: fields.params.map(at),
        idempotency_key: idempotency_key.map(at),
        traceparent: at(traceparent),
        tracestate: tracestate.map(at),
        text: text.clone(),
    })
}

impl Call {
    fn part(&self, span: &Span) -> &str {
        &self.text[span.clone()]
    }

    fn shared(&self, span: &Span) -> Bytes {
        self.text.as_bytes().slice(span.clone())
    }

    /// The id's JSON text, for a refusal. A copy, so that a pending record does not keep the whole message alive.
    pub fn id_json(&self) -> Box<str> {
        self.part(&self.id_json).into()
    }

    /// What its `traceparent` says. Read when asked for: only who records spans wants it.
    pub fn trace(&self) -> Option<TraceParent> {
        let raw: &RawValue = serde_json::from_str(self.part(&self.traceparent)).ok()?;
        TraceParent::read(&string(raw)?)
    }

    /// Tells an identical request from a different one under the same id. Client, method, params and key count, trace context
    /// does not. The hasher is keyed, so that a client cannot make two requests look alike.
    pub fn fingerprint(&self, client: &Route, hashing: &impl BuildHasher) -> u64 {
        let mut hasher = hashing.build_hasher();
        client.hash(&mut hasher);
        self.method.name.hash(&mut hasher);
        for part in [&self.params, &self.idempotency_key] {
            part.as_ref().map(|span| self.part(span)).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The frame for the desktop: the same request plus who asked.
    pub fn forward(&self, client: &Route, user: UserId) -> Text {
        let mut writer = TextWriter::with_capacity(self.text.len() + 192);
        writer.put("{\"type\":\"rpc.request\",\"payload\":{\"clientId\":\"");
        writer.put_display(client);
        writer.put("\",\"userId\":\"");
        writer.put_display(user);
        writer.put("\",\"traceparent\":");
        writer.put_shared(self.shared(&self.traceparent));
        if let Some(tracestate) = &self.tracestate {
            writer.put(",\"tracestate\":");
            writer.put_shared(self.shared(tracestate));
        }
        writer.put(",\"id\":");
        writer.put_shared(self.shared(&self.id_json));
        writer.put(",\"method\":\"");
        writer.put(self.method.name);
        writer.put("\"");
        if let Some(params) = &self.params {
            writer.put(",\"params\":");
            writer.put_shared(self.shared(params));
        }
        if let Some(key) = &self.idempotency_key {
            writer.put(",\"idempotencyKey\":");
            writer.put_shared(self.shared(key));
        }
        writer.put("}}");
        writer.finish()
    }
}

/// A desktop's response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The request's id, as the pending key wants it.
    pub id: RequestId,
    /// The phone route that it names; `None` when that is no route, and then it matches nothing.
    pub client: Option<Route>,
    /// Whether the request is finished by it.
    pub is_final: bool,
    text: ByteString,
    outcome: (&'static str, Span),
    traceparent: Option<Span>,
}

impl Response {
    pub(crate) fn read(text: &ByteString, fields: &ResponseFields<'_>) -> Result<Self, FrameError> {
        let (id, _) = RequestId::read(fields.id)?;
        let client = fields.client_id.ok_or_else(|| FrameError::invalid("missing field `clientId`"))?;
        let client = string(client).ok_or_else(|| FrameError::invalid("`clientId` is not a string"))?;
        let is_final = match fields.is_final.map(RawValue::get) {
            None | Some("true") => true,
            Some("false") => false,
            Some(_) => return Err(FrameError::invalid("`isFinal` is not a boolean")),
        };
        let at = |raw: &RawValue| span(text, raw.get());
        let error = fields.error.filter(|raw| raw.get() != "null");
        let outcome = match (fields.result, error) {
            (Some(result), None) => ("result", at(result)),
            (None, Some(error)) => ("error", at(error)),
            (Some(_), Some(_)) => return Err(FrameError::invalid("both `result` and `error`")),
            (None, None) => return Err(FrameError::invalid("neither `result` nor `error`")),
        };
        Ok(Response { id, client: client.parse().ok(), is_final, outcome, traceparent: fields.traceparent.map(at), text: text.clone() })
    }

    /// Whether it carries an `error`.
    pub fn is_error(&self) -> bool {
        self.outcome.0 == "error"
    }

    /// The frame for the phone: the same response without `clientId`. `id_json` is the phone's own id text.
    pub fn deliver(&self, id_json: &str) -> Text {
        let shared = |span: &Span| self.text.as_bytes().slice(span.clone());
        let (field, value) = &self.outcome;
        let mut writer = TextWriter::with_capacity(self.text.len() + 64);
        writer.put("{\"type\":\"rpc.response\",\"payload\":{\"id\":");
        writer.put(id_json);
        writer.put(",\"");
        writer.put(field);
        writer.put("\":");
        writer.put_shared(shared(value));
        writer.put(if self.is_final { ",\"isFinal\":true" } else { ",\"isFinal\":false" });
        if let Some(traceparent) = &self.traceparent {
            writer.put(",\"traceparent\":");
            writer.put_shared(shared(traceparent));
        }
        writer.put("}}");
        writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Inbound;
    use std::hash::RandomState;

    const TRACE: &str = "\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"";
    const PHONE: &str = "11111111-1111-4111-8111-111111111111::22222222-2222-4222-8222-222222222222";

    fn frame(kind: &str, payload: &str) -> Result<Inbound, FrameError> {
        Inbound::parse(format!("{{\"type\":\"{kind}\",\"payload\":{payload}}}").into())
    }

    fn request(fields: &str) -> Request {
        match frame("rpc.request", &format!("{{{fields}}}")) {
            Ok(Inbound::Request(request)) => request,
            other => panic!("{fields}: {other:?}"),
        }
    }

    fn call(fields: &str) -> Call {
        match request(fields) {
            Request::Call(call) => call,
            Request::Refused { refusal, .. } => panic!("{fields}: {refusal:?}"),
        }
    }

    fn refusal(fields: &str) -> i32 {
        match request(fields) {
            Request::Call(call) => panic!("{fields}: {call:?}"),
            Request::Refused { refusal, .. } => refusal.code(),
        }
    }

    fn response(fields: &str) -> Response {
        match frame("rpc.response", &format!("{{{fields}}}")) {
            Ok(Inbound::Response(response)) => response,
            other => panic!("{fields}: {other:?}"),
        }
    }

    fn text(text: &Text) -> String {
        String::from_utf8(text.to_bytes()).unwrap()
    }

    /// Legal JSON that a parser which reads values would change, or refuse.
    const AS_IT_CAME: [&str; 24] = [
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "-0",
        "1.0",
        "1e2",
        "0.10",
        "1E400",
        "5e-324",
        "-1.5E+10",
        "null",
        "true",
        "\"\"",
        "\"\\u0041\\/\\b\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\udc00 and \\ud800\"",
        "\"\\u0000\"",
        "\"é😀\u{2028}\u{7f}\"",
        "{ \"b\" : 1 ,\t\"a\" : 2 }",
        "{\"\":0,\"a\":1,\"a\":2,\"\\u0061\":3}",
        "[ ]",
        "{\"id\":\"x\",\"clientId\":\"y\",\"payload\":{}}",
        "[[[[[[[[]]]]]]]]",
    ];

    #[test]
    fn a_call_is_forwarded_byte_for_byte() {
        let route: Route = PHONE.parse().unwrap();
        let user: UserId = "33333333-3333-4333-8333-333333333333".parse().unwrap();
        let long_integer = "7".repeat(400);
        let large = format!("\"{}\"", "x".repeat(100_000));
        for value in AS_IT_CAME.into_iter().chain([long_integer.as_str(), large.as_str()]) {
            let call = call(&format!(
                " \"params\" : {value} , \"traceparent\":{TRACE},\"id\":\" \\u0041\\n\",\"method\":\"\\u0073ystem.ping\",\"tracestate\":\"a=1\",\"idempotencyKey\":\"\\/k\""
            ));
            assert_eq!(
                text(&call.forward(&route, user)),
                format!(
                    "{{\"type\":\"rpc.request\",\"payload\":{{\"clientId\":\"{PHONE}\",\"userId\":\"{user}\",\"traceparent\":{TRACE},\
                     \"tracestate\":\"a=1\",\"id\":\" \\u0041\\n\",\"method\":\"system.ping\",\"params\":{value},\"idempotencyKey\":\"\\/k\"}}}}"
                )
            );
            assert_eq!(call.id, RequestId::new("A"));
        }
    }

    #[test]
    fn a_response_is_delivered_byte_for_byte() {
        for value in AS_IT_CAME {
            let answer = response(&format!("\"id\":\"a \",\"clientId\":\"{PHONE}\",\"result\":{value},\"traceparent\":{TRACE}"));
            assert_eq!(
                text(&answer.deliver("\" a\"")),
                format!(
                    "{{\"type\":\"rpc.response\",\"payload\":{{\"id\":\" a\",\"result\":{value},\"isFinal\":true,\"traceparent\":{TRACE}}}}}"
                )
            );
            assert_eq!((answer.id, answer.client), (RequestId::new("a"), PHONE.parse().ok()));
            if value != "null" {
                let refused = response(&format!("\"isFinal\":false,\"error\": {value} ,\"clientId\":\"{PHONE}\",\"id\":\"a\""));
                assert_eq!(
                    text(&refused.deliver("\"a\"")),
                    format!("{{\"type\":\"rpc.response\",\"payload\":{{\"id\":\"a\",\"error\":{value},\"isFinal\":false}}}}")
                );
            }
        }
    }

    #[test]
    fn numbers_that_are_not_json_fail_the_frame() {
        for value in ["NaN", "Infinity", "-Infinity", "01", "+1", "1.", ".5", "-", "1e", "0x1", "'a'", "undefined", "\"\u{1}\"", "\"\\x\""]
        {
            let request =
                frame("rpc.request", &format!("{{\"id\":\"a\",\"method\":\"system.ping\",\"params\":{value},\"traceparent\":{TRACE}}}"));
            assert_eq!(request.err().map(|error| error.code()), Some("invalidPayload"), "{value}");
            let response = frame("rpc.response", &format!("{{\"id\":\"a\",\"clientId\":\"{PHONE}\",\"result\":{value}}}"));
            assert_eq!(response.err().map(|error| error.code()), Some("invalidPayload"), "{value}");
        }
    }

    #[test]
    fn ids_are_strings_of_at_most_128_bytes_that_are_not_blank() {
        let with = |id: &str| frame("rpc.request", &format!("{{\"id\":{id},\"method\":\"system.ping\",\"traceparent\":{TRACE}}}"));
        let emoji = |count: usize| format!("\"{}\"", "😀".repeat(count));
        let escaped = |count: usize| format!("\"{}\"", "\\ud83d\\ude00".repeat(count));
        let letters = |count: usize| format!("\"{}\"", "a".repeat(count));
        for id in [letters(128), emoji(32), escaped(32), format!("\"{}\"", " ".repeat(127) + "a"), "\"\\u0000\\n\\\"\"".into()] {
            assert!(with(&id).is_ok(), "{id}");
        }
        let spaced = format!("\"{}\"", " ".repeat(128) + "a");
        let accent = format!("\"{}é\"", "a".repeat(127));
        for id in [letters(129), accent, emoji(33), escaped(33), spaced, "\"\"".into(), "\" \\t\\u3000\"".into(), "\"\\ud800\"".into()] {
            assert_eq!(with(&id).err().map(|error| error.code()), Some("invalidPayload"), "{id}");
        }
        for id in ["null", "true", "1.5", "-1", "9007199254740993", "1e3", "[\"a\"]", "{}"] {
            assert_eq!(with(id).err().map(|error| error.code()), Some("invalidPayload"), "{id}");
        }
        assert!(frame("rpc.request", &format!("{{\"method\":\"system.ping\",\"traceparent\":{TRACE}}}")).is_err());
    }

    #[test]
    fn strange_or_doubled_fields_fail_the_frame() {
        let good = format!("\"id\":\"a\",\"method\":\"system.ping\",\"params\":{{}},\"traceparent\":{TRACE}");
        for extra in [
            "\"userId\":\"u\"",
            "\"clientId\":\"c\"",
            "\"id\":\"b\"",
            "\"\\u0069d\":\"b\"",
            "\"params\":1",
            "\"method\":null",
            "\"ID\":\"b\"",
            "\"targetDesktopDeviceId\":\"d\"",
        ] {
            assert!(frame("rpc.request", &format!("{{{good},{extra}}}")).is_err(), "{extra}");
        }
        let answer = format!("\"id\":\"a\",\"clientId\":\"{PHONE}\",\"result\":1");
        for extra in ["\"result\":2", "\"userId\":\"u\"", "\"error\":{}", "\"isFinal\":1", "\"isFinal\":null", "\"method\":\"m\""] {
            assert!(frame("rpc.response", &format!("{{{answer},{extra}}}")).is_err(), "{extra}");
        }
        for fields in [
            "\"id\":\"a\",\"result\":1",
            &format!("\"clientId\":\"{PHONE}\",\"result\":1"),
            &format!("\"id\":\"a\",\"clientId\":\"{PHONE}\""),
            &format!("\"id\":\"a\",\"clientId\":\"{PHONE}\",\"error\":null"),
            "\"id\":\"a\",\"clientId\":5,\"result\":1",
        ] {
            assert!(frame("rpc.response", &format!("{{{fields}}}")).is_err(), "{fields}");
        }
        assert!(frame("rpc.response", &format!("{{{answer},\"error\":null}}")).is_ok());
        assert_eq!(response("\"id\":\"a\",\"clientId\":\"somebody\",\"result\":1").client, None);
    }

    #[test]
    fn what_a_request_says_is_refused_in_order() {
        let id = "\"id\":\"a\"";
        let trace = format!("\"traceparent\":{TRACE}");
        for (fields, code) in [
            (format!("{id},{trace}"), -32600),
            (format!("{id},\"method\":null,{trace}"), -32600),
            (format!("{id},\"method\":5,{trace}"), -32600),
            (format!("{id},\"method\":\"nonsense\""), -32600),
            (format!("{id},\"method\":\"nonsense\",\"traceparent\":\"00-0\""), -32600),
            (format!("{id},\"method\":\"nonsense\",\"traceparent\":null"), -32600),
            (format!("{id},\"method\":\"nonsense\",{trace},\"tracestate\":\"=\""), -32600),
            (format!("{id},\"method\":\"nonsense\",{trace},\"tracestate\":7"), -32600),
            (format!("{id},\"method\":\"nonsense\",{trace},\"idempotencyKey\":7"), -32600),
            (format!("{id},\"method\":\"nonsense\",{trace}"), -32601),
            (format!("{id},\"method\":\"System.ping\",{trace}"), -32601),
            (format!("{id},\"method\":\"run.cancel\",{trace}"), -32026),
            (format!("{id},\"method\":\"run.cancel\",{trace},\"idempotencyKey\":null"), -32026),
            (format!("{id},\"method\":\"session.syncHistoryState\",{trace},\"params\":{{}}"), -32026),
            (format!("{id},\"method\":\"session.syncHistoryState\",{trace},\"params\":{{}},\"idempotencyKey\":\"k\""), -32602),
            (format!("{id},\"method\":\"session.syncHistoryState\",{trace},\"idempotencyKey\":\"k\""), -32602),
        ] {
            assert_eq!(refusal(&fields), code, "{fields}");
        }
        for fields in
            [format!("{id},\"method\":\"run.cancel\",{trace},\"idempotencyKey\":\"\""), format!("{id},\"method\":\"system.ping\",{trace}")]
        {
            assert_eq!(call(&fields).id, RequestId::new("a"));
        }
        for fields in [
            format!("{id},\"method\":\"\\ud800\",{trace}"),
            format!("{id},\"method\":\"run.cancel\",{trace},\"idempotencyKey\":\"\\udfff\""),
        ] {
            assert!(frame("rpc.request", &format!("{{{fields}}}")).is_err(), "{fields}");
        }
    }

    #[test]
    fn scopes_are_judged_behind_the_method_and_before_the_key() {
        let read = |scopes: &str, fields: &str| {
            let text = format!("{{\"type\":\"rpc.request\",\"payload\":{{\"id\":\"a\",\"traceparent\":{TRACE},{fields}}}}}");
            match Inbound::parse_with(scopes.parse().unwrap(), text.into()) {
                Ok(Inbound::Request(Request::Call(_))) => 0,
                Ok(Inbound::Request(Request::Refused { refusal, .. })) => refusal.code(),
                other => panic!("{fields}: {other:?}"),
            }
        };
        let (reads, writes) = ("\"method\":\"system.ping\"", "\"method\":\"run.cancel\",\"idempotencyKey\":\"k\"");
        let (keyless, unknown) = ("\"method\":\"run.cancel\"", "\"method\":\"nonsense\"");
        for (scopes, codes) in [
            ("rpc", [-32027, -32027, -32027, -32601]),
            ("rpc,read", [0, -32027, -32027, -32601]),
            ("rpc,write", [-32027, 0, -32026, -32601]),
            ("rpc,read,write", [0, 0, -32026, -32601]),
        ] {
            assert_eq!([reads, writes, keyless, unknown].map(|fields| read(scopes, fields)), codes, "{scopes}");
        }
    }

    #[test]
    fn a_null_key_is_not_forwarded() {
        let call = call(&format!("\"id\":\"a\",\"method\":\"system.ping\",\"traceparent\":{TRACE},\"idempotencyKey\":null"));
        let frame = text(&call.forward(&PHONE.parse().unwrap(), UserId(uuid::Uuid::nil())));
        assert!(!frame.contains("idempotencyKey"), "{frame}");
    }

    #[test]
    fn a_fingerprint_covers_client_method_params_and_key() {
        let hashing = RandomState::new();
        let client: Route = PHONE.parse().unwrap();
        let print = |fields: &str, client: &Route| call(fields).fingerprint(client, &hashing);
        let base = format!("\"id\":\"a\",\"method\":\"run.chatLoad\",\"params\":{{\"a\":1}},\"traceparent\":{TRACE}");
        let other_trace = base.replace("-01\"", "-00\"");
        assert_eq!(print(&base, &client), print(&other_trace, &client));
        for changed in [
            base.replace("chatLoad", "chatLoadThread"),
            base.replace(":1}", ":2}"),
            base.replace(":1}", ": 1}"),
            format!("{base},\"idempotencyKey\":\"k\""),
        ] {
            assert_ne!(print(&base, &client), print(&changed, &client), "{changed}");
        }
        assert_ne!(print(&base, &client), print(&base, &Route::Desktop(client.desktop())));
    }

    #[test]
    fn a_large_value_is_shared_with_the_message() {
        let large = "x".repeat(1_000_000);
        let call = call(&format!("\"id\":\"a\",\"method\":\"system.ping\",\"traceparent\":{TRACE},\"params\":\"{large}\""));
        let (_, rest) = call.forward(&PHONE.parse().unwrap(), UserId(uuid::Uuid::nil())).into_pieces();
        assert!(call.text.as_bytes().as_ptr_range().contains(&rest[0].as_ptr()));
    }
}
