//! Work that goes on when its request's time is over: tasks of their own, with an owner and a bound.

use super::{HandlerError, counters::Counters};
use futures_util::FutureExt;
use std::{
    future::poll_fn,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::oneshot, task::JoinSet};

/// Detached tasks at a time. As many as mutations run at a time in the seed's registry of keys.
pub const DETACHED_MAX: usize = 64;

/// The detached tasks of a router. They end when the router and every holder of this are gone.
#[derive(Default)]
pub struct Detached {
    tasks: Mutex<JoinSet<()>>,
}

impl Detached {
    /// Waits until none runs. A desktop that stops may give them this time before the router's end takes them along.
    pub async fn finished(&self) {
        while poll_fn(|context| self.tasks().poll_join_next(context)).await.is_some() {}
    }

    /// How many run.
    pub fn running(&self) -> usize {
        let mut tasks = self.tasks();
        reap(&mut tasks);
        tasks.len()
    }

    /// Starts one; its result comes through the receiver, or nothing if it panics.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        method: &'static str,
        counters: Arc<Counters>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, HandlerError> {
        let mut tasks = self.tasks();
        reap(&mut tasks);
        if tasks.len() >= DETACHED_MAX {
            counters.busy.add_one();
            return Err(HandlerError::busy().retryable());
        }
        let (sender, receiver) = oneshot::channel();
        tasks.spawn(async move {
            match AssertUnwindSafe(work).catch_unwind().await {
                // Whoever waited may have been cut off; that is what this task is for.
                Ok(done) => drop(sender.send(done)),
                Err(_panic) => {
                    counters.panicked.add_one();
                    tracing::error!(method, "detached work panicked");
                }
            }
        });
        Ok(receiver)
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What ended has told its outcome already.
fn reap(tasks: &mut JoinSet<()>) {
    while tasks.try_join_next().is_some() {}
}
