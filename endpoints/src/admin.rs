//! The admin listener's calls: how the process is, what it logs, to have it leave; and which client versions may be used.

pub use crate::api::ApiError;
use crate::{address::RelayAddress, api::Api};
use hyper::Method;
use relay_protocol::{
    compatibility::{RuleId, RuleSpec},
    id::DeviceId,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{fmt, time::Duration};

/// The last phase of a drain.
const DRAINED: &str = "drained";

/// How far a process is with leaving. Fields that a newer relay adds are skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainProgress {
    /// `serving`, `draining`, `closing` or `drained`.
    pub phase: String,
    /// Registrations that are being decided and messages on their way; once the drain has begun, those that were there by then.
    pub in_flight: u64,
    /// Open sockets.
    pub sockets_left: u64,
    /// Since the drain began, in milliseconds.
    pub elapsed_ms: u64,
}

impl DrainProgress {
    /// That of a process which has left nothing behind, this long after its drain began.
    pub fn ended(elapsed: Duration) -> Self {
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        DrainProgress { phase: DRAINED.to_owned(), in_flight: 0, sockets_left: 0, elapsed_ms }
    }

    /// Whether nothing is left to wait for.
    pub fn is_drained(&self) -> bool {
        self.phase == DRAINED
    }
}

impl fmt::Display for DrainProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DrainProgress { phase, in_flight, sockets_left, elapsed_ms } = self;
        let (seconds, tenths) = (elapsed_ms / 1_000, elapsed_ms % 1_000 / 100);
        write!(f, "{phase}: {in_flight} in flight, {sockets_left} sockets left, {seconds}.{tenths} s")
    }
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFilter {
    /// A level, or levels by target such as `info,relay_actors=debug`, as it was given.
    pub filter: String,
}

/// A stored compatibility rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompatibilityRule {
    /// Names it.
    pub id: RuleId,
    /// What it says.
    #[serde(flatten)]
    pub rule: RuleSpec,
    /// When it was added, RFC 3339.
    pub created_at: String,
}

/// What a provider said to a test push.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushVerdict {
    /// `apns` or `fcm`.
    pub provider: String,
    /// `sent`, `tokenDead`, `refused` or `retry`.
    pub verdict: String,
    /// The push's name at the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Why the provider did not take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A client of the admin listener.
#[derive(Clone)]
pub struct Admin {
    api: Api,
}

impl Admin {
    /// A client; nothing is sent yet.
    ///
    /// # Errors
    /// The system's HTTP client cannot be set up.
    pub fn new(address: RelayAddress, token: String) -> Result<Self, ApiError> {
        Ok(Admin { api: Api::new(address, token)? })
    }

    /// Has the process leave, and end once it is drained if so asked. Asking again changes nothing and tells how far it is.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn drain(&self, exit_after_drain: bool) -> Result<DrainProgress, ApiError> {
        self.api.json(Method::POST, "/admin/drain", Some(&json!({"exitAfterDrain": exit_after_drain}))).await
    }

    /// What the process tells of itself.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn status(&self) -> Result<Value, ApiError> {
        self.api.json(Method::GET, "/admin/status", None::<&()>).await
    }

    /// The filter of its log lines.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn log_filter(&self) -> Result<LogFilter, ApiError> {
        self.api.json(Method::GET, "/admin/log", None::<&()>).await
    }

    /// Puts another filter in its place until the process ends, and answers it.
    ///
    /// # Errors
    /// [`ApiError`]; one that does not parse is refused and changes nothing.
    pub async fn replace_log_filter(&self, filter: &LogFilter) -> Result<LogFilter, ApiError> {
        self.api.json(Method::PUT, "/admin/log", Some(filter)).await
    }

    /// Sends one alert to this phone, and says what its provider said.
    ///
    /// # Errors
    /// [`ApiError`]; among them that the phone has no push token, and that the relay is not set up for its provider.
    pub async fn test_push(&self, device: DeviceId) -> Result<PushVerdict, ApiError> {
        self.api.json(Method::POST, "/admin/push/test", Some(&json!({"deviceId": device}))).await
    }

    /// The compatibility rules, by id.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn compatibility_rules(&self) -> Result<Vec<CompatibilityRule>, ApiError> {
        #[derive(Deserialize)]
        struct List {
            rules: Vec<CompatibilityRule>,
        }
        let list: List = self.api.json(Method::GET, "/admin/compat", None::<&()>).await?;
        Ok(list.rules)
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn add_compatibility_rule(&self, rule: &RuleSpec) -> Result<CompatibilityRule, ApiError> {
        self.api.json(Method::POST, "/admin/compat", Some(rule)).await
    }

    /// Removes a rule.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn remove_compatibility_rule(&self, id: RuleId) -> Result<(), ApiError> {
        self.api.done(Method::DELETE, &format!("/admin/compat/{id}"), None::<&()>).await
    }
}
