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
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{fmt, sync::Arc};

/// A phone takes, renews or gives up its lease.
pub const INTEREST: &str = "chat:timeline-interest";
/// A desktop is told of the leases of one session.
pub const INTEREST_UPDATED: &str = "chat:timeline-interest-updated";
/// A timeline frame.
pub const TIMELINE: &str = "chat:stream";
/// A desktop asks for a push alert.
pub const NOTIFICATION: &str = "agent:notification";
/// Phones are told of a desktop's presence.
pub const DEVICE_STATUS: &str = "device-status";

/// Names that only the relay uses.
const RELAY_ONLY: [&str; 3] = [DEVICE_STATUS, INTEREST_UPDATED, "agent:notification-result"];
/// Start of further names that only the relay uses.
const RELAY_ONLY_PREFIX: &str = "relay:";
/// An alias of a session that shows the same timeline.
const SESSION_ALIAS: &str = "::skills-agent";

/// A client's event.
#[derive(Clone, Debug)]
pub enum Event {
    /// `chat:timeline-interest`; phones alone send it.
    Interest(Interest),
    /// `chat:stream`; desktops alone send it.
    Timeline(TimelineFrame),
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
            NOTIFICATION => Err(FrameError::InvalidEvent("this relay sends no push alerts yet")),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Inbound;
    use proptest::prelude::*;

    const GENERATION: &str = "6fa459ea-ee8a-4ca4-894e-db77e160355e";

    fn read(name: &str, payload: &str) -> Result<Event, FrameError> {
        match Inbound::parse(format!("{{\"type\":\"event\",\"payload\":{{\"eventType\":\"{name}\",\"payload\":{payload}}}}}").into()) {
            Ok(Inbound::Event(event)) => Ok(event),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        }
    }

    fn timeline(payload: &str) -> TimelineFrame {
        match read(TIMELINE, payload) {
            Ok(Event::Timeline(frame)) => frame,
            other => panic!("{payload}: {other:?}"),
        }
    }

    fn source() -> DeviceId {
        DeviceId(uuid::Uuid::nil())
    }

    fn forwarded(name: &str, text: &Text) -> String {
        let text = String::from_utf8(text.to_bytes()).unwrap();
        let head = format!("{{\"type\":\"event\",\"payload\":{{\"eventType\":\"{name}\",\"sourceDeviceId\":\"{}\",\"payload\":", source());
        text.strip_prefix(&head).and_then(|rest| rest.strip_suffix("}}")).unwrap_or_else(|| panic!("{text}")).to_owned()
    }

    fn stripped(payload: &str) -> String {
        let frame = timeline(payload);
        assert_eq!(frame.generation, Some(GENERATION.parse().unwrap()), "{payload}");
        forwarded(TIMELINE, &frame.forward(source()))
    }

    #[test]
    fn only_names_that_are_well_formed_and_free_are_events_of_clients() {
        let longest = "a".repeat(EVENT_NAME_BYTES_MAX);
        for name in ["a", "chat:x", "a.b_c-d:0", "agent:notifications", "relay", longest.as_str()] {
            assert!(matches!(read(name, "{}"), Ok(Event::Regular(_))), "{name}");
        }
        let too_long = "a".repeat(EVENT_NAME_BYTES_MAX + 1);
        for name in [
            "",
            " a",
            "A",
            "chat stream",
            "é",
            "a/b",
            too_long.as_str(),
            "device-status",
            "chat:timeline-interest-updated",
            "agent:notification-result",
            "relay:",
            "relay:x",
            "agent:notification",
        ] {
            assert_eq!(read(name, "{}").err().map(|error| error.code()), Some("invalidEvent"), "{name}");
        }
    }

    #[test]
    fn an_event_has_a_name_and_an_object() {
        for payload in [
            "{}",
            "{\"eventType\":\"a\"}",
            "{\"payload\":{}}",
            "{\"eventType\":1,\"payload\":{}}",
            "{\"eventType\":\"\\ud800\",\"payload\":{}}",
            "{\"eventType\":\"a\",\"payload\":null}",
            "{\"eventType\":\"a\",\"payload\":[]}",
            "{\"eventType\":\"a\",\"payload\":{},\"sourceDeviceId\":\"x\"}",
            "{\"eventType\":\"a\",\"eventType\":\"a\",\"payload\":{}}",
        ] {
            let error = Inbound::parse(format!("{{\"type\":\"event\",\"payload\":{payload}}}").into()).unwrap_err();
            assert_eq!(error.code(), "invalidPayload", "{payload}");
        }
    }

    #[test]
    fn aliases_of_a_session_share_its_name() {
        let base = |text: &str| BaseSession::read(text).map(|session| session.as_str().to_owned());
        for text in ["s", " s\n", "s::skills-agent", "s ::skills-agent ", "s::skills-agent::skills-agent"] {
            assert_eq!(base(text).as_deref(), Some("s"), "{text:?}");
        }
        assert_eq!(base("::skills-agents").as_deref(), Some("::skills-agents"));
        assert_eq!(base("s::skills-agent::x").as_deref(), Some("s::skills-agent::x"));
        for text in ["", "  ", "::skills-agent", " ::skills-agent::skills-agent"] {
            assert_eq!(base(text), None, "{text:?}");
        }
        let longest = "é".repeat(SESSION_ID_BYTES_MAX / 2);
        assert_eq!(base(&format!(" {longest} ")), Some(longest.clone()));
        assert_eq!(base(&format!("{longest}a")), None);
    }

    #[test]
    fn interest_has_a_session_and_says_whether() {
        let interest = |payload: &str| match read(INTEREST, payload) {
            Ok(Event::Interest(interest)) => Ok((interest.session.as_str().to_owned(), interest.active)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.code()),
        };
        assert_eq!(interest("{\"appSessionId\":\" a\\u0062::skills-agent\",\"active\":true}"), Ok(("ab".into(), true)));
        assert_eq!(interest("{\"active\":false,\"appSessionId\":\"s\"}"), Ok(("s".into(), false)));
        for payload in [
            "{}",
            "{\"appSessionId\":\"s\"}",
            "{\"active\":true}",
            "{\"appSessionId\":\"s\",\"active\":\"true\"}",
            "{\"appSessionId\":\"s\",\"active\":null}",
            "{\"appSessionId\":null,\"active\":true}",
            "{\"appSessionId\":\"\\udc00\",\"active\":true}",
            "{\"appSessionId\":\" \",\"active\":true}",
            "{\"appSessionId\":\"::skills-agent\",\"active\":true}",
            "{\"appSessionId\":\"s\",\"active\":true,\"userId\":\"x\"}",
            "{\"appSessionId\":\"s\",\"active\":true,\"active\":true}",
        ] {
            assert_eq!(interest(payload), Err("invalidPayload"), "{payload}");
        }
    }

    #[test]
    fn the_generation_goes_with_one_comma_and_nothing_else() {
        let pair = format!("\"authorizationGeneration\":\"{GENERATION}\"");
        for (payload, expected) in [
            (format!("{{{pair},\"appSessionId\":\"s\"}}"), "{\"appSessionId\":\"s\"}"),
            (format!("{{\"appSessionId\":\"s\",{pair}}}"), "{\"appSessionId\":\"s\"}"),
            (format!("{{\"appSessionId\":\"s\",{pair},\"a\":1}}"), "{\"appSessionId\":\"s\",\"a\":1}"),
            (format!("{{ \"appSessionId\" : \"s\" , {pair} , \"a\" : 1.0 }}"), "{ \"appSessionId\" : \"s\" ,  \"a\" : 1.0 }"),
            (format!("{{ \"appSessionId\" : \"s\" , {pair} }}"), "{ \"appSessionId\" : \"s\"  }"),
            (format!("{{\n\t{pair}\n,\"appSessionId\":\"s\"}}"), "{\n\t\"appSessionId\":\"s\"}"),
            (
                format!("{{\"x\":\",\\\"\",\"\\u0061uthorizationGeneration\" : \"{GENERATION}\",\"appSessionId\":\"s\"}}"),
                "{\"x\":\",\\\"\",\"appSessionId\":\"s\"}",
            ),
        ] {
            assert_eq!(stripped(&payload), expected, "{payload}");
        }
    }

    #[test]
    fn the_rest_of_a_timeline_frame_passes_as_it_came() {
        let rest = "\"n\":[1.0,1E400,-0,9007199254740993],\"\\ud800\":\"\\ud800\\/\",\"\":0,\"b\":1,\"b\":2,\"authorizationgeneration\":{\"authorizationGeneration\":1}";
        let payload = format!("{{\"appSessionId\":\" s::skills-agent\",{rest},\"authorizationGeneration\":\"{GENERATION}\"}}");
        assert_eq!(stripped(&payload), format!("{{\"appSessionId\":\" s::skills-agent\",{rest}}}"));
        assert_eq!(timeline(&payload).session, BaseSession::read("s").unwrap());
    }

    #[test]
    fn a_generation_that_is_missing_odd_or_twice_there_matches_none() {
        for extra in [
            String::new(),
            ",\"authorizationGeneration\":null".into(),
            ",\"authorizationGeneration\":7".into(),
            ",\"authorizationGeneration\":\"\"".into(),
            format!(",\"authorizationGeneration\":\" {GENERATION}\""),
            format!(",\"authorizationGeneration\":\"{GENERATION}\",\"authorizationGeneration\":\"{GENERATION}\""),
            format!(",\"authorizationGeneration\":\"{GENERATION}\",\"authorization\\u0047eneration\":null"),
            format!(",\"authorizationGeneration\":\"{GENERATION}\",\"appSessionId\":\"s\""),
            format!(",\"authorizationGeneration\":\"{GENERATION}\",\"timelineKey\":null,\"timelineKey\":\"k\""),
        ] {
            let payload = format!("{{\"appSessionId\":\"s\"{extra}}}");
            assert_eq!(timeline(&payload).generation, None, "{payload}");
        }
    }

    #[test]
    fn a_timeline_key_is_a_string_of_bounded_length() {
        let key = |key: &str| timeline(&format!("{{\"appSessionId\":\"s\",\"timelineKey\":{key}}}")).key.as_deref().map(str::to_owned);
        assert_eq!(key("null"), None);
        assert_eq!(key("\"\""), Some(String::new()));
        assert_eq!(key("\"\\u006b\""), Some("k".into()));
        let longest = "k".repeat(TIMELINE_KEY_BYTES_MAX);
        assert_eq!(key(&format!("\"{longest}\"")), Some(longest.clone()));
        for bad in ["1", "[]", "\"\\ud800\"", &format!("\"{longest}k\"")] {
            let error = read(TIMELINE, &format!("{{\"appSessionId\":\"s\",\"timelineKey\":{bad}}}")).unwrap_err();
            assert_eq!(error.code(), "invalidPayload", "{bad}");
        }
        for session in ["1", "null", "\"\"", "\"::skills-agent\""] {
            assert_eq!(read(TIMELINE, &format!("{{\"appSessionId\":{session}}}")).unwrap_err().code(), "invalidPayload", "{session}");
        }
    }

    #[test]
    fn a_regular_event_passes_as_it_came() {
        let payload = "{ \"authorizationGeneration\" : 1.0, \"a\":\"\\u0041\" }";
        let Ok(Event::Regular(event)) = read("files:changed", payload) else { panic!("not an event") };
        assert_eq!(forwarded("files:changed", &event.forward(source())), payload);
    }

    proptest! {
        /// Whatever stands around it in whatever notation, what is left is the same object without the generation.
        #[test]
        fn stripping_leaves_the_other_fields(
            before in proptest::collection::vec(("[a-z]{1,6}", "[ -~]{0,8}"), 0..4),
            after in proptest::collection::vec(("[a-z]{1,6}", "[ -~]{0,8}"), 0..4),
            blanks in proptest::collection::vec("[ \t\r\n]{0,2}", 40),
        ) {
            let mut blank = blanks.iter().cycle();
            let mut blank = || blank.next().unwrap().as_str();
            let field = |(key, value): &(String, String)| (serde_json::to_string(key).unwrap(), serde_json::to_string(value).unwrap());
            let own = ("\"authorizationGeneration\"".to_owned(), format!("\"{GENERATION}\""));
            let session = ("\"appSessionId\"".to_owned(), "\"s\"".to_owned());
            let fields: Vec<_> =
                before.iter().map(field).chain([own]).chain(after.iter().map(field)).chain([session]).collect();
            let mut payload = "{".to_owned();
            for (index, (key, value)) in fields.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                payload += &[comma, blank(), key, blank(), ":", blank(), value, blank()].concat();
            }
            payload.push('}');
            let pairs = |text: &str| -> Vec<(String, String)> {
                let fields: OrderedFields = serde_json::from_str(text).unwrap();
                fields.0
            };
            let mut expected = pairs(&payload);
            expected.remove(before.len());
            prop_assert_eq!(pairs(&stripped(&payload)), expected);
        }
    }

    /// An object's fields, doubled ones too, in their order.
    struct OrderedFields(Vec<(String, String)>);

    impl<'de> Deserialize<'de> for OrderedFields {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Fields;
            impl<'de> Visitor<'de> for Fields {
                type Value = OrderedFields;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("an object")
                }

                fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedFields, A::Error> {
                    let mut fields = Vec::new();
                    while let Some(field) = map.next_entry()? {
                        fields.push(field);
                    }
                    Ok(OrderedFields(fields))
                }
            }
            deserializer.deserialize_map(Fields)
        }
    }
}
