//! How the demo's methods are written down: most are one look into the database, or one change of it.

use super::{agent::Progress, database::Database, fault::Fault};
use crate::{
    clock,
    desktop::router::{Call, HandlerError, Namespace},
};
use relay_protocol::{contract, desktop_error::DesktopError};
use rusqlite::{Connection, Transaction};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::sync::Arc;

/// What the handlers share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) database: Database,
    pub(super) progress: Arc<Progress>,
}

/// A namespace that is being filled.
pub(super) struct Methods {
    namespace: Namespace,
    shared: Shared,
}

impl Methods {
    pub(super) fn new(name: &'static str, shared: &Shared) -> Self {
        Methods { namespace: Namespace::new(name), shared: shared.clone() }
    }

    /// Answers with what is found.
    pub(super) fn reads<P, R>(self, method: &str, look: fn(&Connection, P) -> Result<R, Fault>) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
    {
        self.on(method, move |_call, params, shared| async move { shared.database.read(move |connection| look(connection, params)).await })
    }

    /// Changes something at a time in epoch milliseconds, and has the agents look whether there is work for them.
    pub(super) fn writes<P, R>(self, method: &str, change: fn(&Transaction<'_>, P, i64) -> Result<R, Fault>) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
    {
        self.on(method, move |_call, params, shared| async move {
            let now = clock::epoch_ms_signed();
            let changed = shared.database.write(move |transaction| change(transaction, params, now)).await?;
            shared.progress.look();
            Ok(changed)
        })
    }

    /// Any other handler.
    pub(super) fn on<P, R, A>(mut self, method: &str, handler: impl Fn(Call, P, Shared) -> A + Send + Sync + 'static) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        R: Serialize + 'static,
        A: Future<Output = Result<R, HandlerError>> + Send + 'static,
    {
        let shared = self.shared.clone();
        self.namespace = self.namespace.on(method, move |call, params: P| handler(call, params, shared.clone()));
        self
    }

    /// The namespace, in which the contract's other methods are answered that this desktop does not have them.
    pub(super) fn finish(self) -> Namespace {
        let Methods { mut namespace, .. } = self;
        let name = namespace.name();
        let missing: Vec<&str> = contract::methods()
            .filter(|method| !namespace.has(method))
            .filter_map(|method| method.name.strip_prefix(name)?.strip_prefix('.'))
            .collect();
        for method in missing {
            namespace = namespace.on(method, |call: Call, _any: Map<String, Value>| async move {
                let message = format!("The demo desktop does not have {}.", call.method.name);
                Err::<(), _>(HandlerError::new(DesktopError::NotImplemented, message))
            });
        }
        namespace
    }
}
