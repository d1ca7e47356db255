//! What a handler is called with.

use super::{
    HandlerError,
    counters::Counters,
    detached::Detached,
    snake_case::{self, is_snake_case},
};
use crate::desktop::Replies;
use relay_protocol::{
    contract::Method,
    desktop_error::DesktopError,
    id::UserId,
    identity::{Scope, Scopes},
    limits::{ENVELOPE_BYTES_MAX, MESSAGE_BYTES_MAX, desktop::QUEUE_REPLY},
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::{RawValue, to_raw_value};
use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Weak},
};
use tokio::time::timeout;

/// What a message quotes of a request is cut to this many bytes.
const QUOTED_BYTES_MAX: usize = 200;
/// Largest value of a progress: a frame without what the route, the id and the keys around it may take.
const PROGRESS_BYTES_MAX: usize = MESSAGE_BYTES_MAX - ENVELOPE_BYTES_MAX;

/// A request that has passed the router's checks.
#[derive(Clone)]
pub struct Call {
    /// Its entry in the contract.
    pub method: &'static Method,
    /// The phone's id of the request, decoded: it labels the whole round trip.
    pub id: Arc<str>,
    /// As received.
    pub params: Option<Box<RawValue>>,
    /// The account, which is the desktop's own.
    pub user: UserId,
    /// The phone's route, which is the device of idempotency keys.
    pub device: Arc<str>,
    /// Present for mutations, and only for them: nonblank, at most 256 bytes.
    pub idempotency_key: Option<Arc<str>>,
    /// W3C trace context of the phone.
    pub traceparent: Arc<str>,
    pub(super) replies: Arc<Replies>,
    /// Weak: a detached task may hold a call, and must not keep its own owner alive.
    pub(super) detached: Weak<Detached>,
    pub(super) counters: Arc<Counters>,
}

/// The params of a method that has none: absent or `{}`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

impl Call {
    /// What any request through the relay may do (seed: the permission list is always `rpc`).
    pub const PERMISSIONS: Scopes = Scopes::NONE.with(Scope::Rpc);

    /// The params in the shape of `P`; absent ones count as `{}`. A field that `P` does not know is refused at any depth, whether `P`
    /// says so or not, and so is one in snake_case at the top even if `P` knows it. A `P` of `IgnoredAny` takes any object; a field of
    /// that type counts as unknown.
    ///
    /// # Errors
    /// -32602 with what is wrong.
    pub fn read<P: DeserializeOwned>(&self) -> Result<P, HandlerError> {
        read(self.params.as_deref().map_or("{}", RawValue::get)).map_err(|fault| HandlerError::new(DesktopError::InvalidParams, fault))
    }

    /// Tells the phone how far the method is, while its request is open; afterwards, and when there is no room in time, this does
    /// nothing. A copy of a mutation that waits for the first one is told nothing.
    ///
    /// # Errors
    /// -32044 if the value has a field in snake_case, -32603 if it does not serialize or fit a frame.
    pub async fn progress(&self, value: &impl Serialize) -> Result<(), HandlerError> {
        let internal = |fault: String| HandlerError::new(DesktopError::Internal, fault);
        let value = to_raw_value(value).map_err(|error| internal(error.to_string()))?;
        scan(&value, self.method, &self.counters)?;
        if value.get().len() > PROGRESS_BYTES_MAX {
            return Err(internal("The progress does not fit a frame.".to_owned()));
        }
        match timeout(QUEUE_REPLY, self.replies.progress(&value)).await {
            Ok(Ok(())) => {}
            Ok(Err(gone)) => tracing::debug!(method = self.method.name, %gone, "progress is told to nobody"),
            Err(_elapsed) => tracing::debug!(method = self.method.name, "progress found no room"),
        }
        Ok(())
    }

    /// Runs work that must finish as a task of its own and waits for its result: past the dispatch limit the waiting ends, the work
    /// does not. Call it before anything else has an effect, since there may be no room for another task.
    ///
    /// # Errors
    /// Those of the work; -32603, flagged retryable, when too many such tasks run or the desktop is ending; -32603 if the work panics.
    pub async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, HandlerError>> + Send + 'static,
    ) -> Result<T, HandlerError> {
        let ending = || HandlerError::new(DesktopError::Internal, "The desktop is ending.").retryable();
        let detached = self.detached.upgrade().ok_or_else(ending)?;
        let result = detached.spawn(self.method.name, Arc::clone(&self.counters), work)?;
        drop(detached);
        result.await.unwrap_or_else(|_lost| Err(HandlerError::new(DesktopError::Internal, "The work failed.")))
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("method", &self.method.name)
            .field("id", &self.id)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

/// Judges what is to leave the desktop.
///
/// # Errors
/// -32044; the log names the field.
pub(super) fn scan(value: &RawValue, method: &Method, counters: &Counters) -> Result<(), HandlerError> {
    let Some(field) = snake_case::find(value.get()) else { return Ok(()) };
    counters.snake_case.add_one();
    tracing::error!(method = method.name, field = quoted(&field), "a result has a field in snake_case");
    Err(HandlerError::snake_case())
}

fn read<P: DeserializeOwned>(text: &str) -> Result<P, String> {
    let told = |error: serde_json::Error| quoted(&error.to_string()).to_owned();
    if let Some(field) = serde_json::from_str::<TopFields>(text).map_err(told)?.in_snake_case {
        return Err(format!("field `{}` is in snake_case", quoted(&field)));
    }
    let mut unknown = None;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let params = serde_ignored::deserialize(&mut deserializer, |path| {
        // What else is skipped is skipped because `P` says so.
        if unknown.is_none() && matches!(path, serde_ignored::Path::Map { .. }) {
            unknown = Some(path.to_string());
        }
    });
    let params = params.map_err(told)?;
    match unknown {
        Some(path) => Err(format!("unknown field `{}`", quoted(&path))),
        None => Ok(params),
    }
}

/// The first bytes of a text that came from outside.
fn quoted(text: &str) -> &str {
    &text[..text.floor_char_boundary(QUOTED_BYTES_MAX)]
}

/// The first field in snake_case of an object, not looking into its values; anything else has none.
struct TopFields {
    in_snake_case: Option<String>,
}

impl<'de> Deserialize<'de> for TopFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = TopFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TopFields, A::Error> {
                let mut in_snake_case = None;
                while let Some((key, IgnoredAny)) = map.next_entry::<Cow<'de, str>, IgnoredAny>()? {
                    if in_snake_case.is_none() && is_snake_case(&key) {
                        in_snake_case = Some(key.into_owned());
                    }
                }
                Ok(TopFields { in_snake_case })
            }
        }
        deserializer.deserialize_map(Fields)
    }
}
