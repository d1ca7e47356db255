//! A batch of spans as OTLP wants it in JSON: `ExportTraceServiceRequest` of `opentelemetry-proto`, by the mapping of protobuf to JSON with
//! OTLP's exceptions (ids are hexadecimal, enums are numbers). <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>
//!
//! Names of attributes are those of the semantic conventions for JSON-RPC where these have one.

use relay_actors::{
    clock::Anchor,
    counters::Reply,
    spans::{Outcome, Span},
};
use relay_protocol::{
    id::{RelayInstanceId, Route},
    trace_context::SpanId,
};
use serde::Serialize;
use std::time::Instant;

/// `SPAN_KIND_SERVER`.
const KIND_SERVER: u8 = 2;
/// `STATUS_CODE_ERROR`; a success leaves its status unset.
const STATUS_ERROR: u8 = 2;
/// `SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK` and `SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK`: the parent is another process's.
const FLAGS_PARENT_IS_REMOTE: u32 = 0x300;
/// `error.type` of an error that the relay does not look into: the word of the conventions for it.
const ERROR_OTHER: &str = "_OTHER";

/// Who exports.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// This process, as clients know it.
    pub instance: RelayInstanceId,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    resource_spans: [ResourceSpans; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans {
    resource: Attributed,
    scope_spans: [ScopeSpans; 1],
}

#[derive(Serialize)]
struct Attributed {
    attributes: Vec<Attribute>,
}

#[derive(Serialize)]
struct ScopeSpans {
    scope: Scope,
    spans: Vec<SpanText>,
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpanText {
    trace_id: String,
    span_id: String,
    parent_span_id: String,
    flags: u32,
    name: &'static str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute>,
    status: Status,
}

#[derive(Default, Serialize)]
struct Status {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'static str>,
}

#[derive(Serialize)]
struct Attribute {
    key: &'static str,
    value: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Value {
    StringValue(String),
    BoolValue(bool),
}

impl Attribute {
    fn text(key: &'static str, value: impl ToString) -> Self {
        Attribute { key, value: Value::StringValue(value.to_string()) }
    }
}

/// The body of an export. `anchor` tells the wall time of the spans; `fresh` gives each its id.
pub(super) fn encode(resource: &Resource, spans: &[Span], anchor: &Anchor, mut fresh: impl FnMut() -> SpanId) -> Vec<u8> {
    let scope = Scope { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION") };
    let spans = spans.iter().map(|span| span_text(span, anchor, fresh())).collect();
    let attributes = vec![
        Attribute::text("service.name", env!("CARGO_PKG_NAME")),
        Attribute::text("service.version", env!("CARGO_PKG_VERSION")),
        Attribute::text("service.instance.id", resource.instance),
    ];
    let resource_spans = [ResourceSpans { resource: Attributed { attributes }, scope_spans: [ScopeSpans { scope, spans }] }];
    // Texts, numbers and lists of them: nothing that could fail to be written.
    serde_json::to_vec(&Request { resource_spans }).unwrap_or_default()
}

fn span_text(span: &Span, anchor: &Anchor, id: SpanId) -> SpanText {
    let nanos = |at: Instant| anchor.since_epoch(at).as_nanos().to_string();
    SpanText {
        trace_id: span.trace.trace.to_string(),
        span_id: id.to_string(),
        parent_span_id: span.trace.parent.to_string(),
        flags: u32::from(span.trace.flags) | FLAGS_PARENT_IS_REMOTE,
        // A closed set: a method that is not in the contract is not routed.
        name: span.method.name,
        kind: KIND_SERVER,
        start_time_unix_nano: nanos(span.began),
        end_time_unix_nano: nanos(span.ended),
        attributes: attributes(span),
        status: match span.outcome {
            Outcome::Answered(Reply::Result) => Status::default(),
            Outcome::Answered(Reply::Error) => Status { code: Some(STATUS_ERROR), message: None },
            Outcome::Unanswered { refusal, .. } => Status { code: Some(STATUS_ERROR), message: Some(refusal) },
        },
    }
}

fn attributes(span: &Span) -> Vec<Attribute> {
    let mut attributes = vec![
        Attribute::text("rpc.system.name", "jsonrpc"),
        Attribute::text("rpc.method", span.method.name),
        Attribute::text("relay.method.class", span.method.class.name()),
        Attribute::text("relay.outcome", span.outcome.name()),
        Attribute { key: "relay.delivered", value: Value::BoolValue(span.delivered) },
        Attribute::text("relay.user.id", span.user),
    ];
    if let Some(Route::Phone { phone, desktop }) = span.client {
        attributes.extend([Attribute::text("relay.phone.id", phone), Attribute::text("relay.desktop.id", desktop)]);
    }
    match span.outcome {
        Outcome::Answered(Reply::Result) => {}
        Outcome::Answered(Reply::Error) => attributes.push(Attribute::text("error.type", ERROR_OTHER)),
        Outcome::Unanswered { refusal, code, .. } => {
            attributes.extend([Attribute::text("error.type", refusal), Attribute::text("rpc.response.status_code", code)]);
        }
    }
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;
    use relay_actors::counters::Unanswered;
    use relay_protocol::{
        contract,
        id::{DeviceId, UserId},
        trace_context::TraceParent,
    };
    use serde_json::{Value as Json, json};
    use std::time::Duration;
    use uuid::Uuid;

    fn encoded(outcome: Outcome, client: Option<Route>) -> Json {
        let anchor = Anchor::now();
        let ended = relay_actors::clock::now();
        let span = Span {
            trace: TraceParent::read("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01").unwrap(),
            method: contract::find("run.chatLoad").unwrap(),
            user: UserId(Uuid::nil()),
            client,
            began: ended - Duration::from_nanos(1_000_000_007),
            ended,
            outcome,
            delivered: false,
        };
        let body = encode(&Resource { instance: RelayInstanceId(Uuid::nil()) }, &[span], &anchor, || SpanId(0xb7ad));
        let mut body: Json = serde_json::from_slice(&body).unwrap();
        let span = &mut body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        let nanos = |field: &str| span[field].as_str().unwrap().parse::<u64>().unwrap();
        assert_eq!(nanos("endTimeUnixNano") - nanos("startTimeUnixNano"), 1_000_000_007);
        span.take()
    }

    #[test]
    fn a_span_is_written_by_the_json_mapping_of_otlp() {
        let (phone, desktop) = (DeviceId(Uuid::from_u128(1)), DeviceId(Uuid::from_u128(2)));
        let span = encoded(Outcome::Answered(Reply::Result), Some(Route::Phone { phone, desktop }));
        let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        let id = |number: u8| format!("00000000-0000-0000-0000-00000000000{number}");
        let expected = json!({
            "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "000000000000b7ad", "parentSpanId": "00f067aa0ba902b7",
            "flags": 0x301, "name": "run.chatLoad", "kind": 2, "status": {},
            "startTimeUnixNano": span["startTimeUnixNano"], "endTimeUnixNano": span["endTimeUnixNano"],
            "attributes": [
                text("rpc.system.name", "jsonrpc"),
                text("rpc.method", "run.chatLoad"),
                text("relay.method.class", "load"),
                text("relay.outcome", "result"),
                {"key": "relay.delivered", "value": {"boolValue": false}},
                text("relay.user.id", &id(0)),
                text("relay.phone.id", &id(1)),
                text("relay.desktop.id", &id(2)),
            ],
        });
        assert_eq!(span, expected);
    }

    #[test]
    fn an_end_that_is_no_result_is_an_error_and_says_which() {
        let refused = Outcome::Unanswered { how: Unanswered::Expired, refusal: "expired", code: -32012 };
        for (outcome, status, attributes) in [
            (Outcome::Answered(Reply::Error), json!({"code": 2}), vec![("relay.outcome", "error"), ("error.type", "_OTHER")]),
            (
                refused,
                json!({"code": 2, "message": "expired"}),
                vec![("relay.outcome", "expired"), ("error.type", "expired"), ("rpc.response.status_code", "-32012")],
            ),
        ] {
            let span = encoded(outcome, None);
            assert_eq!(span["status"], status);
            let told = span["attributes"].as_array().unwrap();
            let of = |key: &str| told.iter().find(|attribute| attribute["key"] == key).map(|found| found["value"]["stringValue"].clone());
            for (key, value) in attributes {
                assert_eq!(of(key), Some(json!(value)), "{key}");
            }
            assert_eq!((of("relay.phone.id"), of("relay.desktop.id")), (None, None));
        }
    }
}
