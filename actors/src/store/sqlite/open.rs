//! Opening and migrating the file.
//!
//! Processes that open one file at the same moment take turns behind an advisory lock on `<file>.lock`: SQLite's own waiting
//! does not cover the switch to write-ahead logging. The lock file stays behind, empty.

use crate::{
    clock::EpochMs,
    store::migrate::{MigrateError, Migration, MigrationReport, Recorded, plan},
};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::{
    fmt,
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

/// How long a statement waits while another process writes, before it fails and its caller retries.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// Only the relay's own user reads what accounts told it.
const FILE_MODE: u32 = 0o600;

/// All of this backend's migrations, in order.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "devices", sql: include_str!("../../../../migrations/sqlite/0001_devices.sql") },
    Migration { version: 2, name: "compatibility_rules", sql: include_str!("../../../../migrations/sqlite/0002_compatibility_rules.sql") },
    Migration { version: 3, name: "presence_history", sql: include_str!("../../../../migrations/sqlite/0003_presence_history.sql") },
    Migration { version: 4, name: "api_keys", sql: include_str!("../../../../migrations/sqlite/0004_api_keys.sql") },
    Migration { version: 5, name: "relay_processes", sql: include_str!("../../../../migrations/sqlite/0005_relay_processes.sql") },
    Migration { version: 6, name: "push_tokens", sql: include_str!("../../../../migrations/sqlite/0006_push_tokens.sql") },
];

/// Why the file could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The file, its lock file or their modes.
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// SQLite would not take the file.
    Sqlite {
        /// Which file.
        path: PathBuf,
        /// What SQLite said.
        error: rusqlite::Error,
    },
    /// The schema does not fit, or could not be made to.
    Migrate {
        /// Which file.
        path: PathBuf,
        /// What is wrong and what to do.
        error: MigrateError,
    },
    /// A storage thread could not be started.
    Thread(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::File { path, error } => write!(f, "{}: {error}", path.display()),
            OpenError::Sqlite { path, error } => write!(f, "{}: {error}", path.display()),
            OpenError::Migrate { path, error } => write!(f, "{}: {error}", path.display()),
            OpenError::Thread(error) => write!(f, "storage thread: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::File { error, .. } | OpenError::Thread(error) => Some(error),
            OpenError::Sqlite { error, .. } => Some(error),
            OpenError::Migrate { error, .. } => Some(error),
        }
    }
}

/// Brings the file's schema up to date without opening a store, for `relay migrate`. Creates the file when there is none.
///
/// # Errors
/// As `SqliteStore::open`.
pub fn migrate(path: &Path) -> Result<MigrationReport, OpenError> {
    open(path, MIGRATIONS).map(|opened| opened.migrations)
}

pub(super) struct Opened {
    pub(super) reader: Connection,
    pub(super) writer: Connection,
    pub(super) migrations: MigrationReport,
}

pub(super) fn open(path: &Path, known: &[Migration]) -> Result<Opened, OpenError> {
    let _turn = take_turn(path)?;
    create_private(path).map_err(|error| OpenError::File { path: path.into(), error })?;
    let sqlite = |error| OpenError::Sqlite { path: path.into(), error };
    let mut writer = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(sqlite)?;
    // Before anything else writes: a file that a newer relay has used is left as it is.
    let migrations = apply(&mut writer, known).map_err(|error| OpenError::Migrate { path: path.into(), error })?;
    writer.pragma_update(None, "journal_mode", "wal").map_err(sqlite)?;
    // The default, named because answers rely on it: a write that was confirmed survives a power cut.
    writer.pragma_update(None, "synchronous", "full").map_err(sqlite)?;
    let reader = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(sqlite)?;
    Ok(Opened { reader, writer, migrations })
}

/// Waits until no other process is opening the file; the turn ends when the returned file is dropped.
pub(super) fn take_turn(path: &Path) -> Result<File, OpenError> {
    let mut lock_name = path.as_os_str().to_owned();
    lock_name.push(".lock");
    let lock_path = PathBuf::from(lock_name);
    let locked = OpenOptions::new().create(true).truncate(false).write(true).mode(FILE_MODE).open(&lock_path).and_then(|file| {
        file.lock()?;
        Ok(file)
    });
    locked.map_err(|error| OpenError::File { path: lock_path, error })
}

/// SQLite would create the file readable to all; its log and shared-memory files take the mode of the file that they find.
/// A file that exists is not opened here: closing any descriptor of it would drop the locks of this process's connections.
fn create_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().create_new(true).write(true).mode(FILE_MODE).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mode = fs::metadata(path)?.permissions().mode();
            if mode & 0o077 == 0 { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(FILE_MODE)) }
        }
        created => created.map(drop),
    }
}

fn connect(path: &Path, mode: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

fn apply(connection: &mut Connection, known: &[Migration]) -> Result<MigrationReport, MigrateError> {
    let failed = |error: rusqlite::Error| MigrateError::Failed(error.to_string());
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    transaction
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS schema_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, \
             applied_at INTEGER NOT NULL) STRICT",
        )
        .map_err(failed)?;
    let recorded = recorded(&transaction).map_err(failed)?;
    let report = plan(known, &recorded)?;
    for migration in &report.applied {
        transaction
            .execute_batch(migration.sql)
            .and_then(|()| {
                transaction.execute(
                    "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)",
                    (migration.version, migration.name, migration.checksum(), EpochMs::now().0),
                )
            })
            .map_err(|error| MigrateError::Failed(format!("{migration}: {error}")))?;
    }
    transaction.commit().map_err(failed)?;
    Ok(report)
}

fn recorded(connection: &Connection) -> rusqlite::Result<Vec<Recorded>> {
    connection
        .prepare("SELECT version, name, checksum FROM schema_migrations ORDER BY version")?
        .query_map((), |row| Ok(Recorded { version: row.get(0)?, name: row.get(1)?, checksum: row.get(2)? }))?
        .collect()
}
