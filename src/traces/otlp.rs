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
