//! The only `params` that the relay types: those of `session.syncHistoryState` (device-lane section 4).
//!
//! The manifest has the shape, under `params`. It is checked in one pass, no value is built, and what passes goes on byte for byte. Fields
//! that the shape does not name are skipped: the desktop judges them, so that the two ends can add some without a new relay.

use crate::{
    envelope::{Key, string},
    error::RpcRefusal,
    limits::{HISTORY_REVISION_MAX, SESSION_ID_BYTES_MAX, SYNC_HISTORY_SESSIONS_MAX},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{fmt, marker::PhantomData};

/// The method whose `params` are typed.
pub const TYPED_METHOD: &str = "session.syncHistoryState";

/// What a refusal says.
pub const SHAPE: &str = "params must be {\"sessions\":[{\"sessionId\",\"historyRevision\"}]} within the limits of the contract";

/// Judges the `params` of a method.
pub(crate) fn judge(method: &str, params: Option<&RawValue>) -> Result<(), RpcRefusal> {
    if method != TYPED_METHOD || params.is_some_and(|params| serde_json::from_str::<SyncHistoryState>(params.get()).is_ok()) {
        return Ok(());
    }
    Err(RpcRefusal::InvalidParams(SHAPE))
}

/// Declares an object that must have these fields, each once and of its type; it keeps none of them.
macro_rules! object {
    ($name:ident { $($key:literal: $type:ty),* $(,)? }) => {
        struct $name;

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;
                impl<'de> Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        let mut seen = [$(($key, false)),*];
                        while let Some(key) = map.next_key_seed(Key(PhantomData))? {
                            match &*key {
                                $($key => {
                                    map.next_value::<$type>()?;
                                })*
                                _ => {
                                    map.next_value::<IgnoredAny>()?;
                                }
                            }
                            for (name, seen) in seen.iter_mut().filter(|(name, _)| *name == &*key) {
                                if std::mem::replace(seen, true) {
                                    return Err(A::Error::duplicate_field(name));
                                }
                            }
                        }
                        match seen.iter().find(|(_, seen)| !seen) {
                            Some((missing, _)) => Err(A::Error::missing_field(missing)),
                            None => Ok($name),
                        }
                    }
                }
                deserializer.deserialize_map(Fields)
            }
        }
    };
}

object!(SyncHistoryState { "sessions": Sessions });
object!(SessionHistory { "sessionId": SessionId, "historyRevision": HistoryRevision });

/// 1 to [`SYNC_HISTORY_SESSIONS_MAX`] entries.
struct Sessions;

impl<'de> Deserialize<'de> for Sessions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Sessions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "1 to {SYNC_HISTORY_SESSIONS_MAX} sessions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Sessions, A::Error> {
                let mut count = 0;
                while entries.next_element::<SessionHistory>()?.is_some() {
                    count += 1;
                    if count > SYNC_HISTORY_SESSIONS_MAX {
                        return Err(A::Error::invalid_length(count, &self));
                    }
                }
                if count == 0 { Err(A::Error::invalid_length(0, &self)) } else { Ok(Sessions) }
            }
        }
        deserializer.deserialize_seq(Entries)
    }
}

/// A string of 1 to [`SESSION_ID_BYTES_MAX`] bytes of decoded UTF-8.
struct SessionId;

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = string(<&RawValue>::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("no string"))?;
        if (1..=SESSION_ID_BYTES_MAX).contains(&text.len()) { Ok(SessionId) } else { Err(D::Error::custom("too short or too long")) }
    }
}

/// A whole number from 0 to [`HISTORY_REVISION_MAX`].
struct HistoryRevision;

impl<'de> Deserialize<'de> for HistoryRevision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if u64::deserialize(deserializer)? <= HISTORY_REVISION_MAX { Ok(HistoryRevision) } else { Err(D::Error::custom("too high")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::MANIFEST;
    use serde_json::{Value, json};

    fn is_taken(params: &str) -> bool {
        let raw: &RawValue = serde_json::from_str(params).unwrap();
        let judged = judge(TYPED_METHOD, Some(raw));
        assert!(judged.is_ok() || judged == Err(RpcRefusal::InvalidParams(SHAPE)));
        judged.is_ok()
    }

    fn one(entry: &str) -> String {
        format!("{{\"sessions\":[{entry}]}}")
    }

    fn entries(count: usize) -> String {
        let entry = r#"{"sessionId":"s","historyRevision":1}"#;
        one(&vec![entry; count].join(","))
    }

    #[test]
    fn the_shape_has_edges() {
        let id = |text: &str| one(&format!("{{\"sessionId\":{text},\"historyRevision\":0}}"));
        let revision = |text: &str| one(&format!("{{\"historyRevision\":{text},\"sessionId\":\"s\"}}"));
        for (params, taken) in [
            (entries(0), false),
            (entries(1), true),
            (entries(SYNC_HISTORY_SESSIONS_MAX), true),
            (entries(SYNC_HISTORY_SESSIONS_MAX + 1), false),
            (id("\"\""), false),
            (id(r#""\u0061\\""#), true),
            (id(&format!("\"{}\"", "é".repeat(SESSION_ID_BYTES_MAX / 2))), true),
            (id(&format!("\"{}a\"", "é".repeat(SESSION_ID_BYTES_MAX / 2))), false),
            (id(&format!("\"{}\"", r"\u0061".repeat(SESSION_ID_BYTES_MAX))), true),
            (id(r#""\ud800""#), false),
            (id("1"), false),
            (id("null"), false),
            (revision("0"), true),
            (revision("9007199254740991"), true),
            (revision("9007199254740992"), false),
            (revision("18446744073709551616"), false),
            (revision("-1"), false),
            (revision("-0"), false),
            (revision("1.0"), false),
            (revision("1e2"), false),
            (revision("\"1\""), false),
            (revision("null"), false),
        ] {
            assert_eq!(is_taken(&params), taken, "{params}");
        }
    }

    #[test]
    fn what_is_no_object_with_its_fields_once_each_is_refused() {
        for params in [
            "null",
            "1",
            "\"sessions\"",
            "[]",
            "{}",
            r#"[[{"sessionId":"s","historyRevision":1}]]"#,
            r#"{"sessions":null}"#,
            r#"{"sessions":{"sessionId":"s","historyRevision":1}}"#,
            r#"{"sessions":[["s",1]]}"#,
            r#"{"sessions":[{"sessionId":"s","historyRevision":1},null]}"#,
            r#"{"sessions":[{"sessionId":"s","sessionId":"s","historyRevision":1}]}"#,
            r#"{"sessions":[{"sessionId":"s","historyRevision":1,"\u0068istoryRevision":1}]}"#,
            r#"{"sessions":[{"sessionId":"s","historyRevision":1}],"sessions":[{"sessionId":"s","historyRevision":1}]}"#,
        ] {
            assert!(!is_taken(params), "{params}");
        }
        assert_eq!(judge(TYPED_METHOD, None), Err(RpcRefusal::InvalidParams(SHAPE)), "and none at all");
    }

    #[test]
    fn other_fields_and_other_methods_are_not_read() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for value in ["null", "\"\\ud800\"", "1E400", r#"{"a":1,"a":2}"#, deep.as_str()] {
            let entry = format!("{{\"sessionId\":\"s\",\"more\":{value},\"historyRevision\":1}}");
            assert!(is_taken(&format!("{{\"more\":{value},\"sessions\":[{entry}],\"more\":1}}")), "{value:.40}");
            let raw: &RawValue = serde_json::from_str(value).unwrap();
            assert_eq!(judge("session.getHistoryState", Some(raw)), Ok(()), "{value:.40}");
        }
        assert_eq!(judge("session.getHistoryState", None), Ok(()));
    }

    /// The manifest writes the shape with the name of a type in each value's place.
    #[test]
    fn the_shape_is_the_manifests() {
        let manifest: Value = serde_json::from_str(MANIFEST).unwrap();
        let shapes = manifest["params"].as_object().unwrap();
        assert_eq!(shapes.keys().collect::<Vec<_>>(), [TYPED_METHOD]);
        let shape = &shapes[TYPED_METHOD];
        assert_eq!(shape, &json!({"sessions": [{"sessionId": "string", "historyRevision": "integer"}]}));
        let sample = shape.to_string().replace("\"integer\"", "7");
        assert!(is_taken(&sample), "{sample}");
    }
}
