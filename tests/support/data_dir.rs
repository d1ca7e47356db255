//! Where a relay under test keeps its data, and a second way into its database.
//!
//! A relay gets the storage that the run of tests is about: SQLite, or with `RELAY_TEST_STORAGE=postgres` a database of its own in
//! PostgreSQL. A test about SQLite itself says [`DataDir::with_sqlite`], and has SQLite in every run.

use super::postgres::{Database, Server};
use rusqlite::{Connection, types::ValueRef};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio_postgres::{Client, SimpleQueryMessage};

/// A data directory, and where the storage is PostgreSQL its database; both end with it.
#[derive(Debug)]
pub struct DataDir {
    directory: TempDir,
    database: Option<Database>,
}

impl DataDir {
    /// With the storage of this run.
    pub fn new() -> Self {
        match std::env::var("RELAY_TEST_STORAGE").as_deref() {
            Ok("postgres") => Self::with_postgres(Server::shared()),
            Err(std::env::VarError::NotPresent) | Ok("sqlite") => Self::with_sqlite(),
            other => panic!("RELAY_TEST_STORAGE is {other:?}; there are sqlite and postgres"),
        }
    }

    /// With the embedded database, whatever the run is about.
    pub fn with_sqlite() -> Self {
        DataDir { directory: tempfile::Builder::new().prefix("relay-test-").tempdir().unwrap(), database: None }
    }

    /// With a fresh database in this server, whatever the run is about.
    pub fn with_postgres(server: Server) -> Self {
        DataDir { database: Some(Database::create(server)), ..Self::with_sqlite() }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// What the relay gets as `RELAY_DATABASE_URL`.
    pub fn database_url(&self) -> Option<String> {
        self.database.as_ref().map(Database::url)
    }

    /// The database in PostgreSQL.
    pub fn database(&self) -> &Database {
        self.database.as_ref().expect("this test has PostgreSQL")
    }

    /// The embedded database's file.
    pub fn sqlite_file(&self) -> PathBuf {
        self.path().join("relay.db")
    }

    /// A second way into the relay's database.
    pub async fn sql(&self) -> Sql {
        match &self.database {
            Some(database) => Sql::Postgres(database.connect().await),
            None => Sql::Sqlite(Connection::open(self.sqlite_file()).unwrap()),
        }
    }
}

/// Takes SQL that both storages understand.
pub enum Sql {
    Sqlite(Connection),
    Postgres(Client),
}

impl Sql {
    pub async fn run(&self, statements: &str) {
        match self {
            Sql::Sqlite(connection) => connection.execute_batch(statements).unwrap(),
            Sql::Postgres(client) => client.batch_execute(statements).await.unwrap(),
        }
    }

    /// The rows of a query, each cell as text.
    pub async fn rows(&self, query: &str) -> Vec<Vec<String>> {
        match self {
            Sql::Sqlite(connection) => {
                let mut statement = connection.prepare(query).unwrap();
                let columns = statement.column_count();
                let rows = statement.query_map((), |row| (0..columns).map(|column| row.get_ref(column).map(text)).collect());
                rows.unwrap().map(Result::unwrap).collect()
            }
            Sql::Postgres(client) => {
                let messages = client.simple_query(query).await.unwrap();
                let mut rows = Vec::new();
                for message in &messages {
                    if let SimpleQueryMessage::Row(row) = message {
                        rows.push((0..row.len()).map(|column| row.get(column).unwrap_or_default().to_owned()).collect());
                    }
                }
                rows
            }
        }
    }

    /// Begins a transaction that keeps everybody else from writing to `devices` until it ends: by [`Sql::run`] of `ROLLBACK`, or
    /// with this connection.
    pub async fn lock_devices(&self) {
        match self {
            Sql::Sqlite(_) => self.run("BEGIN IMMEDIATE").await,
            Sql::Postgres(_) => self.run("BEGIN; LOCK TABLE devices IN EXCLUSIVE MODE").await,
        }
    }
}

fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
    }
}
