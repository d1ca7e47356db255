//! A desktop's router: namespaces of handlers, and what stands between them and the wire.

mod call;
mod error;
pub mod idempotency;
mod namespace;

pub use call::{Call, NoParams};
pub use error::HandlerError;
pub use namespace::{HandlerResult, Namespace};

use super::{Handler, Replies};
use crate::frame::IncomingRequest;
use relay_protocol::id::UserId;

/// Answers requests by the handlers of its namespaces.
pub struct Router {
    user: UserId,
    namespaces: Vec<Namespace>,
}

impl Router {
    /// A router without namespaces, for the account that the desktop is signed in to.
    pub fn new(user: UserId) -> Self {
        Router { user, namespaces: Vec::new() }
    }

    /// Adds a namespace, in the place of one of the same name.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespaces.retain(|known| known.name() != namespace.name());
        self.namespaces.push(namespace);
        self
    }
}

impl Handler for Router {
    async fn handle(&self, request: IncomingRequest, replies: Replies) {
        let _ = (&self.user, request, replies);
    }
}
