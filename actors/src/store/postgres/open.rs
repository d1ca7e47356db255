//! A start: waits for a server that is not there yet, checks that it can be used, and migrates.

use super::{
    error::{describe, passes},
    migrate::{self, Failure},
    pool::{Connections, PoolError, StatementPool},
    settings::Settings,
};
use crate::{
    clock,
    store::{
        StoreError,
        migrate::{MigrateError, Migration, MigrationReport},
    },
};
use deadpool_postgres::Object;
use std::{fmt, io, num::NonZero, time::Duration};
use tokio::time::{sleep, timeout};

/// How long a start waits for its database. Operations page.
pub(super) const START_WAIT: Duration = Duration::from_secs(30);
/// One attempt to connect, up to the server's answer to the first question.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait between attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Time between two log lines about the same wait.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// The oldest server that is supported, as `server_version_num` has it. Operations page.
const SERVER_VERSION_MIN: i32 = 14_00_00;

/// Why the database could not be opened. Texts name it without its password.
#[derive(Debug)]
pub enum OpenError {
    /// There is nobody to trust with TLS.
    Tls(String),
    /// The pool's thread could not be started.
    Thread(io::Error),
    /// The server refused, or cannot be used; waiting would not help.
    Refused {
        /// Which database.
        database: String,
        /// What it said.
        cause: String,
    },
    /// It was not there in time.
    Absent {
        /// Which database.
        database: String,
        /// Why the last attempt failed.
        cause: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The schema does not fit, or could not be made to.
    Migrate {
        /// Which database.
        database: String,
        /// What is wrong and what to do.
        error: MigrateError,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Tls(problem) => f.write_str(problem),
            OpenError::Thread(error) => write!(f, "storage thread: {error}"),
            OpenError::Refused { database, cause } => write!(f, "database {database} cannot be used: {cause}"),
            OpenError::Absent { database, cause, waited } => {
                write!(f, "database {database} was not there within {}: {cause}", humantime::format_duration(*waited))
            }
            OpenError::Migrate { database, error } => write!(f, "database {database}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Tls(_) | OpenError::Refused { .. } | OpenError::Absent { .. } => None,
            OpenError::Thread(error) => Some(error),
            OpenError::Migrate { error, .. } => Some(error),
        }
    }
}

enum Problem {
    Passing(String),
    Refused(String),
    Migrate(MigrateError),
}

/// Opens the database, migrated, with a pool that has one connection.
pub(super) async fn open(
    settings: &Settings,
    pool_size: NonZero<u16>,
    known: &'static [Migration],
    wait: Duration,
) -> Result<(StatementPool, MigrationReport), OpenError> {
    let pool = StatementPool::start(settings, pool_size).map_err(|error| match error {
        PoolError::Tls(problem) => OpenError::Tls(problem),
        PoolError::Thread(error) => OpenError::Thread(error),
    })?;
    let begun = clock::now();
    let mut reported = None;
    loop {
        let connections = pool.connections();
        let attempted = pool.drive(move |_caller| async move { Ok(attempt(&connections, known).await) }).await;
        let database = settings.to_string();
        let cause = match attempted {
            Ok(Ok(report)) => return Ok((pool, report)),
            Ok(Err(Problem::Refused(cause))) => return Err(OpenError::Refused { database, cause }),
            Ok(Err(Problem::Migrate(error))) => return Err(OpenError::Migrate { database, error }),
            Ok(Err(Problem::Passing(cause))) | Err(StoreError::Unavailable(cause)) => cause,
            Err(error @ (StoreError::OtherAccount | StoreError::TooManyDevices)) => error.to_string(),
        };
        let now = clock::now();
        if now.saturating_duration_since(begun) + RETRY_INTERVAL > wait {
            return Err(OpenError::Absent { database, cause, waited: wait });
        }
        if reported.is_none_or(|reported| now.saturating_duration_since(reported) >= REPORT_INTERVAL) {
            reported = Some(now);
            tracing::warn!(database, cause, "waiting for the database");
        }
        sleep(RETRY_INTERVAL).await;
    }
}

async fn attempt(connections: &Connections, known: &[Migration]) -> Result<MigrationReport, Problem> {
    let checked = async {
        let connection = match connections.acquire().await {
            Ok(connection) => connection,
            Err(deadpool_postgres::PoolError::Backend(error)) => return Err(problem(&error)),
            Err(error) => return Err(Problem::Passing(error.to_string())),
        };
        check(&connection).await?;
        Ok(connection)
    };
    let late = |_elapsed| Err(Problem::Passing("it does not answer".into()));
    let mut connection = timeout(ATTEMPT_TIMEOUT, checked).await.unwrap_or_else(late)?;
    migrate::apply(&mut connection, known).await.map_err(|failure| match failure {
        Failure::Passing(cause) => Problem::Passing(cause),
        Failure::Final(error) => Problem::Migrate(error),
    })
}

async fn check(connection: &Object) -> Result<(), Problem> {
    let asked = "SELECT current_setting('server_version_num')::integer, current_setting('server_version'), \
                 current_setting('server_encoding')";
    let read = async {
        let row = connection.query_one(asked, &[]).await?;
        Ok((row.try_get::<_, i32>(0)?, row.try_get::<_, String>(1)?, row.try_get::<_, String>(2)?))
    };
    let (number, version, encoding) = read.await.map_err(|error| problem(&error))?;
    if number < SERVER_VERSION_MIN {
        return Err(Problem::Refused(format!("it is PostgreSQL {version}, and 14 or newer is needed")));
    }
    if encoding != "UTF8" {
        return Err(Problem::Refused(format!(
            "its encoding is {encoding}, and names may hold any Unicode: create it with ENCODING 'UTF8'"
        )));
    }
    Ok(())
}

fn problem(error: &tokio_postgres::Error) -> Problem {
    if passes(error) { Problem::Passing(describe(error)) } else { Problem::Refused(describe(error)) }
}
