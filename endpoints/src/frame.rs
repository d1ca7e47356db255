//! The frames of the device lane as its clients see them (device-lane sections 3 to 5).
//!
//! Every frame is `{"type": …, "payload": {…}}`. What passes through a client is kept as raw JSON text.

use relay_protocol::{
    device::Presence,
    id::{ConnectionId, DeviceId, RelayInstanceId, SessionId, UserId},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

/// The `type` words that clients send or understand.
pub mod kind {
    /// Client to relay: who is there.
    pub const REGISTER: &str = "register";
    /// Relay to client: a new session.
    pub const REGISTERED: &str = "registered";
    /// Relay to client: the session of the resume token goes on.
    pub const RESUMED: &str = "resumed";
    /// Relay to client: a frame or a registration was refused.
    pub const ERROR: &str = "error";
    /// Phone to relay, relay to desktop.
    pub const RPC_REQUEST: &str = "rpc.request";
    /// Desktop to relay, relay to phone.
    pub const RPC_RESPONSE: &str = "rpc.response";
    /// Both ways: presence, leases, timeline.
    pub const EVENT: &str = "event";
    /// For clients that cannot see protocol pings.
    pub const PING: &str = "ping";
    /// The answer to [`PING`].
    pub const PONG: &str = "pong";
}

/// The outer two keys of every frame, the payload untouched.
#[derive(Debug, Deserialize)]
pub struct Envelope<'a> {
    /// One of [`kind`], or a word that this client does not know and skips.
    #[serde(rename = "type", borrow)]
    pub kind: Cow<'a, str>,
    /// Exactly the bytes between the keys.
    #[serde(borrow)]
    pub payload: &'a RawValue,
}

impl<'a> Envelope<'a> {
    /// Reads the outer keys only; the payload is skipped over, however deep it is.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Reads the payload as one of the types below.
    pub fn read<T: Deserialize<'a>>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.payload.get())
    }
}

/// The text of a frame.
///
/// # Panics
/// Never for the payload types of this module: they have string keys and no fallible `Serialize`.
pub fn encode(kind: &str, payload: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct Out<'a, P> {
        #[serde(rename = "type")]
        kind: &'a str,
        payload: &'a P,
    }
    serde_json::to_string(&Out { kind, payload }).expect("frame payloads serialize")
}

/// Keeps a JSON `null` that is there apart from a key that is not: `Option` alone would lose a null result.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Payload of `register`.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Register {
    /// The device row that this socket speaks for.
    pub device_id: DeviceId,
    /// What this client speaks; the relay refuses what is below its required version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay_protocol_version: Option<String>,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// The session to go on with; both keys or none.
    #[serde(flatten)]
    pub resume: Option<Resume>,
    /// A phone's desktop, unless the upgrade header names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_desktop_device_id: Option<DeviceId>,
}

/// A session and the token that proves it. Not `Debug`: the token is a secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resume {
    /// From the last registration.
    pub session_id: SessionId,
    /// From the last registration; kept when a session is resumed.
    pub resume_token: String,
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resume").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

/// The relay's answer to a successful `register`.
#[derive(Clone, Debug)]
pub struct Registered {
    /// What to resume with after this socket.
    pub resume: Resume,
    /// This generation of the route.
    pub connection_id: ConnectionId,
    /// The relay process. Another one than last time remembers nothing.
    pub relay_instance_id: RelayInstanceId,
    /// How long the session may be resumed, counted from its last RPC.
    pub expires_in: std::time::Duration,
    /// A phone's desktop and its presence.
    pub target: Option<DeviceStatus>,
    /// The answer was `resumed`: the session is the one of the token.
    pub resumed: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RegisteredPayload {
    session_id: SessionId,
    resume_token: String,
    connection_id: ConnectionId,
    relay_instance_id: RelayInstanceId,
    expires_in_ms: u64,
    #[serde(default)]
    target: Option<DeviceStatus>,
}

impl Registered {
    /// Reads a `registered` or `resumed` frame; `None` for any other.
    pub fn read(envelope: &Envelope<'_>) -> Option<Result<Self, serde_json::Error>> {
        let resumed = match &*envelope.kind {
            kind::REGISTERED => false,
            kind::RESUMED => true,
            _ => return None,
        };
        Some(envelope.read::<RegisteredPayload>().map(|payload| Registered {
            resume: Resume { session_id: payload.session_id, resume_token: payload.resume_token },
            connection_id: payload.connection_id,
            relay_instance_id: payload.relay_instance_id,
            expires_in: std::time::Duration::from_millis(payload.expires_in_ms),
            target: payload.target,
            resumed,
        }))
    }
}

/// Payload of a `device-status` event, and `target` of a phone's registration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceStatus {
    /// The desktop.
    pub device_id: DeviceId,
    /// Its presence.
    pub status: Presence,
    /// Why it changed; absent for a desktop that this process has never seen.
    #[serde(default)]
    pub reason: Option<String>,
    /// Epoch milliseconds.
    #[serde(default)]
    pub at: Option<i64>,
    /// Counts up per account and relay process.
    #[serde(default)]
    pub revision: Option<u64>,
    /// The process that says so.
    #[serde(default)]
    pub relay_instance_id: Option<RelayInstanceId>,
}

/// Payload of `error`: the relay refused a frame or a registration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ErrorFrame {
    /// A word such as `deviceNotFound`.
    pub code: String,
    /// For people.
    pub message: String,
    /// Whether the same may be sent again unchanged.
    #[serde(default)]
    pub retryable: bool,
}

impl fmt::Display for ErrorFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// Payload of `rpc.request` as a phone sends it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutgoingRequest<'a> {
    /// Unique per user and desktop while it is open.
    pub id: &'a str,
    /// A method of the contract.
    pub method: &'a str,
    /// Any JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<&'a RawValue>,
    /// Demanded for mutations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<&'a str>,
    /// W3C trace context.
    pub traceparent: &'a str,
}

/// Payload of `rpc.request` as a desktop gets it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncomingRequest {
    /// The phone's route, given back unread.
    pub client_id: Box<RawValue>,
    /// The account, as the relay knows it from the phone's socket.
    pub user_id: UserId,
    /// The phone's id, given back byte for byte.
    pub id: Box<RawValue>,
    /// The method to run.
    pub method: String,
    /// Absent is `None`; `null` is `Some`.
    #[serde(default, deserialize_with = "present")]
    pub params: Option<Box<RawValue>>,
    /// Present for mutations.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// W3C trace context of the phone.
    pub traceparent: String,
    /// W3C trace state of the phone.
    #[serde(default)]
    pub tracestate: Option<String>,
}

/// What a response says.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The method's result, byte for byte.
    Result(Box<RawValue>),
    /// Why there is none.
    Error(RpcError),
}

/// Payload of `rpc.response` as a desktop sends it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutgoingResponse<'a> {
    /// From the request.
    pub client_id: &'a RawValue,
    /// From the request.
    pub id: &'a RawValue,
    /// Exactly one of result and error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<&'a RawValue>,
    /// Exactly one of result and error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a RpcError>,
    /// False for progress: the request stays open.
    pub is_final: bool,
}

/// Payload of `rpc.response` as a phone gets it.
#[derive(Clone, Debug)]
pub struct IncomingResponse {
    /// The request's id, decoded.
    pub id: String,
    /// Result or error.
    pub outcome: Outcome,
    /// False for progress.
    pub is_final: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResponsePayload {
    id: String,
    #[serde(default, deserialize_with = "present")]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<Box<RawValue>>,
    #[serde(default)]
    is_final: Option<bool>,
}

impl<'de> Deserialize<'de> for IncomingResponse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let payload = ResponsePayload::deserialize(deserializer)?;
        let outcome = match (payload.result, payload.error) {
            (Some(result), None) => Outcome::Result(result),
            (None, Some(error)) => Outcome::Error(RpcError::from_raw(error)),
            (None, None) | (Some(_), Some(_)) => return Err(serde::de::Error::custom("either a result or an error")),
        };
        Ok(IncomingResponse { id: payload.id, outcome, is_final: payload.is_final.unwrap_or(true) })
    }
}

/// The error object of a response. The raw text is what counts on the wire; the fields are read out of it.
#[derive(Clone, Debug)]
pub struct RpcError {
    /// The JSON-RPC number; zero if the sender gave none.
    pub code: i64,
    /// For people.
    pub message: String,
    /// `data`, as received.
    pub data: Option<Box<RawValue>>,
    /// `data.retryable`; absent means no.
    pub retryable: bool,
    raw: Box<RawValue>,
}

impl RpcError {
    /// A plain error, without `data`.
    pub fn new(code: i64, message: &str) -> Self {
        #[derive(Serialize)]
        struct Plain<'a> {
            code: i64,
            message: &'a str,
        }
        let raw = serde_json::value::to_raw_value(&Plain { code, message }).expect("a number and a string serialize");
        RpcError { code, message: message.to_owned(), data: None, retryable: false, raw }
    }

    /// Reads an error object leniently: a desktop's mistake must still reach whoever waits for the answer.
    pub fn from_raw(raw: Box<RawValue>) -> Self {
        #[derive(Default, Deserialize)]
        struct Fields {
            #[serde(default)]
            code: i64,
            #[serde(default)]
            message: String,
            #[serde(default)]
            data: Option<Box<RawValue>>,
        }
        #[derive(Default, Deserialize)]
        struct Data {
            #[serde(default)]
            retryable: bool,
        }
        let fields: Fields = serde_json::from_str(raw.get()).unwrap_or_default();
        let data: Data = fields.data.as_ref().and_then(|data| serde_json::from_str(data.get()).ok()).unwrap_or_default();
        RpcError { code: fields.code, message: fields.message, data: fields.data, retryable: data.retryable, raw }
    }

    /// The object as it stands on the wire.
    pub fn raw(&self) -> &RawValue {
        &self.raw
    }
}

impl Serialize for RpcError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.raw.serialize(serializer)
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

/// Payload of `event` as a client gets it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Such as `device-status`.
    pub event_type: String,
    /// The desktop that sent it; absent for the relay's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_device_id: Option<DeviceId>,
    /// As received.
    pub payload: Box<RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    #[test]
    fn values_pass_byte_for_byte() {
        let params = r#"{ "b":1.0e+02,"a":"\ud800\u00e9\/", "b":[ ] }"#;
        let text = format!(
            r#"{{"type":"rpc.request","payload":{{"clientId":"c","userId":"{ID}","id":"\u0041","method":"m","params":{params},"traceparent":"t"}}}}"#
        );
        let request: IncomingRequest = Envelope::parse(&text).unwrap().read().unwrap();
        assert_eq!(request.params.as_deref().unwrap().get(), params);
        let response = OutgoingResponse {
            client_id: &request.client_id,
            id: &request.id,
            result: request.params.as_deref(),
            error: None,
            is_final: true,
        };
        let expected = format!(r#"{{"type":"rpc.response","payload":{{"clientId":"c","id":"\u0041","result":{params},"isFinal":true}}}}"#);
        assert_eq!(encode(kind::RPC_RESPONSE, &response), expected);
    }

    #[test]
    fn a_null_result_is_a_result_and_a_null_error_is_none() {
        let response: IncomingResponse = serde_json::from_str(r#"{"id":"1","result":null,"error":null}"#).unwrap();
        assert!(matches!(response.outcome, Outcome::Result(raw) if raw.get() == "null"));
        assert!(response.is_final);
        assert!(serde_json::from_str::<IncomingResponse>(r#"{"id":"1"}"#).is_err());
        assert!(serde_json::from_str::<IncomingResponse>(r#"{"id":"1","result":1,"error":{}}"#).is_err());
    }

    #[test]
    fn errors_keep_their_text_and_say_whether_to_retry() {
        let text = r#"{"code":-32011, "message":"Desktop is reconnecting","data":{"retryable":true,"x":1.50}}"#;
        let error = RpcError::from_raw(RawValue::from_string(text.to_owned()).unwrap());
        assert_eq!((error.code, error.retryable), (-32011, true));
        assert_eq!(serde_json::to_string(&error).unwrap(), text);
        let odd = RpcError::from_raw(RawValue::from_string("\"no\"".to_owned()).unwrap());
        assert_eq!((odd.code, odd.retryable, odd.raw().get()), (0, false, "\"no\""));
    }

    #[test]
    fn register_names_only_what_it_has() {
        let device_id: DeviceId = ID.parse().unwrap();
        let mut register = Register {
            device_id,
            relay_protocol_version: Some("1.7".to_owned()),
            device_name: None,
            resume: None,
            target_desktop_device_id: None,
        };
        assert_eq!(serde_json::to_string(&register).unwrap(), format!(r#"{{"deviceId":"{ID}","relayProtocolVersion":"1.7"}}"#));
        register.relay_protocol_version = None;
        register.resume = Some(Resume { session_id: ID.parse().unwrap(), resume_token: "secret".to_owned() });
        let expected = format!(r#"{{"deviceId":"{ID}","sessionId":"{ID}","resumeToken":"secret"}}"#);
        assert_eq!(serde_json::to_string(&register).unwrap(), expected);
        assert!(!format!("{:?}", register.resume).contains("secret"));
    }
}
