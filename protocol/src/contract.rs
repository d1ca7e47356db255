//! The method contract: what `protocol/rpc-contract.v1.json` says, as the relay uses it.
//!
//! The manifest is compiled in and read once; the relay's method list is built from it, so the two cannot differ. A manifest that
//! does not read, names a method twice, or lists a mutation that is no method, fails the first use, and every test.

use crate::{
    identity::{Scope, Scopes},
    limits::desktop::{DISPATCH, DISPATCH_LOAD},
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
    time::Duration,
};

mod own;

pub use own::own;

/// The manifest's text, as `relay contract` and other programs read it.
pub const MANIFEST: &str = include_str!("../rpc-contract.v1.json");

/// One method of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// Full name, like `run.chatLoad`.
    pub name: &'static str,
    /// Whether it changes state: it then needs an `idempotencyKey`, and an API key the scope `write`.
    pub mutation: bool,
    /// Whether it takes one of the desktop's few heavy permits.
    pub heavy: bool,
    /// How long the relay keeps a pending record for it.
    pub pending: PendingClass,
    /// What it is counted under.
    pub class: MethodClass,
}

impl Method {
    /// What an API key must allow: the socket's `rpc`, and `read` or, for a mutation, `write` (device-lane section 1).
    pub fn scopes(&self) -> Scopes {
        Scopes::NONE.with(Scope::Rpc).with(if self.mutation { Scope::Write } else { Scope::Read })
    }

    /// How long a desktop's handler may take.
    pub fn dispatch_limit(&self) -> Duration {
        match self.pending {
            PendingClass::Default | PendingClass::Outbox => DISPATCH,
            PendingClass::Load => DISPATCH_LOAD,
        }
    }
}

/// The lives of pending records; each has a configuration key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingClass {
    /// Any method that the other two do not name.
    Default,
    /// The initial timeline loads.
    Load,
    /// The outbox submit.
    Outbox,
}

/// Methods that are counted together: those of one namespace, and by themselves those whose records live longer, which would hide how
/// long the others take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodClass {
    /// `system.…`
    System,
    /// `session.…`
    Session,
    /// `run.…`, without the next two.
    Run,
    /// `files.…`
    Files,
    /// The initial timeline loads.
    Load,
    /// The outbox submit.
    Outbox,
}

impl MethodClass {
    /// Every variant, in the order of their declaration.
    pub const ALL: [MethodClass; 6] =
        [MethodClass::System, MethodClass::Session, MethodClass::Run, MethodClass::Files, MethodClass::Load, MethodClass::Outbox];

    /// The word for metrics.
    pub fn name(self) -> &'static str {
        match self {
            MethodClass::System => "system",
            MethodClass::Session => "session",
            MethodClass::Run => "run",
            MethodClass::Files => "files",
            MethodClass::Load => "load",
            MethodClass::Outbox => "outbox",
        }
    }

    fn of(namespace: &str, pending: PendingClass) -> Option<Self> {
        let of_namespace = [MethodClass::System, MethodClass::Session, MethodClass::Run, MethodClass::Files];
        match pending {
            PendingClass::Default => of_namespace.into_iter().find(|class| class.name() == namespace),
            PendingClass::Load => Some(MethodClass::Load),
            PendingClass::Outbox => Some(MethodClass::Outbox),
        }
    }
}

/// The method with this full name.
pub fn find(name: &str) -> Option<&'static Method> {
    CONTRACT.methods.get(name)
}

/// Every method, in the manifest's order.
pub fn methods() -> impl Iterator<Item = &'static Method> {
    CONTRACT.order.iter().filter_map(|name| find(name))
}

/// What a phone runs on. Its deadlines differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Platform {
    /// iOS.
    Ios,
    /// Android.
    Android,
    /// Neither, such as a terminal.
    #[default]
    Other,
}

/// How long a phone on this platform waits for an answer to this method.
pub fn phone_deadline(name: &str, platform: Platform) -> Duration {
    let PhoneDeadlines { every, by_platform } = &CONTRACT.manifest.deadlines_ms.phone;
    let of_platform = by_platform.get(&platform).and_then(|by_method| by_method.get(name));
    Duration::from_millis(*of_platform.or_else(|| every.by_method.get(name)).unwrap_or(&every.default))
}

/// The protocol version that this relay speaks, and the oldest that it takes when no rule demands more.
pub fn protocol_versions() -> (&'static str, &'static str) {
    (&CONTRACT.manifest.protocol.current, &CONTRACT.manifest.protocol.minimum)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    protocol: Protocol,
    methods: BTreeMap<String, Vec<String>>,
    mutations_requiring_idempotency: Vec<String>,
    heavy_group: Vec<String>,
    deadlines_ms: Deadlines,
}

#[derive(Deserialize)]
struct Protocol {
    current: String,
    minimum: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Deadlines {
    phone: PhoneDeadlines,
    relay_pending: ByMethod,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PhoneDeadlines {
    #[serde(flatten)]
    every: ByMethod,
    by_platform: BTreeMap<Platform, BTreeMap<String, u64>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ByMethod {
    default: u64,
    by_method: BTreeMap<String, u64>,
}

struct Contract {
    manifest: Manifest,
    order: Vec<&'static str>,
    methods: HashMap<&'static str, Method>,
}

static CONTRACT: LazyLock<Contract> = LazyLock::new(|| match Contract::read(MANIFEST) {
    Ok(contract) => contract,
    Err(fault) => panic!("rpc-contract.v1.json: {fault}"),
});

impl Contract {
    fn read(text: &str) -> Result<Self, String> {
        let manifest: Manifest = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut order = Vec::new();
        let mut methods = HashMap::new();
        for (namespace, names) in &manifest.methods {
            for name in names {
                if !name.strip_prefix(namespace.as_str()).is_some_and(|rest| rest.starts_with('.')) {
                    return Err(format!("{name} stands under {namespace}"));
                }
                // Leaked once for the life of the process: names are compared and logged everywhere.
                let name: &'static str = name.clone().leak();
                let pending = pending_class(name);
                let method = Method {
                    name,
                    mutation: manifest.mutations_requiring_idempotency.iter().any(|mutation| mutation == name),
                    heavy: manifest.heavy_group.iter().any(|heavy| heavy == name),
                    pending,
                    class: MethodClass::of(namespace, pending).ok_or_else(|| format!("{namespace} has no class"))?,
                };
                if methods.insert(name, method).is_some() {
                    return Err(format!("{name} is listed twice"));
                }
                order.push(name);
            }
        }
        let named = manifest.mutations_requiring_idempotency.iter().chain(&manifest.heavy_group);
        let Deadlines { phone, relay_pending } = &manifest.deadlines_ms;
        let timed =
            phone.every.by_method.keys().chain(phone.by_platform.values().flat_map(BTreeMap::keys)).chain(relay_pending.by_method.keys());
        match named.chain(timed).find(|name| !methods.contains_key(name.as_str())) {
            Some(stranger) => Err(format!("{stranger} is no method")),
            None => Ok(Contract { manifest, order, methods }),
        }
    }
}

fn pending_class(name: &str) -> PendingClass {
    match name {
        "run.chatLoad" | "run.chatLoadThread" => PendingClass::Load,
        "run.chatOutboxSubmit" => PendingClass::Outbox,
        _ => PendingClass::Default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_has_74_methods_and_25_mutations() {
        let count = |namespace: &str| CONTRACT.manifest.methods[namespace].len();
        assert_eq!((count("system"), count("session"), count("run"), count("files")), (13, 15, 23, 23));
        assert_eq!(methods().count(), 74);
        assert_eq!(methods().filter(|method| method.mutation).count(), 25);
        assert!(find("session.syncHistoryState").unwrap().mutation);
        assert!(!find("system.ping").unwrap().mutation);
        assert_eq!(find("system.Ping"), None);
    }

    #[test]
    fn methods_are_counted_by_namespace_and_long_ones_by_themselves() {
        for (name, class) in [
            ("system.ping", MethodClass::System),
            ("session.get", MethodClass::Session),
            ("run.cancel", MethodClass::Run),
            ("run.chatLoad", MethodClass::Load),
            ("run.chatLoadThread", MethodClass::Load),
            ("run.chatOutboxSubmit", MethodClass::Outbox),
        ] {
            assert_eq!(find(name).unwrap().class, class, "{name}");
        }
        let count = |class| methods().filter(|method| method.class == class).count();
        assert_eq!(MethodClass::ALL.map(count), [13, 15, 20, 23, 2, 1]);
    }

    #[test]
    fn a_phone_waits_as_long_as_the_manifest_says() {
        for (method, ios, android) in [
            ("run.chatLoad", 115, 115),
            ("run.chatLoadThread", 115, 115),
            ("run.chatLoadPageBefore", 60, 60),
            ("run.chatOutboxSubmit", 20, 60),
            ("run.chatOutboxStopAndSendNow", 60, 60),
            ("system.ping", 60, 60),
        ] {
            let waits = [Platform::Ios, Platform::Android, Platform::Other].map(|platform| phone_deadline(method, platform).as_secs());
            assert_eq!(waits, [ios, android, android], "{method}");
        }
    }

    #[test]
    fn a_desktop_answers_before_the_phone_stops_waiting() {
        use crate::limits::desktop::{PERMIT_WAIT, QUEUE_REPLY};
        for (method, platform) in methods().flat_map(|method| [Platform::Ios, Platform::Android].map(|platform| (method, platform))) {
            // Seed: all but one, which iOS repeats with the same key.
            let stops_first = (method.name, platform) == ("run.chatOutboxSubmit", Platform::Ios);
            let is_answered = PERMIT_WAIT + method.dispatch_limit() + QUEUE_REPLY < phone_deadline(method.name, platform);
            assert_eq!(is_answered, !stops_first, "{} {platform:?}", method.name);
        }
    }

    #[test]
    fn a_broken_manifest_is_named() {
        let broken = |from: &str, to: &str| Contract::read(&MANIFEST.replacen(from, to, 1)).err();
        assert_eq!(broken("\"system.ping\"", "\"system.listModels\"").as_deref(), Some("system.listModels is listed twice"));
        assert_eq!(broken("\"session.listProjects\"", "\"run.listProjects\"").as_deref(), Some("run.listProjects stands under session"));
        assert_eq!(broken("\"run.cancel\"", "\"run.cancelAll\"").as_deref(), Some("run.cancel is no method"));
        let ios = "\"run.chatOutboxSubmit\": 20000";
        assert_eq!(broken(ios, "\"run.chatSubmit\": 20000").as_deref(), Some("run.chatSubmit is no method"));
        assert_eq!(broken("\"files\": [", "\"other\": [\"other.list\"], \"files\": [").as_deref(), Some("other has no class"));
    }
}
