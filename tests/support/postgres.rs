//! PostgreSQL for tests: databases in the private server that `./dev test` has started, and servers of a test's own that it may
//! stop. CONTRIBUTING.md says how to start one by hand.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/postgres");

/// The URL of its superuser.
#[derive(Clone, Debug)]
pub struct Server(String);

impl Server {
    /// The one of this run of tests.
    pub fn shared() -> Self {
        Server(variable("RELAY_TEST_POSTGRES"))
    }

    pub fn address(&self) -> SocketAddr {
        let host = self.0.split(['@', '/']).nth(3).expect("postgres://user:password@address/database");
        host.parse().expect("its address is numeric")
    }

    /// The same server, reached by another address.
    pub fn by_way_of(&self, address: SocketAddr) -> Self {
        Server(self.0.replace(&self.address().to_string(), &address.to_string()))
    }

    fn url(&self, database: &str) -> String {
        let (server, _database) = self.0.rsplit_once('/').unwrap();
        format!("{server}/{database}")
    }

    async fn run(&self, statement: &str) -> Result<(), tokio_postgres::Error> {
        connect(&self.0).await?.batch_execute(statement).await
    }
}

/// A database of a test's own, dropped at its end.
#[derive(Debug)]
pub struct Database {
    server: Server,
    name: String,
}

impl Database {
    pub fn create(server: Server) -> Self {
        let name = format!("relay_test_{}", Uuid::new_v4().simple());
        block_on(server.run(&format!("CREATE DATABASE {name}"))).expect("the server makes a database");
        Database { server, name }
    }

    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Its URL by another address of its server.
    pub fn url_by_way_of(&self, address: SocketAddr) -> String {
        self.server.by_way_of(address).url(&self.name)
    }

    pub async fn connect(&self) -> Client {
        connect(&self.url()).await.expect("the server takes a connection")
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Also with a relay on it that was killed a moment ago. A server that was stopped takes its databases with it.
        let _ = block_on(self.server.run(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)));
    }
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    /// Sessions are ended, then everything is written.
    Fast,
    /// As in a crash.
    Immediate,
}

/// A server that belongs to one test.
pub struct OwnServer {
    server: Server,
    directory: TempDir,
}

impl OwnServer {
    pub fn start() -> Self {
        // Beside the shared one, where `./dev` also ends what a killed test has left.
        let shared = PathBuf::from(variable("RELAY_TEST_POSTGRES_CA"));
        let beside = shared.ancestors().nth(2).unwrap();
        let directory = tempfile::Builder::new().prefix("own-").tempdir_in(beside).unwrap();
        let server = Server(script("start", directory.path(), None));
        OwnServer { server, directory }
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Statements that it has run of sessions with `log_statement = 'all'`, prepared ones.
    pub fn statements(&self) -> usize {
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap();
        log.lines().filter(|line| line.contains("LOG:  execute ")).count()
    }

    pub fn stop(&self, how: Stop) {
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        script("stop", self.directory.path(), Some(mode));
    }

    /// On its old port, with its data.
    pub fn start_again(&self) {
        assert_eq!(script("start", self.directory.path(), None), self.server.0);
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.stop(Stop::Immediate);
    }
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // It ends with its client, or with the server, which the client's next call finds out.
    tokio::spawn(connection);
    Ok(client)
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_unset| panic!("{name} is not set: run this test by ./dev test, or see CONTRIBUTING.md"))
}

fn script(word: &str, directory: &Path, argument: Option<&str>) -> String {
    let output = Command::new(SCRIPT).arg(word).arg(directory).args(argument).output().unwrap();
    assert!(output.status.success(), "tests/postgres {word}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Waits on a thread of its own, since a test without a runtime asks as well as one within.
fn block_on<T: Send>(future: impl Future<Output = T> + Send) -> T {
    let wait = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
    std::thread::scope(|scope| scope.spawn(wait).join().unwrap())
}
