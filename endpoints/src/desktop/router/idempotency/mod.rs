//! What a repeated mutation gets.

use crate::frame::RpcError;
use relay_protocol::{contract::Method, id::UserId};
use serde_json::value::RawValue;
use std::sync::Arc;

/// What a phone is answered: a result or an error, byte for byte.
pub type Reply = Result<Box<RawValue>, RpcError>;

/// What makes a claim: the same key from another phone or for another method is a different one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// The account.
    pub user: UserId,
    /// The phone's whole route.
    pub device: Arc<str>,
    /// Its entry's name in the contract.
    pub method: &'static str,
    /// As the phone sent it.
    pub key: Arc<str>,
}

/// Both layers.
pub struct Idempotency {}

/// What a mutation may do.
pub enum Admission {
    /// It is the first copy, or may run again.
    Run(Claim),
    /// A copy of it is running.
    Wait(Joined),
    /// It is answered at once.
    Answer(Reply),
}

/// The right to run. Dropping it forgets the claim in memory; what was durably claimed stays running.
pub struct Claim {}

/// A place among those who wait for a running copy.
pub struct Joined {}

impl Idempotency {
    /// Looks in memory, without waiting.
    pub fn admit(&self, scope: Scope, params: Option<&RawValue>, method: &'static Method) -> Admission {
        let _ = (scope, params, method);
        Admission::Run(Claim {})
    }
}

impl Claim {
    /// Claims durably, runs `work` if that allows it, and keeps the reply. Meant to be cut off by a deadline.
    pub async fn execute(self, work: impl Future<Output = Reply> + Send) -> Reply {
        work.await
    }

    /// Nothing has run: gives the claim back, and the reply to those who wait.
    pub fn abandon(self, reply: Reply) {
        drop(reply);
    }
}

impl Joined {
    /// The running copy's reply; `None` if that copy was cut off.
    pub async fn reply(self) -> Option<Reply> {
        None
    }
}
