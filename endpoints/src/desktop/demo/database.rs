//! The one SQLite file of a demo desktop. Calls block, so they run on threads for that, one at a time.

use super::fault::Fault;
use crate::{desktop::router::HandlerError, private_file};
use relay_protocol::desktop_error::DesktopError;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// `PRAGMA user_version` of [`SCHEMA`].
const SCHEMA_VERSION: i64 = 1;
const SCHEMA: &str = include_str!("schema.sql");
/// How long a statement waits while somebody else writes: another program that looks at the file, or a copy of it being made. Shorter
/// than a handler may take.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

const _: () = assert!(BUSY_TIMEOUT.as_secs() < relay_protocol::limits::desktop::DISPATCH.as_secs());

/// The file, open.
#[derive(Clone)]
pub(super) struct Database {
    connection: Arc<Mutex<Connection>>,
}

/// Why the file cannot be used.
#[derive(Debug)]
pub(super) enum OpenFault {
    Io(std::io::Error),
    Sqlite(rusqlite::Error),
    /// It has another schema.
    Foreign {
        version: i64,
    },
}

impl fmt::Display for OpenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenFault::Io(error) => error.fmt(f),
            OpenFault::Sqlite(error) => error.fmt(f),
            OpenFault::Foreign { version } => write!(f, "its schema is version {version}, and this program knows {SCHEMA_VERSION}"),
        }
    }
}

impl From<rusqlite::Error> for OpenFault {
    fn from(error: rusqlite::Error) -> Self {
        OpenFault::Sqlite(error)
    }
}

impl Database {
    /// Opens the file; `fill` writes what a new one begins with, in the transaction that makes it.
    pub(super) fn open(path: &Path, fill: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>) -> Result<Self, OpenFault> {
        private_file::ensure(path).map_err(OpenFault::Io)?;
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // What a phone has a receipt for outlives the power, too.
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        prepare(&mut connection, fill)?;
        Ok(Database { connection: Arc::new(Mutex::new(connection)) })
    }

    /// Looks something up.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, HandlerError> {
        self.on_thread(|connection| work(connection)).await
    }

    /// Changes something: all of it, or nothing. It goes on when the caller leaves.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, HandlerError> {
        self.on_thread(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        })
        .await
    }

    async fn on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, HandlerError> {
        let connection = Arc::clone(&self.connection);
        // A statement that panicked has rolled its transaction back while it unwound.
        let locked = move || work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner));
        match tokio::task::spawn_blocking(locked).await {
            Ok(done) => done.map_err(HandlerError::from),
            Err(_panic) => Err(HandlerError::new(DesktopError::Internal, "The method failed.")),
        }
    }
}

fn prepare(connection: &mut Connection, fill: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>) -> Result<(), OpenFault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i64 = transaction.query_row("PRAGMA user_version", (), |row| row.get(0))?;
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    match (version, tables) {
        (SCHEMA_VERSION, _) => return Ok(()),
        (0, 0) => {}
        (version, _) => return Err(OpenFault::Foreign { version }),
    }
    transaction.execute_batch(SCHEMA)?;
    fill(&transaction)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()?;
    Ok(())
}

/// A database in memory, for tables of tests.
#[cfg(test)]
pub(super) fn in_memory() -> Connection {
    let mut connection = Connection::open_in_memory().unwrap();
    connection.pragma_update(None, "foreign_keys", true).unwrap();
    prepare(&mut connection, |_transaction| Ok(())).unwrap();
    connection
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_once_and_a_foreign_one_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("demo.db");
        let name = |transaction: &Transaction<'_>| {
            transaction.execute("INSERT INTO projects VALUES ('p', 'name', 0)", ())?;
            Ok(())
        };
        drop(Database::open(&path, name).unwrap());
        // A second filling would break the primary key.
        drop(Database::open(&path, name).unwrap());
        let raw = Connection::open(&path).unwrap();
        raw.pragma_update(None, "user_version", 2).unwrap();
        let refused = Database::open(&path, name).err().unwrap().to_string();
        assert_eq!(refused, "its schema is version 2, and this program knows 1");

        let foreign = folder.path().join("other.db");
        Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        assert!(matches!(Database::open(&foreign, name), Err(OpenFault::Foreign { version: 0 })));
    }

    #[tokio::test]
    async fn a_change_is_made_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&folder.path().join("demo.db"), |_transaction| Ok(())).unwrap();
        let insert = |transaction: &Transaction<'_>| transaction.execute("INSERT INTO projects VALUES ('p', 'name', 0)", ());
        let failed = database.write(move |transaction| {
            insert(transaction)?;
            Err::<(), _>(Fault::not_found("thing"))
        });
        assert_eq!(failed.await.unwrap_err().message, "There is no such thing.");
        let panicked = database.write(move |transaction| -> Result<(), Fault> {
            insert(transaction)?;
            panic!("on purpose")
        });
        assert_eq!(panicked.await.unwrap_err().kind, DesktopError::Internal);
        let count = |connection: &Connection| Ok(connection.query_row("SELECT count(*) FROM projects", (), |row| row.get::<_, i64>(0))?);
        assert_eq!(database.read(count).await.unwrap(), 0);
        database.write(move |transaction| Ok(insert(transaction)?)).await.unwrap();
        assert_eq!(database.read(count).await.unwrap(), 1);
    }
}
