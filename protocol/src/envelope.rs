//! From the text of an inbound message to a typed frame, in one pass.
//!
//! A message is `{"type": …, "payload": {…}}`, only these two keys, in either order. Every field of a payload is first taken as
//! raw JSON, so nothing that passes through is decoded, and nesting costs no stack. Duplicate keys and unknown keys fail the
//! frame, however they are spelled. When `payload` comes before `type` it is scanned a second time.

use crate::{
    error::FrameError,
    event::Event,
    identity::Scopes,
    register::Register,
    rpc::{Request, Response},
};
use bytestring::ByteString;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt, marker::PhantomData};

/// A frame that a client sent.
#[derive(Debug)]
pub enum Inbound {
    /// `register`.
    Register(Box<Register>),
    /// `ping`, for clients that cannot see protocol pings.
    Ping,
    /// `rpc.request`; one that is refused for what it says comes as such, with its id.
    Request(Request),
    /// `rpc.response`.
    Response(Response),
    /// `event`.
    Event(Event),
}

impl Inbound {
    /// Reads one message of a sender with every scope.
    ///
    /// # Errors
    /// As [`Inbound::parse_with`].
    pub fn parse(text: ByteString) -> Result<Self, FrameError> {
        Self::parse_with(Scopes::ALL, text)
    }

    /// Reads one message of a sender with these scopes.
    ///
    /// # Errors
    /// [`FrameError::InvalidPayload`], [`FrameError::InvalidEvent`] or [`FrameError::UnknownMessageType`]; other errors depend on the socket's state.
    pub fn parse_with(scopes: Scopes, text: ByteString) -> Result<Self, FrameError> {
        let payload = {
            let mut deserializer = serde_json::Deserializer::from_str(&text);
            let payload = deserializer.deserialize_map(EnvelopeVisitor).map_err(FrameError::unfit)?;
            deserializer.end().map_err(FrameError::unfit)?;
            payload
        };
        match payload {
            Payload::Register(fields) => Ok(Inbound::Register(Box::new(Register::read(&fields)?))),
            Payload::Ping => Ok(Inbound::Ping),
            Payload::Request(fields) => Ok(Inbound::Request(Request::read(scopes, &text, &fields)?)),
            Payload::Response(fields) => Ok(Inbound::Response(Response::read(&text, &fields)?)),
            Payload::Event(fields) => Ok(Inbound::Event(Event::read(&text, &fields)?)),
            Payload::Unknown => Err(FrameError::UnknownMessageType),
        }
    }
}

/// Declares a payload whose fields are all optional raw JSON: `null` is kept apart from absent, duplicates and unknown keys fail.
macro_rules! raw_fields {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $key:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $name<'a> {
            $(pub(crate) $field: Option<&'a RawValue>,)*
        }

        impl<'de> Deserialize<'de> for $name<'de> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;
                impl<'de> Visitor<'de> for Fields {
                    type Value = $name<'de>;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object as payload")
                    }

                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$name<'de>, A::Error> {
                        let mut fields = $name::default();
                        while let Some(key) = map.next_key_seed(Key(PhantomData))? {
                            match &*key {
                                $($key => {
                                    if fields.$field.is_some() {
                                        return Err(A::Error::duplicate_field($key));
                                    }
                                    fields.$field = Some(map.next_value()?);
                                })*
                                unknown => return Err(A::Error::unknown_field(unknown, &[$($key),*])),
                            }
                        }
                        Ok(fields)
                    }
                }
                deserializer.deserialize_map(Fields)
            }
        }
    };
}

raw_fields! {
    /// Payload of `register`.
    RegisterFields {
        device_id: "deviceId",
        relay_protocol_version: "relayProtocolVersion",
        device_name: "deviceName",
        session_id: "sessionId",
        resume_token: "resumeToken",
        target_desktop_device_id: "targetDesktopDeviceId",
    }
}

raw_fields! {
    /// Payload of `rpc.request`.
    RequestFields {
        id: "id",
        method: "method",
        params: "params",
        idempotency_key: "idempotencyKey",
        traceparent: "traceparent",
        tracestate: "tracestate",
    }
}

raw_fields! {
    /// Payload of `rpc.response`.
    ResponseFields {
        client_id: "clientId",
        id: "id",
        result: "result",
        error: "error",
        is_final: "isFinal",
        traceparent: "traceparent",
    }
}

raw_fields! {
    /// Payload of `event`.
    EventFields {
        event_type: "eventType",
        payload: "payload",
    }
}

raw_fields! {
    /// Payload of the event `chat:timeline-interest`.
    InterestFields {
        app_session_id: "appSessionId",
        active: "active",
    }
}

raw_fields! {
    /// Payload of the event `agent:notification`.
    NotificationFields {
        notification_id: "notificationId",
        title: "title",
        body: "body",
        app_session_id: "appSessionId",
    }
}

/// Decodes a JSON string. `None` for any other JSON, and for a lone surrogate.
pub(crate) fn string<'a>(raw: &'a RawValue) -> Option<Cow<'a, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') { serde_json::from_str(raw.get()).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

#[derive(Clone, Copy)]
enum Kind {
    Register,
    Ping,
    Request,
    Response,
    Event,
    Unknown,
}

impl Kind {
    fn of(text: &str) -> Self {
        match text {
            "register" => Kind::Register,
            "ping" => Kind::Ping,
            "rpc.request" => Kind::Request,
            "rpc.response" => Kind::Response,
            "event" => Kind::Event,
            _ => Kind::Unknown,
        }
    }
}

enum Payload<'a> {
    Register(RegisterFields<'a>),
    Ping,
    Request(RequestFields<'a>),
    Response(ResponseFields<'a>),
    Event(EventFields<'a>),
    Unknown,
}

impl<'de> DeserializeSeed<'de> for Kind {
    type Value = Payload<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Payload<'de>, D::Error> {
        match self {
            Kind::Register => RegisterFields::deserialize(deserializer).map(Payload::Register),
            Kind::Ping => deserializer.deserialize_map(EmptyVisitor).map(|()| Payload::Ping),
            Kind::Request => RequestFields::deserialize(deserializer).map(Payload::Request),
            Kind::Response => ResponseFields::deserialize(deserializer).map(Payload::Response),
            Kind::Event => EventFields::deserialize(deserializer).map(Payload::Event),
            Kind::Unknown => IgnoredAny::deserialize(deserializer).map(|_| Payload::Unknown),
        }
    }
}

/// Decodes an object key or the `type`; borrowed unless it holds an escape.
pub(crate) struct Key<'de>(pub(crate) PhantomData<&'de str>);

impl<'de> DeserializeSeed<'de> for Key<'de> {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key<'de> {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// Payload of `ping`: an empty object.
struct EmptyVisitor;

impl<'de> Visitor<'de> for EmptyVisitor {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an empty object as payload")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        match map.next_key_seed(Key(PhantomData))? {
            None => Ok(()),
            Some(unknown) => Err(A::Error::unknown_field(&unknown, &[])),
        }
    }
}

struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Payload<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the keys type and payload")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Payload<'de>, A::Error> {
        let mut kind = None;
        let mut payload = None;
        let mut waiting: Option<&'de RawValue> = None;
        while let Some(key) = map.next_key_seed(Key(PhantomData))? {
            match &*key {
                "type" if kind.is_some() => return Err(A::Error::duplicate_field("type")),
                "type" => kind = Some(Kind::of(&map.next_value_seed(Key(PhantomData))?)),
                "payload" if payload.is_some() || waiting.is_some() => return Err(A::Error::duplicate_field("payload")),
                "payload" => match kind {
                    Some(kind) => payload = Some(map.next_value_seed(kind)?),
                    None => waiting = Some(map.next_value()?),
                },
                unknown => return Err(A::Error::unknown_field(unknown, &["type", "payload"])),
            }
        }
        match (kind, payload, waiting) {
            (None, _, _) => Err(A::Error::missing_field("type")),
            (Some(_), Some(payload), _) => Ok(payload),
            (Some(kind), None, Some(raw)) => kind.deserialize(&mut serde_json::Deserializer::from_str(raw.get())).map_err(A::Error::custom),
            (Some(_), None, None) => Err(A::Error::missing_field("payload")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> &'static str {
        match Inbound::parse(text.to_owned().into()) {
            Ok(frame) => panic!("{text} was taken as {frame:?}"),
            Err(error) => error.code(),
        }
    }

    #[test]
    fn only_an_object_with_the_two_keys_is_a_frame() {
        for text in [
            "",
            "null",
            "[]",
            "\"ping\"",
            "{}",
            "{\"type\":\"ping\"}",
            "{\"payload\":{}}",
            "{\"type\":\"ping\",\"payload\":{},\"id\":1}",
            "{\"type\":\"ping\",\"payload\":{}} {}",
            "{\"type\":\"ping\",\"payload\":{}",
            "{\"type\":\"ping\",\"payload\":[]}",
            "{\"type\":\"ping\",\"payload\":null}",
            "{\"type\":\"ping\",\"payload\":{\"a\":1}}",
            "{\"type\":5,\"payload\":{}}",
            "{\"type\":null,\"payload\":{}}",
            "{\"type\":\"ping\",\"type\":\"ping\",\"payload\":{}}",
            "{\"type\":\"ping\",\"payload\":{},\"payload\":{}}",
            "{\"payload\":{},\"payload\":{},\"type\":\"ping\"}",
            "{\"type\":\"ping\",\"\\u0074ype\":\"ping\",\"payload\":{}}",
            "{\"Type\":\"ping\",\"payload\":{}}",
            "{\"type\":\"rpc.request\",\"payload\":[\"a\",\"system.ping\"]}",
            "{\"type\":\"nonsense\",\"payload\":{]}",
        ] {
            assert_eq!(fault(text), "invalidPayload", "{text}");
        }
        assert_eq!(fault("{\"type\":\"nonsense\",\"payload\":[1,{\"a\":null}]}"), "unknownMessageType");
        assert_eq!(fault("{\"payload\":7,\"type\":\"\"}"), "unknownMessageType");
    }

    #[test]
    fn keys_may_come_in_either_order_and_be_escaped() {
        for text in ["{\"type\":\"ping\",\"payload\":{}}", " {\"payload\" : { } , \"\\u0074ype\":\"p\\u0069ng\"} "] {
            assert!(matches!(Inbound::parse(text.to_owned().into()), Ok(Inbound::Ping)), "{text}");
        }
    }

    #[test]
    fn depth_costs_no_stack() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let depth = 1_000_000;
            let nested = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            assert_eq!(fault(&format!("{{\"type\":\"nonsense\",\"payload\":{nested}}}")), "unknownMessageType");
            assert_eq!(fault(&format!("{{\"payload\":{nested},\"type\":\"ping\"}}")), "invalidPayload");
            assert_eq!(fault(&format!("{{\"type\":\"nonsense\",\"payload\":{}", open.repeat(depth))), "invalidPayload");
        }
    }

    #[test]
    fn strings_decode_and_lone_surrogates_do_not() {
        let decode = |raw: &str| string(serde_json::from_str::<&RawValue>(raw).unwrap()).map(Cow::into_owned);
        assert_eq!(decode("\"a\""), Some("a".into()));
        assert_eq!(decode("\"\\u0041\\/\""), Some("A/".into()));
        assert_eq!(decode("\"\\ud83d\\ude00\""), Some("😀".into()));
        for raw in ["\"\\ud83d\"", "1", "null", "[\"a\"]", "{}", "true"] {
            assert_eq!(decode(raw), None, "{raw}");
        }
    }
}
