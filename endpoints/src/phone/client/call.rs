//! One call, as its program sees it.

use super::{failure::Failure, shell::Command, status::Status};
use crate::{
    frame::Outcome,
    phone::{PROGRESS_MAX, Step},
};
use serde_json::value::RawValue;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

/// An open call. It outlives the link that it was sent on. Dropping it forgets it; the desktop is not told, since nothing on the
/// wire says so.
pub struct Call {
    number: u64,
    progress: mpsc::Receiver<Outcome>,
    outcome: oneshot::Receiver<Result<Box<RawValue>, Failure>>,
    commands: mpsc::UnboundedSender<Command>,
    status: watch::Receiver<Status>,
    _permit: OwnedSemaphorePermit,
}

/// The other end of a [`Call`].
pub(super) struct Reporter {
    progress: mpsc::Sender<Outcome>,
    outcome: oneshot::Sender<Result<Box<RawValue>, Failure>>,
}

impl Call {
    pub(super) fn new(
        number: u64,
        permit: OwnedSemaphorePermit,
        commands: mpsc::UnboundedSender<Command>,
        status: watch::Receiver<Status>,
    ) -> (Self, Reporter) {
        let (progress_sender, progress) = mpsc::channel(PROGRESS_MAX);
        let (outcome_sender, outcome) = oneshot::channel();
        let call = Call { number, progress, outcome, commands, status, _permit: permit };
        (call, Reporter { progress: progress_sender, outcome: outcome_sender })
    }

    /// The next answer: progress in order, then the final one. Must not be called again after a final answer or a failure.
    ///
    /// # Errors
    /// There is no result, and there will be none for this call.
    pub async fn next(&mut self) -> Result<Step, Failure> {
        tokio::select! {
            biased;
            Some(progress) = self.progress.recv() => Ok(Step::Progress(progress)),
            outcome = &mut self.outcome => match outcome {
                Ok(outcome) => outcome.map(Step::Final),
                Err(_gone) => Err(over(&self.status.borrow())),
            },
        }
    }

    /// Waits for the result, skipping progress.
    ///
    /// # Errors
    /// As [`Call::next`].
    pub async fn result(mut self) -> Result<Box<RawValue>, Failure> {
        loop {
            match self.next().await? {
                Step::Progress(_) => {}
                Step::Final(result) => return Ok(result),
            }
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // A client that has ended has forgotten it.
        let _ = self.commands.send(Command::Forget(self.number));
    }
}

impl Reporter {
    pub(super) fn progress(&self, outcome: Outcome) {
        if self.progress.try_send(outcome).is_err() {
            tracing::debug!("progress that nobody looked at is dropped");
        }
    }

    pub(super) fn done(self, outcome: Result<Box<RawValue>, Failure>) {
        // A call that was dropped needs no answer.
        let _ = self.outcome.send(outcome);
    }
}

/// Why a client that is no longer there does nothing.
fn over(status: &Status) -> Failure {
    match status {
        Status::Ended(cause) => Failure::Ended(Arc::clone(cause)),
        Status::Connecting
        | Status::Reconnecting { .. }
        | Status::Verifying
        | Status::DesktopReconnecting
        | Status::DesktopOffline
        | Status::Ready
        | Status::HistoryUnavailable(_)
        | Status::Closed => Failure::Closed,
    }
}
