//! What a repeated mutation gets (seed "Two layers protect different operations").
//!
//! | the first copy | a repeat |
//! | --- | --- |
//! | runs in this process | waits for its reply |
//! | has finished | gets the kept reply, until 48 h after that was stored |
//! | failed in a way that is flagged retryable | runs |
//! | was cut off: by the dispatch limit, by the end of its process | busy until 5 min after the claim, then "unknown", and never runs |
//! | was cut off, and its method is replay-safe | runs |
//!
//! `memory` knows the copies that run in this process and the last replies; it is empty after a restart. `durable` has a row for
//! each key. A mutation runs only behind a durable claim, and its reply is told only once that is stored.

mod durable;
mod memory;
#[cfg(test)]
mod tests;

pub use durable::OpenError;

use super::HandlerError;
use crate::{clock, frame::RpcError};
use durable::{Claimed, Durable, Kept};
use memory::{Look, Registry};
use relay_protocol::{
    desktop_error::{DesktopError, ErrorClass},
    id::UserId,
    limits::desktop::KEPT_REPLY_BYTES_MAX,
};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;
use uuid::Uuid;

/// Run again after a first copy that was cut off: each has a record of its own that makes a second run harmless. Seed.
const REPLAY_SAFE: [&str; 4] = [
    "run.chatOutboxSubmit",
    "files.appendChatAttachmentUploadChunk",
    "files.finishChatAttachmentUpload",
    "files.cancelChatAttachmentUpload",
];
/// Gives its claim back when it has finished, since the ledger of the upload knows what was appended. Seed.
const RELEASED_WHEN_FINISHED: &str = "files.appendChatAttachmentUploadChunk";

/// What a phone is answered: a result or an error, byte for byte.
pub type Reply = Result<Box<RawValue>, RpcError>;

/// Epoch milliseconds.
type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

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

/// SHA-256 of the params' text. The text counts, as it does for the relay: the same value spelled otherwise is another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint([u8; 32]);

impl Fingerprint {
    fn of(params: Option<&RawValue>) -> Self {
        // No JSON text is empty, so absent params are none that could be sent.
        Fingerprint(Sha256::digest(params.map_or("", RawValue::get)).into())
    }
}

/// Both layers.
#[derive(Clone)]
pub struct Idempotency {
    shared: Arc<Shared>,
}

struct Shared {
    memory: Mutex<Registry>,
    durable: Durable,
    clock: WallClock,
}

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
pub struct Claim {
    shared: Arc<Shared>,
    scope: Scope,
    fingerprint: Fingerprint,
    /// Tells this claim from an earlier or later one of its scope.
    owner: Uuid,
}

/// A place among those who wait for a running copy.
pub struct Joined {
    reply: watch::Receiver<Option<Reply>>,
}

/// How long a reply is good for.
enum Fate {
    /// Repeats get it.
    Keep,
    /// Repeats get "unknown".
    Unknown,
    /// Repeats run.
    Forget,
}

impl Idempotency {
    /// Opens the file, or makes it, readable for its owner only. Blocks.
    ///
    /// # Errors
    /// The file cannot be used, or a newer version has used it.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_with(path, Arc::new(|| i64::try_from(clock::epoch_ms()).unwrap_or(i64::MAX)))
    }

    /// The same by another clock of epoch milliseconds.
    ///
    /// # Errors
    /// As [`Idempotency::open`].
    pub fn open_with(path: &Path, clock: Arc<dyn Fn() -> i64 + Send + Sync>) -> Result<Self, OpenError> {
        let durable = Durable::open(path)?;
        Ok(Idempotency { shared: Arc::new(Shared { memory: Mutex::default(), durable, clock }) })
    }

    /// Looks in memory, without waiting.
    pub fn admit(&self, scope: Scope, params: Option<&RawValue>) -> Admission {
        let (fingerprint, owner, now) = (Fingerprint::of(params), Uuid::new_v4(), (self.shared.clock)());
        let look = self.shared.memory().look(&scope, fingerprint, owner, now);
        match look {
            Look::Claimed => Admission::Run(Claim { shared: Arc::clone(&self.shared), scope, fingerprint, owner }),
            Look::Running(reply) => Admission::Wait(Joined { reply }),
            Look::Finished(reply) => Admission::Answer(reply),
            Look::OtherParams => Admission::Answer(refused(&conflict())),
            Look::TooManyWaiters => Admission::Answer(refused(&running())),
            Look::TooManyRunning => Admission::Answer(refused(&full("Too many mutations are running; retry the request shortly."))),
        }
    }
}

impl Shared {
    fn memory(&self) -> MutexGuard<'_, Registry> {
        // No code panics while it holds the lock; if some did, the registry would still be whole.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// Claims durably, runs `work` if that allows it, and keeps the reply. Meant to be cut off by a deadline.
    pub async fn execute(self, work: impl Future<Output = Reply> + Send) -> Reply {
        let durable = &self.shared.durable;
        let claimed = durable.claim(self.scope.clone(), self.fingerprint, self.owner, self.is_replay_safe(), (self.shared.clock)()).await;
        let (reply, fate) = match claimed {
            Ok(Claimed::Run) => return self.run(work).await,
            Ok(Claimed::Finished(reply)) => (reply, Fate::Keep),
            Ok(Claimed::Unknown) => (refused(&unknown()), Fate::Keep),
            // The row may change, and only the file knows.
            Ok(Claimed::Running) => (refused(&running()), Fate::Forget),
            Ok(Claimed::OtherParams) => (refused(&conflict()), Fate::Forget),
            Ok(Claimed::TooManyRows) => {
                (refused(&full("This desktop remembers too many mutations; retry the request later.")), Fate::Forget)
            }
            Err(error) => {
                tracing::error!(%error, method = self.scope.method, "a mutation could not be claimed and does not run");
                let error = HandlerError::new(DesktopError::Database, "The desktop's storage failed; nothing was done.").retryable();
                (refused(&error), Fate::Forget)
            }
        };
        self.settle(reply, fate)
    }

    async fn run(self, work: impl Future<Output = Reply> + Send) -> Reply {
        let reply = work.await;
        let fate = fate_of(&reply);
        let kept = match fate {
            _ if self.scope.method == RELEASED_WHEN_FINISHED => None,
            Fate::Keep => Some(Kept::Reply(reply.clone())),
            Fate::Unknown => Some(Kept::Unknown),
            Fate::Forget => Some(Kept::Retryable),
        };
        let released = kept.is_none();
        let stored = self.shared.durable.finish(self.scope.clone(), self.owner, kept, (self.shared.clock)()).await;
        match stored {
            Ok(true) if released => self.settle(reply, Fate::Forget),
            Ok(true) => self.settle(reply, fate),
            failed => {
                match failed {
                    Err(error) => tracing::error!(%error, method = self.scope.method, "the reply of a mutation could not be stored"),
                    Ok(_) => tracing::error!(method = self.scope.method, "the claim of a mutation was lost while it ran"),
                }
                // One that is replay-safe may be sent again and run again.
                let fate = if self.is_replay_safe() { Fate::Forget } else { Fate::Keep };
                self.settle(refused(&unknown()), fate)
            }
        }
    }

    /// Nothing has run: gives the claim back, and the reply to those who wait.
    pub fn abandon(self, reply: Reply) {
        // Whoever gives it back has the reply already.
        let _ = self.settle(reply, Fate::Forget);
    }

    fn is_replay_safe(&self) -> bool {
        REPLAY_SAFE.contains(&self.scope.method)
    }

    /// Gives the reply to those who wait, and to repeats what it is good for.
    fn settle(self, reply: Reply, fate: Fate) -> Reply {
        let kept = match fate {
            Fate::Keep => Some(reply.clone()),
            Fate::Unknown => Some(refused(&unknown())),
            Fate::Forget => None,
        };
        let now = (self.shared.clock)();
        self.shared.memory().settle(&self.scope, self.owner, reply.clone(), kept, now);
        reply
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Does nothing behind a settlement.
        self.shared.memory().forget(&self.scope, self.owner);
    }
}

impl Joined {
    /// The running copy's reply; `None` if that copy was cut off.
    pub async fn reply(mut self) -> Option<Reply> {
        self.reply.wait_for(Option::is_some).await.ok()?.clone()
    }
}

fn fate_of(reply: &Reply) -> Fate {
    match reply {
        Ok(result) if result.get().len() > KEPT_REPLY_BYTES_MAX => Fate::Unknown,
        Ok(_) => Fate::Keep,
        Err(error) if error.retryable => Fate::Forget,
        Err(error) => match DesktopError::of_code(error.code).map_or(ErrorClass::Ambiguous, DesktopError::class) {
            ErrorClass::Retryable => Fate::Forget,
            ErrorClass::Ambiguous => Fate::Unknown,
            ErrorClass::Terminal if error.raw().get().len() > KEPT_REPLY_BYTES_MAX => Fate::Unknown,
            ErrorClass::Terminal => Fate::Keep,
        },
    }
}

fn refused(error: &HandlerError) -> Reply {
    Err(error.to_rpc())
}

fn running() -> HandlerError {
    HandlerError::new(DesktopError::OperationRunning, "A request with this idempotencyKey is running; retry it shortly.")
}

fn conflict() -> HandlerError {
    HandlerError::new(DesktopError::Conflict, "This idempotencyKey was used with other params.").with("reason", "idempotencyKeyReused")
}

fn unknown() -> HandlerError {
    HandlerError::new(DesktopError::OutcomeUnknown, "Whether this request ran is unknown, and it will not run again. Read the state first.")
}

fn full(message: &str) -> HandlerError {
    HandlerError::new(DesktopError::TooManyKeys, message)
}
