//! One thread that owns one SQLite connection and runs what is handed to it, in order.
//!
//! SQLite calls block, and the relay's threads must not: callers put a closure into a bounded queue and await its answer.
//! The thread ends, and is joined, when its [`Worker`] is dropped: after the statement that runs, as all callers have left.

use crate::store::StoreError;
use rusqlite::Connection;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread::JoinHandle,
};
use tokio::sync::oneshot;

/// Closures that may wait for one connection. The persistence actor needs a handful; the rest is for HTTP handlers, each of
/// which waits for its answer.
pub(super) const QUEUE_MAX: usize = 1_024;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

pub(super) struct Worker {
    /// Taken only by `drop`, which lets the thread end.
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts the thread.
    pub(super) fn start(name: &str, connection: Connection) -> std::io::Result<Worker> {
        let (jobs, queue) = sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(move || run(connection, &queue))?;
        Ok(Worker { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `work` on the connection. It is not begun once the caller has gone, and not interrupted when it has begun.
    ///
    /// # Errors
    /// What `work` fails with; `Unavailable` when the queue is full or `work` panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            if !answer.is_closed() {
                // A caller that went away in between does not need the answer.
                let _ = answer.send(work(connection));
            }
        });
        let jobs = self.jobs.as_ref().ok_or_else(|| StoreError::Unavailable("the store is closed".into()))?;
        jobs.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) => StoreError::Unavailable(format!("{QUEUE_MAX} statements are waiting already")),
            TrySendError::Disconnected(_) => StoreError::Unavailable("the storage thread has ended".into()),
        })?;
        answered.await.unwrap_or_else(|_dropped| Err(StoreError::Unavailable("the storage thread panicked in this statement".into())))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("storage thread ended by a panic");
        }
    }
}

fn run(mut connection: Connection, queue: &Receiver<Job>) {
    while let Ok(job) = queue.recv() {
        // A panic is one statement's failure: its caller is answered, as the sender it owned is dropped, and the next goes on.
        if catch_unwind(AssertUnwindSafe(|| job(&mut connection))).is_err() {
            tracing::error!(thread = std::thread::current().name(), "panic in a storage statement");
        }
        // Unwinding drops a transaction, which rolls it back; a connection that is still in one would poison all that follows.
        if !connection.is_autocommit()
            && let Err(error) = connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "transaction left open by a statement could not be rolled back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    fn worker() -> Worker {
        Worker::start("test-store", Connection::open_in_memory().unwrap()).unwrap()
    }

    fn count(connection: &mut Connection) -> Result<i64, StoreError> {
        connection.query_row("SELECT count(*) FROM t", (), |row| row.get(0)).map_err(|error| StoreError::Unavailable(error.to_string()))
    }

    #[tokio::test]
    async fn a_panic_fails_its_own_statement_only_and_rolls_back() {
        let worker = worker();
        worker
            .run(|connection| {
                connection.execute_batch("CREATE TABLE t (x)").unwrap();
                Ok(())
            })
            .await
            .unwrap();
        let failed: Result<(), StoreError> = worker
            .run(|connection| {
                connection.execute_batch("BEGIN; INSERT INTO t VALUES (1)").unwrap();
                panic!("on purpose")
            })
            .await;
        assert_eq!(failed, Err(StoreError::Unavailable("the storage thread panicked in this statement".into())));
        assert_eq!(worker.run(count).await, Ok(0));
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_does_not_wait() {
        let worker = worker();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (begun, started) = oneshot::channel();
        let mut blocked = std::pin::pin!(worker.run(move |_connection| {
            begun.send(()).unwrap();
            released.recv().unwrap();
            Ok(())
        }));
        tokio::select! {
            biased;
            _ = &mut blocked => panic!("it waits for the release"),
            _ = started => {}
        }
        let waiting: Vec<_> = (0..QUEUE_MAX).map(|_| Box::pin(worker.run(|_connection| Ok(())))).collect();
        let mut waiting: Vec<_> = waiting.into_iter().map(polled_once).collect();
        assert!(waiting.iter_mut().all(|(_future, answer)| answer.is_none()));
        assert_eq!(
            worker.run(|_connection| Ok(())).await,
            Err(StoreError::Unavailable(format!("{QUEUE_MAX} statements are waiting already")))
        );
        release.send(()).unwrap();
        assert_eq!(blocked.await, Ok(()));
        for (future, _answer) in waiting {
            assert_eq!(future.await, Ok(()));
        }
    }

    #[tokio::test]
    async fn a_statement_whose_caller_left_is_not_begun() {
        let worker = worker();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let insert = |value: i64| {
            move |connection: &mut Connection| {
                connection.execute("INSERT INTO t VALUES (?1)", [value]).unwrap();
                Ok(())
            }
        };
        let (blocked, _) = polled_once(Box::pin(worker.run(move |connection| {
            released.recv().unwrap();
            connection.execute_batch("CREATE TABLE t (x)").unwrap();
            Ok(())
        })));
        let (left, _) = polled_once(Box::pin(worker.run(insert(1))));
        drop(left);
        let (waiting, _) = polled_once(Box::pin(worker.run(insert(2))));
        release.send(()).unwrap();
        assert_eq!(blocked.await, Ok(()));
        assert_eq!(waiting.await, Ok(()));
        assert_eq!(worker.run(count).await, Ok(1));
    }

    #[tokio::test]
    async fn drop_waits_for_the_statement_that_runs() {
        let worker = worker();
        let done = Arc::new(AtomicBool::new(false));
        let (begun, started) = oneshot::channel();
        let mut running = Box::pin(worker.run({
            let done = Arc::clone(&done);
            move |connection| {
                begun.send(()).unwrap();
                let rows = "WITH RECURSIVE n (x) AS (VALUES (1) UNION ALL SELECT x + 1 FROM n WHERE x < 300000) SELECT count(*) FROM n";
                let counted: i64 = connection.query_row(rows, (), |row| row.get(0)).unwrap();
                done.store(counted == 300_000, Ordering::SeqCst);
                Ok(())
            }
        }));
        tokio::select! {
            biased;
            _ = &mut running => panic!("it cannot be done yet"),
            _ = started => {}
        }
        drop(running);
        drop(worker);
        assert!(done.load(Ordering::SeqCst));
    }

    /// Polls once, which puts the closure into the queue.
    fn polled_once<F: Future + Unpin>(mut future: F) -> (F, Option<F::Output>) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::Pin::new(&mut future).poll(&mut context) {
            std::task::Poll::Ready(answer) => (future, Some(answer)),
            std::task::Poll::Pending => (future, None),
        }
    }
}
