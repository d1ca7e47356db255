//! The manifest as this build would write it, so that a copy of it can be compared with what the relay does.

use super::{MANIFEST, PendingClass, methods};
use crate::{
    desktop_error::DesktopError,
    error::RpcRefusal,
    identity::{Scope, Scopes},
    limits,
};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// How each agent's timelines are stored: `storageFormat` of a load. Device-lane section 10; the relay carries the value unread.
const TIMELINE_STORAGE_FORMATS: [(&str, &str); 2] = [("codex", "indexed"), ("claude", "native")];

/// The manifest of this build. What the relay enforces comes from its code, section by section; its methods, and what only desktops and
/// phones enforce, are those that are compiled in.
pub fn own() -> Value {
    let mut own: Value = serde_json::from_str(MANIFEST).unwrap_or_default();
    let names =
        |wanted: fn(&super::Method) -> bool| methods().filter(|method| wanted(method)).map(|method| method.name).collect::<Vec<_>>();
    let mut by_namespace = Map::new();
    for method in methods() {
        let (namespace, _) = method.name.split_once('.').unwrap_or_default();
        let listed = by_namespace.entry(namespace).or_insert_with(|| json!([]));
        listed.as_array_mut().into_iter().for_each(|listed| listed.push(method.name.into()));
    }
    own["methods"] = by_namespace.into();
    own["mutationsRequiringIdempotency"] = json!(names(|method| method.mutation));
    own["heavyGroup"] = json!(names(|method| method.heavy));
    own["scopes"] = scopes();
    own["deadlinesMs"]["relayPending"] = pending();
    own["limits"]["relay"] = relay_limits();
    own["errors"]["relay"] = RpcRefusal::ALL.iter().map(|refusal| (refusal.name().to_owned(), json!(refusal.code()))).collect();
    own["errors"]["desktop"] = DesktopError::ALL.iter().map(|error| (error.name().to_owned(), json!(error.code()))).collect();
    own["timelineStorageFormat"]["byAgent"] =
        TIMELINE_STORAGE_FORMATS.iter().map(|(agent, format)| ((*agent).to_owned(), json!(format))).collect();
    own
}

/// Of a method that only reads, and of one that changes.
fn scopes() -> Value {
    let of = |mutation: bool| methods().find(|method| method.mutation == mutation).map(super::Method::scopes);
    json!({ "connect": Scopes::NONE.with(Scope::Rpc), "read": of(false), "mutation": of(true) })
}

fn pending() -> Value {
    let milliseconds = |life: Duration| u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
    let by_method: Map<String, Value> = methods()
        .filter_map(|method| {
            let life = match method.pending {
                PendingClass::Default => return None,
                PendingClass::Load => limits::PENDING_LOAD,
                PendingClass::Outbox => limits::PENDING_OUTBOX,
            };
            Some((method.name.to_owned(), milliseconds(life).into()))
        })
        .collect();
    json!({ "default": milliseconds(limits::PENDING_DEFAULT), "byMethod": by_method })
}

fn relay_limits() -> Value {
    json!({
        "frameBytes": limits::MESSAGE_BYTES_MAX,
        "envelopeBytes": limits::ENVELOPE_BYTES_MAX,
        "unregisteredFrameBytes": limits::UNREGISTERED_MESSAGE_BYTES_MAX,
        "fragments": limits::FRAGMENTS_MAX,
        "rpcIdBytes": limits::RPC_ID_BYTES_MAX,
        "sessionIdBytes": limits::SESSION_ID_BYTES_MAX,
        "syncHistorySessions": limits::SYNC_HISTORY_SESSIONS_MAX,
        "historyRevision": limits::HISTORY_REVISION_MAX,
        "pending": {
            "process": limits::PENDING_PER_PROCESS_MAX,
            "user": limits::PENDING_PER_USER_MAX,
            "desktop": limits::PENDING_PER_DESKTOP_MAX,
            "client": limits::PENDING_PER_CLIENT_MAX,
        },
        "rate": { "burst": limits::RATE_BURST, "perSecond": limits::RATE_PER_SECOND },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn manifest() -> Value {
        serde_json::from_str(MANIFEST).unwrap()
    }

    /// Lists of names in one order: which one a manifest has means nothing.
    fn sorted(mut value: Value) -> Value {
        match &mut value {
            Value::Array(items) => items.sort_by_key(ToString::to_string),
            Value::Object(fields) => fields.values_mut().for_each(|field| *field = sorted(field.take())),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (),
        }
        value
    }

    #[test]
    fn the_manifest_is_what_this_build_would_write() {
        let (own, manifest) = (sorted(own()), sorted(manifest()));
        for (section, value) in manifest.as_object().unwrap() {
            assert_eq!(own[section], *value, "{section}");
        }
        assert_eq!(own, manifest);
    }

    #[test]
    fn a_number_has_one_meaning_on_both_sides() {
        let errors: BTreeMap<String, BTreeMap<String, i64>> = serde_json::from_value(manifest()["errors"].clone()).unwrap();
        assert_eq!(errors["relay"].len(), RpcRefusal::ALL.len());
        let (mut meanings, mut numbers) = (BTreeMap::new(), BTreeMap::new());
        for (meaning, number) in errors.values().flatten() {
            assert_eq!(meanings.entry(number).or_insert(meaning), &meaning, "{number}");
            assert_eq!(numbers.entry(meaning).or_insert(number), &number, "{meaning}");
        }
        for side in errors.values() {
            assert_eq!(side.values().collect::<std::collections::BTreeSet<_>>().len(), side.len(), "{side:?}");
        }
    }

    #[test]
    fn agents_store_their_timelines_as_the_manifest_pins() {
        assert_eq!(manifest()["timelineStorageFormat"], json!({ "byAgent": { "codex": "indexed", "claude": "native" } }));
    }
}
