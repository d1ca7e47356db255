//! What the relay answers when it does not do what a frame asked: error frames, registration errors, RPC refusals.
//!
//! Each is one enum that knows its code, its message, and whether a client may try again (device-lane sections 3 and 4). RPC
//! numbers are listed in the contract manifest too, and never reused.

use crate::{identity::Scopes, text::Text, version::Version};
use serde::Serialize;
use std::borrow::Cow;

/// A detail that quotes the sender is cut to this many bytes.
const DETAIL_BYTES_MAX: usize = 200;

/// Why a frame was not taken, outside of registration and RPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Not JSON, not the two keys, or a payload of the wrong shape. The detail names the fault.
    InvalidPayload(String),
    /// A `type` that this relay does not know.
    UnknownMessageType,
    /// Only `register` and `ping` are taken before a registration.
    NotRegistered,
    /// The socket is registered, or its registration is being decided.
    AlreadyRegistered,
    /// Requests and timeline interest come from phones, responses and all other events from desktops.
    WrongRole,
    /// An event's name is ill-formed, or not one that clients send. The detail says which.
    InvalidEvent(&'static str),
}

impl FrameError {
    /// Every variant, with an empty detail.
    pub const ALL: [FrameError; 6] = [
        FrameError::InvalidPayload(String::new()),
        FrameError::UnknownMessageType,
        FrameError::NotRegistered,
        FrameError::AlreadyRegistered,
        FrameError::WrongRole,
        FrameError::InvalidEvent(""),
    ];

    /// `InvalidPayload` with a bounded detail.
    pub(crate) fn invalid(detail: impl std::fmt::Display) -> Self {
        let mut detail = detail.to_string();
        if detail.len() > DETAIL_BYTES_MAX {
            detail.truncate(detail.floor_char_boundary(DETAIL_BYTES_MAX));
        }
        FrameError::InvalidPayload(detail)
    }

    /// `InvalidPayload` by what the parser says. The name of a field that it does not know stays in it, a value that it found in place
    /// of an object does not: that may be a secret.
    pub(crate) fn unfit(error: serde_json::Error) -> Self {
        const FOUND: &str = "invalid type";
        let text = error.to_string();
        let expected = if text.starts_with(FOUND) { text.rfind(", expected ") } else { None };
        match expected {
            Some(expected) => Self::invalid(format_args!("{FOUND}{}", &text[expected..])),
            None => Self::invalid(text),
        }
    }

    /// The `code` of the error frame.
    pub fn code(&self) -> &'static str {
        match self {
            FrameError::InvalidPayload(_) => "invalidPayload",
            FrameError::UnknownMessageType => "unknownMessageType",
            FrameError::NotRegistered => "notRegistered",
            FrameError::AlreadyRegistered => "alreadyRegistered",
            FrameError::WrongRole => "wrongRole",
            FrameError::InvalidEvent(_) => "invalidEvent",
        }
    }

    /// For people who write clients.
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            FrameError::InvalidPayload(detail) => format!("The frame was not understood: {detail}").into(),
            FrameError::UnknownMessageType => "No message has this type.".into(),
            FrameError::NotRegistered => "Register first; until then only register and ping are taken.".into(),
            FrameError::AlreadyRegistered => "This socket is registered; open another one to register again.".into(),
            FrameError::WrongRole => "Phones send rpc.request and chat:timeline-interest, desktops rpc.response and other events.".into(),
            FrameError::InvalidEvent(detail) => format!("No client sends this event: {detail}").into(),
        }
    }

    /// The whole error frame.
    pub fn to_text(&self) -> Text {
        error_frame(self.code(), &self.message(), false)
    }
}

/// Why a registration failed, in the order in which the checks are made (device-lane section 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// The process is leaving.
    RelayDraining,
    /// `relayProtocolVersion` does not parse.
    InvalidRelayProtocolVersion,
    /// The rules cannot be read, or one of them does not parse.
    RelayProtocolPolicyUnavailable,
    /// The version is absent or below this one.
    ProtocolUpdateRequired(Version),
    /// `deviceId` is not a UUID.
    InvalidDeviceId,
    /// A phone named no desktop, in the header or in the payload.
    MissingTargetDesktop,
    /// Header and payload name different desktops, or what they name is no desktop of the account.
    InvalidTargetDesktop,
    /// Storage cannot answer.
    DeviceLookupUnavailable,
    /// No such device, or a forgotten one.
    DeviceNotFound,
    /// The device belongs to another account.
    DeviceOwnershipFailed,
    /// The device was registered with the other role.
    DeviceRoleMismatch,
    /// The device may not use the relay.
    DeviceNotEligible,
    /// Unknown, expired or foreign resume session or token.
    InvalidResume,
}

impl RegisterError {
    /// Every variant, in the order of the checks; `required` stands for the version that the rules demand.
    pub fn all(required: Version) -> [RegisterError; 13] {
        [
            RegisterError::RelayDraining,
            RegisterError::InvalidRelayProtocolVersion,
            RegisterError::RelayProtocolPolicyUnavailable,
            RegisterError::ProtocolUpdateRequired(required),
            RegisterError::InvalidDeviceId,
            RegisterError::MissingTargetDesktop,
            RegisterError::InvalidTargetDesktop,
            RegisterError::DeviceLookupUnavailable,
            RegisterError::DeviceNotFound,
            RegisterError::DeviceOwnershipFailed,
            RegisterError::DeviceRoleMismatch,
            RegisterError::DeviceNotEligible,
            RegisterError::InvalidResume,
        ]
    }

    /// The `code` of the error frame.
    pub fn code(&self) -> &'static str {
        match self {
            RegisterError::RelayDraining => "relayDraining",
            RegisterError::InvalidRelayProtocolVersion => "invalidRelayProtocolVersion",
            RegisterError::RelayProtocolPolicyUnavailable => "relayProtocolPolicyUnavailable",
            RegisterError::ProtocolUpdateRequired(_) => "protocolUpdateRequired",
            RegisterError::InvalidDeviceId => "invalidDeviceId",
            RegisterError::MissingTargetDesktop => "missingTargetDesktop",
            RegisterError::InvalidTargetDesktop => "invalidTargetDesktop",
            RegisterError::DeviceLookupUnavailable => "deviceLookupUnavailable",
            RegisterError::DeviceNotFound => "deviceNotFound",
            RegisterError::DeviceOwnershipFailed => "deviceOwnershipFailed",
            RegisterError::DeviceRoleMismatch => "deviceRoleMismatch",
            RegisterError::DeviceNotEligible => "deviceNotEligible",
            RegisterError::InvalidResume => "invalidResume",
        }
    }

    /// Whether the same registration may succeed later.
    pub fn retryable(&self) -> bool {
        match self {
            RegisterError::RelayDraining | RegisterError::RelayProtocolPolicyUnavailable | RegisterError::DeviceLookupUnavailable => true,
            RegisterError::InvalidRelayProtocolVersion
            | RegisterError::ProtocolUpdateRequired(_)
            | RegisterError::InvalidDeviceId
            | RegisterError::MissingTargetDesktop
            | RegisterError::InvalidTargetDesktop
            | RegisterError::DeviceNotFound
            | RegisterError::DeviceOwnershipFailed
            | RegisterError::DeviceRoleMismatch
            | RegisterError::DeviceNotEligible
            | RegisterError::InvalidResume => false,
        }
    }

    /// For people; `ProtocolUpdateRequired` is shown to users.
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            RegisterError::RelayDraining => "The relay is restarting; connect again.".into(),
            RegisterError::InvalidRelayProtocolVersion => "relayProtocolVersion is not a version like 1.7.".into(),
            RegisterError::RelayProtocolPolicyUnavailable => "The compatibility rules cannot be read now; try again.".into(),
            RegisterError::ProtocolUpdateRequired(required) => {
                format!("Please update the app: the relay needs protocol version {required} or newer.").into()
            }
            RegisterError::InvalidDeviceId => "deviceId is not a UUID.".into(),
            RegisterError::MissingTargetDesktop => {
                "A phone names its desktop in X-Target-Desktop-Device-ID or in targetDesktopDeviceId.".into()
            }
            RegisterError::InvalidTargetDesktop => "The target is not a desktop of this account, or header and payload differ.".into(),
            RegisterError::DeviceLookupUnavailable => "Devices cannot be looked up now; try again.".into(),
            RegisterError::DeviceNotFound => "No such device; register it with POST /api/devices.".into(),
            RegisterError::DeviceOwnershipFailed => "The device belongs to another account.".into(),
            RegisterError::DeviceRoleMismatch => "The device was registered with another role than X-Client-Type says.".into(),
            RegisterError::DeviceNotEligible => "The device may not use the relay.".into(),
            RegisterError::InvalidResume => "The session cannot be resumed; register without sessionId and resumeToken.".into(),
        }
    }

    /// The whole error frame.
    pub fn to_text(&self) -> Text {
        error_frame(self.code(), &self.message(), self.retryable())
    }
}

/// A bound on open requests (device-lane section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BoundScope {
    /// All requests of the process.
    Process,
    /// All requests of one account.
    User,
    /// All requests to one desktop.
    Desktop,
    /// All requests of one phone route.
    Client,
}

impl BoundScope {
    /// Every variant, in the order of their declaration.
    pub const ALL: [BoundScope; 4] = [BoundScope::Process, BoundScope::User, BoundScope::Desktop, BoundScope::Client];

    /// The word for refusals and metrics.
    pub fn name(self) -> &'static str {
        match self {
            BoundScope::Process => "process",
            BoundScope::User => "user",
            BoundScope::Desktop => "desktop",
            BoundScope::Client => "client",
        }
    }
}

/// Why a request was not forwarded, or will get no answer from the desktop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpcRefusal {
    /// The connection has sent more than its rate allows. Not routed, and hardly read.
    RateLimited,
    /// A field is missing, of the wrong type, or breaks the trace context rules. The text names it.
    InvalidRequest(&'static str),
    /// Not in the contract.
    MethodNotFound,
    /// The socket was opened with an API key that lacks a scope.
    InsufficientScope {
        /// What the method needs, `rpc` included.
        required: Scopes,
    },
    /// A mutation without `idempotencyKey`: an old client.
    IdempotencyKeyRequired,
    /// `params` of the one method whose `params` the relay types do not have their shape. The text names the shape.
    InvalidParams(&'static str),
    /// The desktop's socket closed less than the reconnect wait ago.
    DesktopReconnecting,
    /// No connection and no wait.
    DesktopOffline,
    /// The desktop did not answer within the record's life.
    Expired,
    /// The same request is pending under this id.
    DuplicateRequest,
    /// Another request is pending under this id.
    ConflictingRequest,
    /// Too many open requests.
    TooManyPending {
        /// Which bound.
        scope: BoundScope,
        /// The bound.
        limit: usize,
        /// Open requests at the time.
        current: usize,
    },
    /// The desktop's connection changed, or had no room, between admission and hand-over.
    DesktopMoved,
    /// The sender's connection has been replaced, or the process is leaving.
    AuthorityChanging,
}

impl RpcRefusal {
    /// Every variant, in the order in which a request meets them; texts and counts stand for any.
    pub const ALL: [RpcRefusal; 14] = [
        RpcRefusal::RateLimited,
        RpcRefusal::InvalidRequest(""),
        RpcRefusal::MethodNotFound,
        RpcRefusal::InsufficientScope { required: Scopes::ALL },
        RpcRefusal::IdempotencyKeyRequired,
        RpcRefusal::InvalidParams(""),
        RpcRefusal::AuthorityChanging,
        RpcRefusal::DesktopReconnecting,
        RpcRefusal::DesktopOffline,
        RpcRefusal::DuplicateRequest,
        RpcRefusal::ConflictingRequest,
        RpcRefusal::TooManyPending { scope: BoundScope::User, limit: 0, current: 0 },
        RpcRefusal::DesktopMoved,
        RpcRefusal::Expired,
    ];

    /// The JSON-RPC error number.
    pub fn code(&self) -> i32 {
        match self {
            RpcRefusal::RateLimited => -32028,
            RpcRefusal::InvalidRequest(_) => -32600,
            RpcRefusal::MethodNotFound => -32601,
            RpcRefusal::InsufficientScope { .. } => -32027,
            RpcRefusal::IdempotencyKeyRequired => -32026,
            RpcRefusal::InvalidParams(_) => -32602,
            RpcRefusal::DesktopReconnecting => -32011,
            RpcRefusal::DesktopOffline => -32010,
            RpcRefusal::Expired => -32012,
            RpcRefusal::DuplicateRequest => -32021,
            RpcRefusal::ConflictingRequest => -32022,
            RpcRefusal::TooManyPending { .. } => -32020,
            RpcRefusal::DesktopMoved => -32023,
            RpcRefusal::AuthorityChanging => -32024,
        }
    }

    /// The word for metrics.
    pub fn name(&self) -> &'static str {
        match self {
            RpcRefusal::RateLimited => "rateLimited",
            RpcRefusal::InvalidRequest(_) => "invalidRequest",
            RpcRefusal::MethodNotFound => "methodNotFound",
            RpcRefusal::InsufficientScope { .. } => "insufficientScope",
            RpcRefusal::IdempotencyKeyRequired => "idempotencyKeyRequired",
            RpcRefusal::InvalidParams(_) => "invalidParams",
            RpcRefusal::DesktopReconnecting => "desktopReconnecting",
            RpcRefusal::DesktopOffline => "desktopOffline",
            RpcRefusal::Expired => "expired",
            RpcRefusal::DuplicateRequest => "duplicateRequest",
            RpcRefusal::ConflictingRequest => "conflictingRequest",
            RpcRefusal::TooManyPending { .. } => "tooManyPending",
            RpcRefusal::DesktopMoved => "desktopMoved",
            RpcRefusal::AuthorityChanging => "authorityChanging",
        }
    }

    /// Whether the same request may be sent again by the transport.
    pub fn retryable(&self) -> bool {
        match self {
            RpcRefusal::RateLimited
            | RpcRefusal::DesktopReconnecting
            | RpcRefusal::DesktopOffline
            | RpcRefusal::Expired
            | RpcRefusal::TooManyPending { .. }
            | RpcRefusal::DesktopMoved
            | RpcRefusal::AuthorityChanging => true,
            RpcRefusal::InvalidRequest(_)
            | RpcRefusal::MethodNotFound
            | RpcRefusal::InsufficientScope { .. }
            | RpcRefusal::IdempotencyKeyRequired
            | RpcRefusal::InvalidParams(_)
            | RpcRefusal::DuplicateRequest
            | RpcRefusal::ConflictingRequest => false,
        }
    }

    /// For people who write clients.
    pub fn message(&self) -> &'static str {
        match self {
            RpcRefusal::RateLimited => "Too many messages; send the request again later",
            RpcRefusal::InvalidRequest(fault) | RpcRefusal::InvalidParams(fault) => fault,
            RpcRefusal::MethodNotFound => "The contract has no such method",
            RpcRefusal::InsufficientScope { .. } => "The API key of this connection lacks a scope",
            RpcRefusal::IdempotencyKeyRequired => "This method changes state and needs an idempotencyKey; please update the app",
            RpcRefusal::DesktopReconnecting => "Desktop is reconnecting",
            RpcRefusal::DesktopOffline => "Desktop is offline",
            RpcRefusal::Expired => "The desktop did not answer in time; the request may have run",
            RpcRefusal::DuplicateRequest => "The same request is already pending",
            RpcRefusal::ConflictingRequest => "Another request is pending under this id",
            RpcRefusal::TooManyPending { .. } => "Too many open requests",
            RpcRefusal::DesktopMoved => "The desktop's connection changed before the request was handed over",
            RpcRefusal::AuthorityChanging => "Routing is changing; send the request again",
        }
    }

    /// The whole `rpc.response` frame. `id` is the request's own JSON text, so that it goes back byte for byte.
    pub fn to_text(&self, id: &str) -> Text {
        let mut payload = String::from("{\"type\":\"rpc.response\",\"payload\":{\"id\":");
        payload.push_str(id);
        payload.push_str(",\"error\":");
        payload.push_str(&self.error_json());
        payload.push_str(",\"isFinal\":true}}");
        Text::from(payload)
    }

    fn error_json(&self) -> String {
        #[derive(Serialize)]
        struct Error {
            code: i32,
            message: &'static str,
            data: Data,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Data {
            retryable: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            reason: Option<&'static str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            required_scopes: Option<Scopes>,
            #[serde(skip_serializing_if = "Option::is_none")]
            scope: Option<BoundScope>,
            #[serde(skip_serializing_if = "Option::is_none")]
            limit: Option<usize>,
            #[serde(skip_serializing_if = "Option::is_none")]
            current: Option<usize>,
        }
        let mut data = Data { retryable: self.retryable(), reason: None, required_scopes: None, scope: None, limit: None, current: None };
        if let RpcRefusal::TooManyPending { scope, limit, current } = *self {
            (data.scope, data.limit, data.current) = (Some(scope), Some(limit), Some(current));
        }
        if let RpcRefusal::InsufficientScope { required } = *self {
            data.required_scopes = Some(required);
        }
        if *self == RpcRefusal::IdempotencyKeyRequired {
            data.reason = Some("protocolUpdateRequired");
        }
        serde_json::to_string(&Error { code: self.code(), message: self.message(), data }).unwrap_or_default()
    }
}

fn error_frame(code: &str, message: &str, retryable: bool) -> Text {
    #[derive(Serialize)]
    struct Payload<'a> {
        code: &'a str,
        message: &'a str,
        retryable: bool,
    }
    Text::envelope("error", &Payload { code, message, retryable })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_carry_the_id_as_it_came() {
        let refusal = RpcRefusal::TooManyPending { scope: BoundScope::Client, limit: 64, current: 64 };
        assert_eq!(
            String::from_utf8(refusal.to_text("\"\\u0041b\"").to_bytes()).unwrap(),
            "{\"type\":\"rpc.response\",\"payload\":{\"id\":\"\\u0041b\",\"error\":{\"code\":-32020,\"message\":\"Too many open requests\",\
             \"data\":{\"retryable\":true,\"scope\":\"client\",\"limit\":64,\"current\":64}},\"isFinal\":true}}"
        );
    }

    #[test]
    fn a_missing_key_asks_for_an_update() {
        let text = String::from_utf8(RpcRefusal::IdempotencyKeyRequired.to_text("\"a\"").to_bytes()).unwrap();
        assert!(text.contains("\"data\":{\"retryable\":false,\"reason\":\"protocolUpdateRequired\"}"), "{text}");
    }

    #[test]
    fn a_missing_scope_is_told_with_all_that_the_method_needs() {
        let required = "rpc,write".parse().unwrap();
        let text = String::from_utf8(RpcRefusal::InsufficientScope { required }.to_text("\"a\"").to_bytes()).unwrap();
        assert!(text.contains("\"code\":-32027,"), "{text}");
        assert!(text.contains("\"data\":{\"retryable\":false,\"requiredScopes\":[\"rpc\",\"write\"]}"), "{text}");
    }

    #[test]
    fn error_frames_have_code_message_and_retryable() {
        let text = String::from_utf8(FrameError::NotRegistered.to_text().to_bytes()).unwrap();
        assert!(text.starts_with("{\"type\":\"error\",\"payload\":{\"code\":\"notRegistered\",\"message\":\""), "{text}");
        assert!(text.ends_with("\",\"retryable\":false}}"), "{text}");
    }

    #[test]
    fn a_value_in_place_of_an_object_is_not_quoted() {
        for value in ["\"secret, expected of nobody\"", "5551234", "true"] {
            let error = serde_json::from_str::<std::collections::BTreeMap<String, bool>>(value).unwrap_err();
            let FrameError::InvalidPayload(detail) = FrameError::unfit(error) else { panic!("another error") };
            assert!(detail.starts_with("invalid type, expected a map at line 1"), "{detail}");
        }
    }

    #[test]
    fn details_that_quote_the_sender_are_bounded() {
        let FrameError::InvalidPayload(detail) = FrameError::invalid("é".repeat(10_000)) else { panic!("another error") };
        assert!(detail.len() <= DETAIL_BYTES_MAX);
    }
}
