//! Why a handler has no result.

use crate::{desktop::BUSY, frame::RpcError};
use relay_protocol::desktop_error::DesktopError;
use serde::Serialize;
use serde_json::{Map, Value, value::to_raw_value};
use std::fmt;

/// An error that a handler answers with.
#[derive(Clone, Debug, PartialEq)]
pub struct HandlerError {
    /// What it means.
    pub kind: DesktopError,
    /// For people.
    pub message: String,
    /// That nothing has run, and the same may be sent again: `data.retryable`.
    pub retryable: bool,
    /// More keys of `data`.
    pub data: Map<String, Value>,
}

impl HandlerError {
    /// An error without further data; retryable as its meaning is.
    pub fn new(kind: DesktopError, message: impl Into<String>) -> Self {
        HandlerError { kind, message: message.into(), retryable: kind.is_retryable(), data: Map::new() }
    }

    /// No permit in time. The seed's text; nothing has run, and yet the seed does not flag it.
    pub fn busy() -> Self {
        HandlerError::new(DesktopError::Internal, BUSY)
    }

    /// The dispatch limit has passed. The seed's text.
    pub fn timed_out() -> Self {
        HandlerError::new(DesktopError::Internal, "Desktop request timed out.")
    }

    /// A result or progress has a field in snake_case. The phone is not told which: that is what must not leak.
    pub fn snake_case() -> Self {
        HandlerError::new(DesktopError::Validation, "The result has a field in snake_case.")
    }

    /// Flags it: nothing has run, and the same may be sent again.
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Adds a key to `data`.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.data.insert(key.to_owned(), value.into());
        self
    }

    /// As it goes onto the wire. An internal error without data has none there either: the seed's two texts are plain.
    pub fn to_rpc(&self) -> RpcError {
        #[derive(Serialize)]
        struct Wire<'a> {
            code: i32,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            data: Option<Map<String, Value>>,
        }
        let is_plain = self.kind == DesktopError::Internal && !self.retryable && self.data.is_empty();
        let data = (!is_plain).then(|| {
            let mut data = self.data.clone();
            data.insert("retryable".to_owned(), self.retryable.into());
            data
        });
        let wire = Wire { code: self.kind.code(), message: &self.message, data };
        RpcError::from_raw(to_raw_value(&wire).expect("numbers, strings and JSON values serialize"))
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.code(), self.message)
    }
}

impl std::error::Error for HandlerError {}
