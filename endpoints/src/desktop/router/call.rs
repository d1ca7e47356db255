//! What a handler is called with.

use super::HandlerError;
use relay_protocol::{contract::Method, desktop_error::DesktopError, id::UserId};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::sync::Arc;

/// A request that has passed the router's checks.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its entry in the contract.
    pub method: &'static Method,
    /// As received.
    pub params: Option<Box<RawValue>>,
    /// The account, which is the desktop's own.
    pub user: UserId,
    /// The phone's route, which is the device of idempotency keys.
    pub device: Arc<str>,
    /// Present for mutations: nonblank, at most 256 bytes.
    pub idempotency_key: Option<Arc<str>>,
    /// W3C trace context of the phone.
    pub traceparent: Arc<str>,
}

/// The params of a method that has none: absent or `{}`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

impl Call {
    /// The params in the shape of `P`, which should deny unknown fields; absent ones count as `{}`.
    ///
    /// # Errors
    /// -32602 with what is wrong.
    pub fn read<P: DeserializeOwned>(&self) -> Result<P, HandlerError> {
        let text = self.params.as_deref().map_or("{}", RawValue::get);
        serde_json::from_str(text).map_err(|error| HandlerError::new(DesktopError::InvalidParams, error.to_string()))
    }
}
