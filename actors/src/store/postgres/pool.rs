//! The pool: every call bounded in time, no call on a connection that is known or suspected to be dead.
//!
//! A connection whose statement ran into a time limit, or that broke, is closed and never pooled again. When one breaks, those that
//! wait in the pool since before are suspected too (a server that restarts takes all of them along) and are closed when their turn
//! comes. One that was idle is asked before it is used, which notices a server that vanished without a word. What still breaks in the
//! hands of a call is repeated once, on a fresh connection. That needs no look at whether the statement ran: every statement has the
//! same effect twice as once, and those whose answer says what they changed are told that they are a repeat, so that they answer alike.
//!
//! No call ever holds a connection while it asks for another, so a pool of one cannot wait for itself.

use super::{
    error::{QUERY_CANCELED, describe, ends_connection},
    settings::Settings,
    statements::{Call, Lock},
    tls,
};
use crate::{clock, store::StoreError};
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Metrics, Object, Pool, RecyclingMethod};
use std::{
    io,
    num::NonZero,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{timeout, timeout_at},
};
use tokio_postgres::{NoTls, Row, types::ToSql};

/// The server ends a statement that takes longer.
pub(crate) const STATEMENT_TIMEOUT: Duration = Duration::from_secs(2);
/// A server that has not answered a statement by then will not: its connection is closed. Longer than the server's own limit by
/// what an answer takes, so that its word comes first where it still speaks.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_millis(2_250);
/// A call waits at most so long for a connection, be it another's or a new one: a burst that meets an empty pool waits for the first
/// handshakes, on a machine that is busy with that very burst.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// A call ends within this time, its second attempt included.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_millis(7_250);
/// A TCP connection to the server is there within this time.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection that was not used for this long is asked before it is used.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);
/// What is asked is answered by then: leaves time for a new connection.
const CHECK_TIMEOUT: Duration = Duration::from_millis(500);

const _: () = assert!(STATEMENT_TIMEOUT.as_millis() < ANSWER_TIMEOUT.as_millis());
const _: () = assert!(ACQUIRE_TIMEOUT.as_millis() + ANSWER_TIMEOUT.as_millis() <= CALL_TIMEOUT.as_millis());
const _: () = assert!(CHECK_TIMEOUT.as_millis() < ACQUIRE_TIMEOUT.as_millis());

/// A name that is no account's.
const LOCK_OF_PUSH_TOKENS: &str = "push tokens";
/// Two names that share a number wait for each other, no more.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";

/// Connections with a thread that drives them. Dropping it closes them; statements that run are given up.
pub(super) struct StatementPool {
    connections: Connections,
    /// Turns of calls that take a lock. They may wait for each other while they hold a connection, and leave at least as
    /// many connections to everybody else.
    locking: Arc<Semaphore>,
    runtime: Background,
}

#[derive(Clone)]
pub(super) struct Connections {
    pool: Pool,
    /// Connections that were last handed out before this are not handed out again.
    suspected_before: Arc<Mutex<Instant>>,
}

/// A runtime that may be dropped anywhere.
struct Background(Option<Runtime>);

impl Background {
    fn handle(&self) -> Option<&Handle> {
        self.0.as_ref().map(Runtime::handle)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // An ordinary drop waits for tasks, which async callers must not.
            runtime.shutdown_background();
        }
    }
}

/// Why there is no pool.
#[derive(Debug)]
pub(super) enum PoolError {
    /// Nobody to trust, in words.
    Tls(String),
    /// The thread could not be started.
    Thread(io::Error),
}

impl StatementPool {
    /// Starts the thread; connects to nothing yet.
    pub(super) fn start(settings: &Settings, size: NonZero<u16>) -> Result<StatementPool, PoolError> {
        let config = settings.config.clone();
        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match tls::connector(&settings.tls).map_err(PoolError::Tls)? {
            None => Manager::from_config(config, NoTls, manager_config),
            Some(connector) => Manager::from_config(config, connector, manager_config),
        };
        let suspected_before = Arc::new(Mutex::new(clock::now()));
        let suspicion = Arc::clone(&suspected_before);
        let check = Hook::async_fn(move |client: &mut deadpool_postgres::ClientWrapper, metrics: &Metrics| {
            let suspicion = Arc::clone(&suspicion);
            let used = metrics.recycled.unwrap_or(metrics.created);
            Box::pin(async move {
                if used < *suspicion.lock().unwrap_or_else(PoisonError::into_inner) {
                    return Err(HookError::message("another connection broke since it was used"));
                }
                if clock::now().saturating_duration_since(used) < TRUSTED_IDLE {
                    return Ok(());
                }
                match timeout(CHECK_TIMEOUT, client.simple_query("")).await {
                    Ok(Ok(_answer)) => Ok(()),
                    Ok(Err(_)) | Err(_) => {
                        suspect(&suspicion);
                        Err(HookError::message("it does not answer"))
                    }
                }
            })
        });
        let pool = Pool::builder(manager).max_size(size.get().into()).pre_recycle(check).build();
        let pool = pool.map_err(|error| PoolError::Thread(io::Error::other(error)))?;
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("store-postgres").enable_all().build();
        let runtime = Background(Some(runtime.map_err(PoolError::Thread)?));
        let locking = Arc::new(Semaphore::new(usize::from(size.get() / 2).max(1)));
        Ok(StatementPool { connections: Connections { pool, suspected_before }, locking, runtime })
    }

    /// Runs one statement. A caller that leaves while it waits for a connection takes nothing; once begun, a statement is not
    /// interrupted by that, and its connection stays in order.
    ///
    /// # Errors
    /// `Unavailable`, within [`CALL_TIMEOUT`]; a call that takes a lock may wait for its turn before, for
    /// [`ACQUIRE_TIMEOUT`].
    pub(super) async fn query(&self, call: Call) -> Result<Vec<Row>, StoreError> {
        let connections = self.connections.clone();
        let turn = match call.lock {
            Some(_) => Some(self.turn().await?),
            None => None,
        };
        self.drive(move |caller| async move {
            let _turn = turn;
            connections.run(&call, caller).await
        })
        .await
    }

    async fn turn(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        match timeout(ACQUIRE_TIMEOUT, Arc::clone(&self.locking).acquire_owned()).await {
            Ok(Ok(turn)) => Ok(turn),
            // Nobody closes the semaphore.
            Ok(Err(_)) | Err(_) => Err(StoreError::Unavailable("too many calls wait for locks".into())),
        }
    }

    /// Runs this on the pool's own thread, which is told when the caller has left.
    pub(super) async fn drive<T, F>(&self, work: impl FnOnce(CallerLeft) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let unavailable = |cause: &str| StoreError::Unavailable(cause.into());
        let (stays, left) = oneshot::channel::<()>();
        let handle = self.runtime.handle().ok_or_else(|| unavailable("the store is closed"))?;
        let answer = handle.spawn(work(CallerLeft(left))).await;
        drop(stays);
        answer.unwrap_or_else(|_panic| {
            tracing::error!("panic in a storage statement");
            Err(unavailable("the statement panicked"))
        })
    }

    pub(super) fn connections(&self) -> Connections {
        self.connections.clone()
    }
}

/// Done when the caller has left.
pub(super) struct CallerLeft(oneshot::Receiver<()>);

impl Connections {
    /// A connection that answers, by now or soon after.
    pub(super) async fn acquire(&self) -> Result<Object, deadpool_postgres::PoolError> {
        self.pool.get().await
    }

    async fn run(&self, call: &Call, mut caller: CallerLeft) -> Result<Vec<Row>, StoreError> {
        let begun = tokio::time::Instant::now();
        let deadline = begun + CALL_TIMEOUT;
        let mut may_repeat = true;
        loop {
            let acquired = tokio::select! {
                biased;
                _ = &mut caller.0 => return Err(StoreError::Unavailable("nobody waits for it".into())),
                acquired = timeout_at(deadline.min(tokio::time::Instant::now() + ACQUIRE_TIMEOUT), self.acquire()) => acquired,
            };
            let mut connection = match acquired {
                Ok(Ok(connection)) => connection,
                Ok(Err(deadpool_postgres::PoolError::Backend(error))) => return Err(StoreError::Unavailable(describe(&error))),
                Ok(Err(error)) => return Err(StoreError::Unavailable(error.to_string())),
                Err(_late) => return Err(StoreError::Unavailable("no connection was to be had in time".into())),
            };
            let answer_by = deadline.min(tokio::time::Instant::now() + ANSWER_TIMEOUT);
            let error = match timeout_at(answer_by, execute(&mut connection, call, !may_repeat)).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) => error,
                Err(_late) => {
                    self.give_up(connection);
                    return Err(StoreError::Unavailable("the database did not answer in time".into()));
                }
            };
            if error.code().is_some_and(|code| code.code() == QUERY_CANCELED) {
                drop(Object::take(connection));
            } else if connection.is_closed() || ends_connection(&error) {
                let was_pooled = Object::metrics(&connection).recycle_count > 0;
                tracing::warn!(cause = describe(&error), "database connection lost");
                self.give_up(connection);
                if may_repeat && was_pooled {
                    may_repeat = false;
                    continue;
                }
            }
            return Err(StoreError::Unavailable(describe(&error)));
        }
    }

    /// Closes a connection that broke, and suspects the others.
    fn give_up(&self, connection: Object) {
        suspect(&self.suspected_before);
        drop(Object::take(connection));
    }
}

fn suspect(suspected_before: &Mutex<Instant>) {
    *suspected_before.lock().unwrap_or_else(PoisonError::into_inner) = clock::now();
}

async fn execute(connection: &mut Object, call: &Call, is_repeat: bool) -> Result<Vec<Row>, tokio_postgres::Error> {
    let own = call.parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync));
    let told = call.is_told_of_repeat.then_some(&is_repeat as &(dyn ToSql + Sync));
    let parameters: Vec<&(dyn ToSql + Sync)> = own.chain(told).collect();
    let statement = connection.prepare_cached(call.sql).await?;
    let name = match call.lock {
        None => return connection.query(&statement, &parameters).await,
        Some(Lock::Account(user)) => user.to_string(),
        Some(Lock::PushTokens) => LOCK_OF_PUSH_TOKENS.to_owned(),
    };
    let lock = connection.prepare_cached(LOCK).await?;
    let transaction = connection.transaction().await?;
    transaction.query(&lock, &[&name]).await?;
    let rows = transaction.query(&statement, &parameters).await?;
    transaction.commit().await?;
    Ok(rows)
}
