//! Work that goes on when its request's time is over: tasks of their own, with an owner and a bound.

use super::{HandlerError, counters::Counters};
use futures_util::FutureExt;
use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
};
use tracing::Instrument;

/// Detached tasks at a time. As many as mutations run at a time in the seed's registry of keys.
pub const DETACHED_MAX: usize = 64;

/// The detached tasks of a router. They end when the router and every holder of this are gone.
#[derive(Default)]
pub struct Detached {
    tasks: Mutex<JoinSet<()>>,
    running: Arc<watch::Sender<usize>>,
}

/// A task counts for as long as it holds this.
struct Running(Arc<watch::Sender<usize>>);

impl Detached {
    /// Waits until none runs. A desktop that stops may give them this time before the router's end takes them along.
    pub async fn finished(&self) {
        // The sender is ours.
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }

    /// How many run.
    pub fn running(&self) -> usize {
        *self.running.borrow()
    }

    /// Starts one; its result comes through the receiver, or nothing if it panics.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        method: &'static str,
        counters: Arc<Counters>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, HandlerError> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // What ended has told its outcome already.
        while tasks.try_join_next().is_some() {}
        if self.running() >= DETACHED_MAX {
            counters.busy.add_one();
            return Err(HandlerError::busy().retryable());
        }
        let (sender, receiver) = oneshot::channel();
        let running = Running::new(&self.running);
        let watched = async move {
            let _running = running;
            match AssertUnwindSafe(work).catch_unwind().await {
                // Whoever waited may have been cut off; that is what this task is for.
                Ok(done) => drop(sender.send(done)),
                Err(_panic) => {
                    counters.panicked.add_one();
                    tracing::error!(method, "detached work panicked");
                }
            }
        };
        tasks.spawn(watched.in_current_span());
        Ok(receiver)
    }
}

impl Running {
    fn new(running: &Arc<watch::Sender<usize>>) -> Self {
        running.send_modify(|running| *running += 1);
        Running(Arc::clone(running))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}
