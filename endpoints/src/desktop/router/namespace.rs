//! The handlers of one namespace.

use super::{Call, HandlerError};
use futures_util::future::BoxFuture;
use relay_protocol::{contract, contract::Method, desktop_error::DesktopError};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};
use std::collections::HashMap;

/// What a handler answers.
pub type HandlerResult = Result<Box<RawValue>, HandlerError>;

type MethodHandler = Box<dyn Fn(Call) -> BoxFuture<'static, HandlerResult> + Send + Sync>;

/// The methods of one namespace (`system`, `session`, `run`, `files`) that a desktop answers.
pub struct Namespace {
    name: &'static str,
    methods: HashMap<&'static str, MethodHandler>,
}

impl Namespace {
    /// A namespace without methods: each is answered -32601.
    pub fn new(name: &'static str) -> Self {
        Namespace { name, methods: HashMap::new() }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Answers a method, named as in the contract after the dot. Params are read as [`Call::read`] does. A second handler of a method
    /// takes the first one's place.
    ///
    /// # Panics
    /// If the contract has no such method: the relay would never forward it.
    pub fn on<P, R, F, A>(mut self, method: &str, handler: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        F: Fn(Call, P) -> A + Send + Sync + 'static,
        A: Future<Output = Result<R, HandlerError>> + Send + 'static,
    {
        let full = format!("{}.{method}", self.name);
        let method = contract::find(&full).unwrap_or_else(|| panic!("the contract has no method {full}"));
        let erased: MethodHandler = Box::new(move |call| {
            // Called only for params that could be read.
            let answer = call.read::<P>().map(|params| handler(call, params));
            Box::pin(async move {
                let result = answer?.await?;
                to_raw_value(&result).map_err(|error| HandlerError::new(DesktopError::Internal, error.to_string()))
            })
        });
        self.methods.insert(method.name, erased);
        self
    }

    /// Whether a method has a handler.
    pub fn has(&self, method: &Method) -> bool {
        self.methods.contains_key(method.name)
    }

    /// Starts the handler of a method. A method without one fails here.
    pub fn call(&self, call: Call) -> BoxFuture<'static, HandlerResult> {
        match self.methods.get(call.method.name) {
            Some(handler) => handler(call),
            None => {
                let error = HandlerError::new(DesktopError::MethodNotFound, format!("This desktop has no method {}", call.method.name));
                Box::pin(std::future::ready(Err(error)))
            }
        }
    }
}
