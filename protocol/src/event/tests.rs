//! Which events are read, what is read of them, and what is left of a timeline frame.

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
