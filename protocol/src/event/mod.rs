//! `event` frames of clients: timeline interest, timeline frames, regular events (device-lane section 6).
//!
//! Of a timeline frame the relay reads three fields and takes one out; everything else passes byte for byte.

use crate::{
    envelope::{EventFields, InterestFields, string},
    error::FrameError,
    id::{AuthorizationGeneration, DeviceId},
    limits::{EVENT_NAME_BYTES_MAX, SESSION_ID_BYTES_MAX, TIMELINE_KEY_BYTES_MAX},
    text::{Span, Text, TextWriter, span},
};
use bytestring::ByteString;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{fmt, sync::Arc};

mod notification;
#[cfg(test)]
mod tests;

pub use notification::{NotSent, Notification, Outcome};

/// A phone takes, renews or gives up its lease.
pub const INTEREST: &str = "chat:timeline-interest";
/// A desktop is told of the leases of one session.
pub const INTEREST_UPDATED: &str = "chat:timeline-interest-updated";
/// A timeline frame.
pub const TIMELINE: &str = "chat:stream";
/// A desktop asks for a push alert.
pub const NOTIFICATION: &str = "agent:notification";
/// A desktop is told what becomes of its alert.
pub const NOTIFICATION_RESULT: &str = "agent:notification-result";
/// Phones are told of a desktop's presence.
pub const DEVICE_STATUS: &str = "device-status";

/// Names that only the relay uses.
const RELAY_ONLY: [&str; 3] = [DEVICE_STATUS, INTEREST_UPDATED, NOTIFICATION_RESULT];
/// Start of further names that only the relay uses.
const RELAY_ONLY_PREFIX: &str = "relay:";
/// An alias of a session that shows the same timeline.
const SESSION_ALIAS: &str = "::skills-agent";

/// The frame of an event of the relay's own.
pub fn of_relay<P: Serialize>(event_type: &str, payload: &P) -> Text {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct RelayEvent<'a, P> {
        event_type: &'a str,
        payload: &'a P,
    }
    Text::envelope("event", &RelayEvent { event_type, payload })
}

/// A client's event.
#[derive(Clone, Debug)]
pub enum Event {
    /// `chat:timeline-interest`; phones alone send it.
    Interest(Interest),
    /// `chat:stream`; desktops alone send it.
    Timeline(TimelineFrame),
    /// `agent:notification`; desktops alone send it, and it goes out as a push.
    Notification(Notification),
    /// Any other event of a desktop.
    Regular(RegularEvent),
}

/// A session whose timeline phones watch, under the name that all its aliases share: trimmed, without a trailing `::skills-agent`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseSession(Arc<str>);

impl BaseSession {
    /// Reads an `appSessionId` of 1 to 1,024 bytes, blanks around it not counted. `None` for others, and when the alias is all of it.
    ///
    /// A name read once stays what it is when it is read again, so that a desktop may use the one that it was told.
    pub fn read(text: &str) -> Option<Self> {
        let mut base = text.trim();
        if base.len() > SESSION_ID_BYTES_MAX {
            return None;
        }
        while let Some(rest) = base.strip_suffix(SESSION_ALIAS) {
            base = rest.trim_end();
        }
        (!base.is_empty()).then(|| BaseSession(base.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Session ids are chosen by clients and may hold anything, so logs get an escaped form.
impl fmt::Debug for BaseSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A phone shows a session's timeline, or no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The session.
    pub session: BaseSession,
    /// Take or renew the lease; or end it.
    pub active: bool,
}

/// A timeline frame of a desktop.
#[derive(Clone, Debug)]
pub struct TimelineFrame {
    /// The session that it belongs to.
    pub session: BaseSession,
    /// What it shows as the session's generation. `None` when that is missing or no UUID, or when the frame has a field twice that the
    /// relay reads: such a frame matches no generation.
    pub generation: Option<AuthorizationGeneration>,
    /// `timelineKey`: frames with the same key replace each other while they wait.
    pub key: Option<Arc<str>>,
    text: ByteString,
    /// The payload around the generation.
    kept: [Span; 2],
}

/// Any other event of a desktop, for the phones that selected it.
#[derive(Clone, Debug)]
pub struct RegularEvent {
    name: Box<str>,
    text: ByteString,
    payload: Span,
}

impl Event {
    pub(crate) fn read(text: &ByteString, fields: &EventFields<'_>) -> Result<Self, FrameError> {
        let name = fields.event_type.ok_or_else(|| FrameError::invalid("missing field `eventType`"))?;
        let name = string(name).ok_or_else(|| FrameError::invalid("`eventType` is not a string"))?;
        let payload = fields.payload.ok_or_else(|| FrameError::invalid("missing field `payload`"))?;
        if !payload.get().starts_with('{') {
            return Err(FrameError::invalid("`payload` of the event is not an object"));
        }
        if !is_event_name(&name) {
            return Err(FrameError::InvalidEvent("eventType is 1 to 128 of a-z 0-9 : . _ -"));
        }
        match &*name {
            INTEREST => Interest::read(payload).map(Event::Interest),
            TIMELINE => TimelineFrame::read(text, payload).map(Event::Timeline),
            NOTIFICATION => Notification::read(payload).map(Event::Notification),
            reserved if RELAY_ONLY.contains(&reserved) || reserved.starts_with(RELAY_ONLY_PREFIX) => {
                Err(FrameError::InvalidEvent("only the relay sends events of this name"))
            }
            _ => Ok(Event::Regular(RegularEvent { name: name.into(), text: text.clone(), payload: span(text, payload.get()) })),
        }
    }
}

fn is_event_name(name: &str) -> bool {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b':' | b'.' | b'_' | b'-');
    (1..=EVENT_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed)
}

fn read_session(raw: Option<&RawValue>) -> Result<BaseSession, FrameError> {
    let raw = raw.ok_or_else(|| FrameError::invalid("missing field `appSessionId`"))?;
    let text = string(raw).ok_or_else(|| FrameError::invalid("`appSessionId` is not a string"))?;
    BaseSession::read(&text)
        .ok_or_else(|| FrameError::invalid(format_args!("`appSessionId` does not name a session in 1 to {SESSION_ID_BYTES_MAX} bytes")))
}

impl Interest {
    fn read(payload: &RawValue) -> Result<Self, FrameError> {
        let fields: InterestFields<'_> = serde_json::from_str(payload.get()).map_err(FrameError::unfit)?;
        let active = match fields.active.map(RawValue::get) {
            Some("true") => true,
            Some("false") => false,
            Some(_) => return Err(FrameError::invalid("`active` is not a boolean")),
            None => return Err(FrameError::invalid("missing field `active`")),
        };
        Ok(Interest { session: read_session(fields.app_session_id)?, active })
    }
}

impl TimelineFrame {
    fn read(text: &ByteString, payload: &RawValue) -> Result<Self, FrameError> {
        let mut deserializer = serde_json::Deserializer::from_str(payload.get());
        let fields = TimelineFields::deserialize(&mut deserializer).map_err(FrameError::unfit)?;
        let key = match fields.key.filter(|raw| raw.get() != "null") {
            None => None,
            Some(raw) => Some(string(raw).ok_or_else(|| FrameError::invalid("`timelineKey` is not a string"))?),
        };
        if key.as_ref().is_some_and(|key| key.len() > TIMELINE_KEY_BYTES_MAX) {
            return Err(FrameError::invalid(format_args!("`timelineKey` is longer than {TIMELINE_KEY_BYTES_MAX} bytes")));
        }
        let generation = fields.generation.filter(|_| !fields.has_twice).and_then(string).and_then(|text| text.parse().ok());
        let whole = span(text, payload.get());
        let cut = fields.cut(payload.get());
        let kept = [whole.start..whole.start + cut.start, whole.start + cut.end..whole.end];
        Ok(TimelineFrame { session: read_session(fields.session)?, generation, key: key.map(|key| key.into()), text: text.clone(), kept })
    }

    /// The frame for phones: who sent it, and the payload without its generation.
    pub fn forward(&self, source: DeviceId) -> Text {
        forward(TIMELINE, source, &self.text, &self.kept)
    }
}

impl RegularEvent {
    /// The frame for phones: who sent it, and the payload.
    pub fn forward(&self, source: DeviceId) -> Text {
        forward(&self.name, source, &self.text, std::slice::from_ref(&self.payload))
    }
}

/// A name needs no escapes.
fn forward(name: &str, source: DeviceId, text: &ByteString, payload: &[Span]) -> Text {
    let mut writer = TextWriter::with_capacity(text.len() + 64);
    writer.put("{\"type\":\"event\",\"payload\":{\"eventType\":\"");
    writer.put(name);
    writer.put("\",\"sourceDeviceId\":\"");
    writer.put_display(source);
    writer.put("\",\"payload\":");
    for part in payload {
        writer.put_shared(text.as_bytes().slice(part.clone()));
    }
    writer.put("}}");
    writer.finish()
}

/// What the relay reads of a timeline frame, and where the generation stands.
#[derive(Debug, Default)]
struct TimelineFields<'a> {
    session: Option<&'a RawValue>,
    generation: Option<&'a RawValue>,
    key: Option<&'a RawValue>,
    has_twice: bool,
    /// The value before the generation; none when the generation comes first.
    before_generation: Option<&'a RawValue>,
}

impl TimelineFields<'_> {
    /// The generation's place in the payload: its key, its value, and the comma behind it or else the one before it.
    fn cut(&self, payload: &str) -> Span {
        let Some(generation) = self.generation else { return 0..0 };
        let end = span(payload, generation.get()).end;
        // Between two values there is a comma, a key and a colon, and blanks; so the first quote opens the key.
        let before = self.before_generation.map_or(1, |value| span(payload, value.get()).end);
        let at_or_behind = |from: usize, byte: u8| payload.as_bytes()[from..].iter().position(|other| *other == byte).map(|at| from + at);
        let opens = at_or_behind(before, b'"').unwrap_or(before);
        let behind = end + payload[end..].len() - payload[end..].trim_start_matches([' ', '\t', '\n', '\r']).len();
        if payload.as_bytes().get(behind) == Some(&b',') {
            return opens..behind + 1;
        }
        let starts = if self.before_generation.is_some() { at_or_behind(before, b',').unwrap_or(opens) } else { opens };
        starts..end
    }
}

impl<'de> Deserialize<'de> for TimelineFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TimelineVisitor)
    }
}

struct TimelineVisitor;

impl<'de> Visitor<'de> for TimelineVisitor {
    type Value = TimelineFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object as payload of the event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TimelineFields<'de>, A::Error> {
        let mut fields = TimelineFields::default();
        let mut before = None;
        // Not decoded by the parser: a key that passes through may hold a lone surrogate, like any value.
        while let Some(key) = map.next_key::<&RawValue>()? {
            let value: &RawValue = map.next_value()?;
            let field = match string(key).as_deref() {
                Some("appSessionId") => Some(&mut fields.session),
                Some("authorizationGeneration") => {
                    fields.before_generation = before;
                    Some(&mut fields.generation)
                }
                Some("timelineKey") => Some(&mut fields.key),
                Some(_) | None => None,
            };
            if let Some(field) = field {
                fields.has_twice |= field.is_some();
                *field = Some(value);
            }
            before = Some(value);
        }
        Ok(fields)
    }
}
