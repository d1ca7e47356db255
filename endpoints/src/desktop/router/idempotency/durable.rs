//! A row for each key, in a SQLite file: what survives the process. One thread owns the connection, since SQLite blocks.
//!
//! Each step is one transaction that takes the file's write lock first, so that two processes on one file never both run one key.

use super::{Fingerprint, Reply, Scope};
use crate::{frame::RpcError, private_file};
use relay_protocol::limits::desktop::{CLAIM_KEPT, CLAIM_LEASE, CLAIM_ROWS_MAX};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use serde_json::value::RawValue;
use std::{fmt, io, path::Path, sync::mpsc, time::Duration};
use tokio::sync::oneshot;
use uuid::Uuid;

/// Rises with each change of the tables.
const VERSION: i64 = 1;
const SCHEMA: &str = "
    CREATE TABLE remote_rpc_idempotency (
        id INTEGER PRIMARY KEY,
        user_id TEXT NOT NULL,
        device TEXT NOT NULL,
        method TEXT NOT NULL,
        idempotency_key TEXT NOT NULL,
        fingerprint BLOB NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('running', 'result', 'error', 'unknown', 'retryable')),
        owner BLOB NOT NULL,
        lease_expires_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        reply TEXT,
        UNIQUE (user_id, device, method, idempotency_key)
    ) STRICT;
    CREATE INDEX remote_rpc_idempotency_expiry ON remote_rpc_idempotency (expires_at);
";
/// How long another process may hold the file's lock.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// Expired rows that one claim removes: more than it adds, and few enough that nobody waits for them.
const PRUNED_AT_ONCE: i64 = 64;
const ROWS_MAX: i64 = CLAIM_ROWS_MAX as i64;

/// Why the file cannot be used.
#[derive(Debug)]
pub enum OpenError {
    /// It cannot be made or opened.
    File(io::Error),
    /// SQLite cannot use it.
    Database(rusqlite::Error),
    /// A newer version has used it, which left this number.
    Newer(i64),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::File(error) => error.fmt(f),
            OpenError::Database(error) => error.fmt(f),
            OpenError::Newer(version) => write!(f, "a newer version has used it: it has version {version}, this program knows {VERSION}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        OpenError::Database(error)
    }
}

/// Why a step failed.
#[derive(Debug)]
pub(super) enum StepError {
    Database(rusqlite::Error),
    /// The thread has ended.
    Ended,
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepError::Database(error) => error.fmt(f),
            StepError::Ended => f.write_str("the thread of the file has ended"),
        }
    }
}

/// What a claim finds.
pub(super) enum Claimed {
    /// It holds the key: run.
    Run,
    /// Somebody else has the key, and may be running.
    Running,
    /// It has finished with this reply, which was stored then (epoch milliseconds).
    Finished(Reply, i64),
    /// Whether it ran is unknown, which was stored then (epoch milliseconds).
    Unknown(i64),
    /// The key was used with other params.
    OtherParams,
    /// There is no room for another key.
    TooManyRows,
}

/// What a finished copy leaves for repeats.
pub(super) enum Kept {
    Reply(Reply),
    Unknown,
    Retryable,
}

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// The file's thread. It ends, behind what it was given, when this is dropped.
pub(super) struct Durable {
    jobs: mpsc::Sender<Job>,
}

impl Durable {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        private_file::ensure(path).map_err(OpenError::File)?;
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(LOCK_WAIT)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // A reply that was told must be there after a power failure too.
        connection.pragma_update(None, "synchronous", "full")?;
        migrate(&mut connection)?;
        // As many wait as there are permits, so the queue needs no bound of its own.
        let (jobs, queue) = mpsc::channel::<Job>();
        let work = move || queue.into_iter().for_each(|job| job(&mut connection));
        std::thread::Builder::new().name("idempotency".to_owned()).spawn(work).map_err(OpenError::File)?;
        Ok(Durable { jobs })
    }

    /// Claims the key for `owner`, if it may run. A caller that leaves before the answer has run nothing, and its claim is taken back.
    pub(super) async fn claim(
        &self,
        scope: Scope,
        fingerprint: Fingerprint,
        owner: Uuid,
        is_replay_safe: bool,
        now: i64,
    ) -> Result<Claimed, StepError> {
        let (answer, answered) = oneshot::channel();
        self.hand_on(move |connection| {
            if answer.is_closed() {
                return;
            }
            let claimed = claim(connection, &scope, fingerprint, owner, is_replay_safe, now);
            let unheard = answer.send(claimed);
            if let Err(Ok(Claimed::Run)) = unheard
                && let Err(error) = finish(connection, &scope, owner, None, now)
            {
                tracing::warn!(%error, "a claim that nobody waited for stays running");
            }
        })?;
        match answered.await {
            Ok(claimed) => claimed.map_err(StepError::Database),
            Err(_dropped) => Err(StepError::Ended),
        }
    }

    /// Stores what the owner's copy leaves, or gives its claim back. False: the claim is no longer its own. Is done whether the caller
    /// stays or not.
    pub(super) async fn finish(&self, scope: Scope, owner: Uuid, kept: Option<Kept>, now: i64) -> Result<bool, StepError> {
        let (answer, answered) = oneshot::channel();
        self.hand_on(move |connection| {
            // Whoever was cut off meanwhile needs no answer.
            let _ = answer.send(finish(connection, &scope, owner, kept.as_ref(), now));
        })?;
        match answered.await {
            Ok(finished) => finished.map_err(StepError::Database),
            Err(_dropped) => Err(StepError::Ended),
        }
    }

    fn hand_on(&self, job: impl FnOnce(&mut Connection) + Send + 'static) -> Result<(), StepError> {
        self.jobs.send(Box::new(job)).map_err(|_ended| StepError::Ended)
    }
}

fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match version {
        0 => {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
        }
        VERSION => {}
        newer => return Err(OpenError::Newer(newer)),
    }
    Ok(transaction.commit()?)
}

/// A row that has been found.
struct Row {
    id: i64,
    fingerprint: Vec<u8>,
    state: String,
    lease_expires_at: i64,
    expires_at: i64,
    reply: Option<String>,
}

fn claim(
    connection: &mut Connection,
    scope: &Scope,
    fingerprint: Fingerprint,
    owner: Uuid,
    is_replay_safe: bool,
    now: i64,
) -> rusqlite::Result<Claimed> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let claimed = decide(&transaction, scope, fingerprint, owner, is_replay_safe, now)?;
    transaction.commit()?;
    Ok(claimed)
}

fn decide(
    transaction: &Transaction<'_>,
    scope: &Scope,
    fingerprint: Fingerprint,
    owner: Uuid,
    is_replay_safe: bool,
    now: i64,
) -> rusqlite::Result<Claimed> {
    let (lease, kept) = (milliseconds(CLAIM_LEASE), milliseconds(CLAIM_KEPT));
    prune(transaction, scope, now)?;
    let Some(row) = find(transaction, scope)? else {
        let count = "SELECT count(*) FROM remote_rpc_idempotency WHERE expires_at > ?1";
        let rows: i64 = transaction.prepare_cached(count)?.query_row([now], |row| row.get(0))?;
        if rows >= ROWS_MAX {
            return Ok(Claimed::TooManyRows);
        }
        let Scope { user, device, method, key } = scope;
        transaction
            .prepare_cached(
                "INSERT INTO remote_rpc_idempotency
                     (user_id, device, method, idempotency_key, fingerprint, state, owner, lease_expires_at, expires_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, 'running', ?6, ?7, ?8)",
            )?
            .execute(params![user.to_string(), device, method, key, fingerprint.0, owner.as_bytes(), now + lease, now + lease + kept])?;
        return Ok(Claimed::Run);
    };
    if row.fingerprint != fingerprint.0 {
        return Ok(Claimed::OtherParams);
    }
    let stored_at = row.expires_at - kept;
    match (row.state.as_str(), row.reply) {
        ("result", Some(reply)) => Ok(match RawValue::from_string(reply) {
            Ok(result) => Claimed::Finished(Ok(result), stored_at),
            Err(_damaged) => Claimed::Unknown(stored_at),
        }),
        ("error", Some(reply)) => Ok(match RawValue::from_string(reply) {
            Ok(error) => Claimed::Finished(Err(RpcError::from_raw(error)), stored_at),
            Err(_damaged) => Claimed::Unknown(stored_at),
        }),
        ("running", _) if !is_replay_safe && now < row.lease_expires_at => Ok(Claimed::Running),
        ("running", _) if !is_replay_safe => {
            transaction.execute(
                "UPDATE remote_rpc_idempotency SET state = 'unknown', expires_at = ?2 WHERE id = ?1",
                params![row.id, now + kept],
            )?;
            Ok(Claimed::Unknown(now))
        }
        ("running" | "retryable", _) => {
            transaction.execute(
                "UPDATE remote_rpc_idempotency SET state = 'running', owner = ?2, lease_expires_at = ?3, expires_at = ?4 WHERE id = ?1",
                params![row.id, owner.as_bytes(), now + lease, now + lease + kept],
            )?;
            Ok(Claimed::Run)
        }
        _ => Ok(Claimed::Unknown(stored_at)),
    }
}

/// Removes what has expired, of this key and some of all, and brings back a lease that a clock that was wrong put too far into the
/// future: none ends later than one that begins now, and what it ends in never runs. A reply stays until its time by any clock, as one
/// that is forgotten early runs twice.
fn prune(transaction: &Transaction<'_>, scope: &Scope, now: i64) -> rusqlite::Result<()> {
    let lease = milliseconds(CLAIM_LEASE);
    let Scope { user, device, method, key } = scope;
    transaction
        .prepare_cached(
            "DELETE FROM remote_rpc_idempotency
             WHERE user_id = ?1 AND device = ?2 AND method = ?3 AND idempotency_key = ?4 AND expires_at <= ?5",
        )?
        .execute(params![user.to_string(), device, method, key, now])?;
    transaction
        .prepare_cached(
            "DELETE FROM remote_rpc_idempotency
             WHERE id IN (SELECT id FROM remote_rpc_idempotency WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)",
        )?
        .execute(params![now, PRUNED_AT_ONCE])?;
    transaction
        .prepare_cached(
            "UPDATE remote_rpc_idempotency SET lease_expires_at = ?5
             WHERE user_id = ?1 AND device = ?2 AND method = ?3 AND idempotency_key = ?4 AND state = 'running' AND lease_expires_at > ?5",
        )?
        .execute(params![user.to_string(), device, method, key, now + lease])?;
    Ok(())
}

fn find(transaction: &Transaction<'_>, scope: &Scope) -> rusqlite::Result<Option<Row>> {
    let Scope { user, device, method, key } = scope;
    transaction
        .prepare_cached(
            "SELECT id, fingerprint, state, lease_expires_at, expires_at, reply FROM remote_rpc_idempotency
             WHERE user_id = ?1 AND device = ?2 AND method = ?3 AND idempotency_key = ?4",
        )?
        .query_row(params![user.to_string(), device, method, key], |row| {
            Ok(Row {
                id: row.get(0)?,
                fingerprint: row.get(1)?,
                state: row.get(2)?,
                lease_expires_at: row.get(3)?,
                expires_at: row.get(4)?,
                reply: row.get(5)?,
            })
        })
        .optional()
}

/// Without anything to keep the row goes. False: the owner has no running claim.
fn finish(connection: &mut Connection, scope: &Scope, owner: Uuid, kept: Option<&Kept>, now: i64) -> rusqlite::Result<bool> {
    let Scope { user, device, method, key } = scope;
    let (user, owner) = (user.to_string(), owner.as_bytes());
    let changed = match kept {
        None => connection
            .prepare_cached(
                "DELETE FROM remote_rpc_idempotency
                 WHERE user_id = ?1 AND device = ?2 AND method = ?3 AND idempotency_key = ?4 AND owner = ?5 AND state = 'running'",
            )?
            .execute(params![user, device, method, key, owner])?,
        Some(kept) => {
            let (state, reply) = match kept {
                Kept::Reply(Ok(result)) => ("result", Some(result.get())),
                Kept::Reply(Err(error)) => ("error", Some(error.raw().get())),
                Kept::Unknown => ("unknown", None),
                Kept::Retryable => ("retryable", None),
            };
            connection
                .prepare_cached(
                    "UPDATE remote_rpc_idempotency SET state = ?6, reply = ?7, expires_at = ?8
                     WHERE user_id = ?1 AND device = ?2 AND method = ?3 AND idempotency_key = ?4 AND owner = ?5 AND state = 'running'",
                )?
                .execute(params![user, device, method, key, owner, state, reply, now + milliseconds(CLAIM_KEPT)])?
        }
    };
    Ok(changed > 0)
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
