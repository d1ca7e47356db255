//! A database of one test's own, on the server of `RELAY_TEST_POSTGRES`.

use crate::store::postgres::Settings;
use std::time::Duration;
use tokio_postgres::{Client, Config, NoTls, config::Host};
use uuid::Uuid;

const SERVER: &str = "RELAY_TEST_POSTGRES";
const SERVER_CA: &str = "RELAY_TEST_POSTGRES_CA";

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_unset| panic!("{name} is not set: run ./dev test, or tests/postgres start"))
}

/// The PEM file of the authority that signed the server's certificate.
pub(super) fn ca_file() -> String {
    variable(SERVER_CA)
}

/// Dropped on the server when this is, whoever is still connected.
pub(super) struct Database {
    name: String,
    /// The role that owns it, where it is not the server's superuser.
    owner: Option<String>,
}

impl Database {
    pub(super) async fn create() -> Database {
        Database::create_with("ENCODING 'UTF8'", None).await
    }

    /// Owned by a fresh role without any privilege, whose password is its name.
    pub(super) async fn create_owned() -> Database {
        let owner = format!("relay_test_{}", Uuid::new_v4().simple());
        connect(&server()).await.batch_execute(&format!("CREATE ROLE {owner} LOGIN PASSWORD '{owner}'")).await.unwrap();
        Database::create_with(&format!("OWNER {owner}"), Some(owner)).await
    }

    pub(super) async fn create_with(options: &str, owner: Option<String>) -> Database {
        let name = format!("relay_test_{}", Uuid::new_v4().simple());
        connect(&server()).await.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0 {options}")).await.unwrap();
        Database { name, owner }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn owner(&self) -> &str {
        self.owner.as_deref().unwrap()
    }

    pub(super) fn url(&self) -> String {
        let server = server();
        let Some(Host::Tcp(host)) = server.get_hosts().first() else { panic!("{SERVER} names no host") };
        self.url_at(&format!("{host}:{}", server.get_ports()[0]))
    }

    /// The URL by way of a proxy.
    pub(super) fn url_at(&self, address: &str) -> String {
        let server = server();
        let superuser = (server.get_user().unwrap().to_owned(), String::from_utf8(server.get_password().unwrap().to_vec()).unwrap());
        let (user, password) = self.owner.clone().map_or(superuser, |owner| (owner.clone(), owner));
        format!("postgres://{user}:{password}@{address}/{}", self.name)
    }

    pub(super) fn settings(&self) -> Settings {
        Settings::parse(&self.url()).unwrap()
    }

    /// A connection of the superuser to this database.
    pub(super) async fn client(&self) -> Client {
        connect(server().dbname(&self.name)).await
    }

    /// Ends all other connections to this database from the server's side, and says how many there were.
    pub(super) async fn terminate_all(&self) -> i64 {
        let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()";
        connect(&server()).await.query_one(terminate, &[&self.name]).await.unwrap().get(0)
    }

    /// The server's processes that the store has here.
    pub(super) async fn backends(&self) -> Vec<i32> {
        let backends = "SELECT pid FROM pg_stat_activity WHERE datname = $1 AND application_name = 'relay' ORDER BY pid";
        connect(&server()).await.query(backends, &[&self.name]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// Returns once this many of the store's statements wait for a lock.
    pub(super) async fn wait_for_blocked(&self, statements: i64) {
        let blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'";
        let client = connect(&server()).await;
        while client.query_one(blocked, &[&self.name]).await.unwrap().get::<_, i64>(0) < statements {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop_database = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let drop_owner = self.owner.as_ref().map(|owner| format!("DROP ROLE IF EXISTS {owner}"));
        // A test's own runtime cannot be waited for here.
        let dropped = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
                let client = connect(&server()).await;
                client.batch_execute(&drop_database).await.unwrap();
                if let Some(drop_owner) = drop_owner {
                    client.batch_execute(&drop_owner).await.unwrap();
                }
            });
        });
        let dropped = dropped.join();
        assert!(dropped.is_ok() || std::thread::panicking(), "database {} could not be dropped", self.name);
    }
}

pub(super) fn server() -> Config {
    variable(SERVER).parse().unwrap()
}

async fn connect(config: &Config) -> Client {
    let (client, connection) = config.clone().ssl_mode(tokio_postgres::config::SslMode::Disable).connect(NoTls).await.unwrap();
    // Ends with the client, or when a test ends the connection.
    tokio::spawn(connection);
    client
}
