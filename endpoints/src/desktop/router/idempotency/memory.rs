//! The copies of mutations that run in this process, and the replies of the last that finished. Without I/O; time is an argument.

use super::{Fingerprint, Reply, Scope};
use relay_protocol::limits::desktop::{CLAIM_KEPT, CLAIM_WAITERS_MAX, FINISHED_CLAIMS_MAX, RUNNING_CLAIMS_MAX};
use std::collections::{HashMap, VecDeque};
use tokio::sync::watch;
use uuid::Uuid;

/// What is known of a scope.
pub(super) enum Look {
    /// Nothing: it is the asker's now.
    Claimed,
    /// A copy runs, and tells its reply here, or is cut off and drops the other end.
    Running(watch::Receiver<Option<Reply>>),
    /// It has finished with this reply.
    Finished(Reply),
    /// It is running or has finished with other params.
    OtherParams,
    /// As many wait for the running copy as may.
    TooManyWaiters,
    /// As many copies run as may.
    TooManyRunning,
}

#[derive(Default)]
pub(super) struct Registry {
    running: HashMap<Scope, Running>,
    finished: HashMap<Scope, Finished>,
    /// Oldest first. A scope whose owner is no longer that of `finished` was forgotten meanwhile.
    order: VecDeque<(Scope, Uuid)>,
}

struct Running {
    owner: Uuid,
    fingerprint: Fingerprint,
    reply: watch::Sender<Option<Reply>>,
}

struct Finished {
    owner: Uuid,
    fingerprint: Fingerprint,
    reply: Reply,
    /// Epoch milliseconds.
    at: i64,
}

impl Registry {
    /// What is known of a scope now; claims it for `owner` if that is nothing.
    pub(super) fn look(&mut self, scope: &Scope, fingerprint: Fingerprint, owner: Uuid, now: i64) -> Look {
        if let Some(running) = self.running.get(scope) {
            return match () {
                () if running.fingerprint != fingerprint => Look::OtherParams,
                () if running.reply.receiver_count() >= CLAIM_WAITERS_MAX => Look::TooManyWaiters,
                () => Look::Running(running.reply.subscribe()),
            };
        }
        if let Some(finished) = self.finished.get(scope) {
            // By a clock that was set back it would be kept for longer than the file keeps it; then the file is asked.
            let age = u128::try_from(now - finished.at).ok();
            if age.is_some_and(|age| age < CLAIM_KEPT.as_millis()) {
                return if finished.fingerprint == fingerprint { Look::Finished(finished.reply.clone()) } else { Look::OtherParams };
            }
            self.finished.remove(scope);
        }
        if self.running.len() >= RUNNING_CLAIMS_MAX {
            return Look::TooManyRunning;
        }
        self.running.insert(scope.clone(), Running { owner, fingerprint, reply: watch::Sender::new(None) });
        Look::Claimed
    }

    /// The owner's copy has ended with `reply`, which those who wait get; repeats get `kept`, or run.
    pub(super) fn settle(&mut self, scope: &Scope, owner: Uuid, reply: Reply, kept: Option<Reply>, now: i64) {
        let Some(running) = self.take(scope, owner) else { return };
        running.reply.send_replace(Some(reply));
        let Some(kept) = kept else { return };
        self.finished.insert(scope.clone(), Finished { owner, fingerprint: running.fingerprint, reply: kept, at: now });
        self.order.push_back((scope.clone(), owner));
        while self.finished.len() > FINISHED_CLAIMS_MAX || self.order.len() > 2 * FINISHED_CLAIMS_MAX {
            let Some((oldest, owner)) = self.order.pop_front() else { break };
            if self.finished.get(&oldest).is_some_and(|finished| finished.owner == owner) {
                self.finished.remove(&oldest);
            }
        }
    }

    /// The owner's copy was cut off. Those who wait learn it.
    pub(super) fn forget(&mut self, scope: &Scope, owner: Uuid) {
        self.take(scope, owner);
    }

    fn take(&mut self, scope: &Scope, owner: Uuid) -> Option<Running> {
        self.running.get(scope).filter(|running| running.owner == owner)?;
        self.running.remove(scope)
    }
}
