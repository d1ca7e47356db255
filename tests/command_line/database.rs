//! `relay serve` and `relay migrate` with a database server that is not there, or will not have them.

use crate::{
    RELAY, finish,
    support::{PATIENCE, data_dir::DataDir},
    text,
};
use std::{net::TcpListener, path::Path, process::Stdio};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// The server that `tests/postgres start` runs, and a database that it does not have.
fn unknown_database() -> String {
    let server = std::env::var("RELAY_TEST_POSTGRES").expect("RELAY_TEST_POSTGRES is not set: run ./dev test, or tests/postgres start");
    let (server, _database) = server.rsplit_once('/').unwrap();
    format!("{server}/relay_test_nowhere")
}

fn password(url: &str) -> &str {
    url.split_once('@').unwrap().0.rsplit_once(':').unwrap().1
}

/// An address where nobody listens.
fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Starts `relay serve` and returns once it says that it waits.
async fn waiting(directory: &Path) -> Child {
    let mut command = Command::new(RELAY);
    command.env_clear().current_dir(directory).env("RELAY_DATABASE_URL", format!("postgres://relay:hush@{}/data", nobody()));
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]).kill_on_drop(true);
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let told = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    assert!(told.contains("waiting for the database") && told.contains("data at 127.0.0.1:") && !told.contains("hush"), "{told}");
    // Keeps the pipe open and empty.
    tokio::spawn(async move { while let Ok(Some(_line)) = lines.next_line().await {} });
    process
}

#[tokio::test]
async fn a_signal_ends_the_wait_for_the_database_at_once() {
    let directory = tempfile::tempdir().unwrap();
    for signal in ["-TERM", "-INT"] {
        let mut process = waiting(directory.path()).await;
        let sent = Command::new("kill").args([signal, &process.id().unwrap().to_string()]).status().await.unwrap();
        assert!(sent.success());
        let ended = timeout(PATIENCE, process.wait()).await.unwrap().unwrap();
        assert_eq!(ended.code(), Some(0), "{signal}");
    }
}

#[test]
fn what_waiting_does_not_help_ends_with_1_and_says_why() {
    let directory = DataDir::with_sqlite();
    let url = unknown_database();
    let wrong_password = url.replace(&format!(":{}@", password(&url)), ":hush@");
    for (url, why) in [(&url, "3D000"), (&wrong_password, "28P01")] {
        for command in ["serve", "migrate"] {
            let output = finish(&directory, &[command, "--database-url", url]);
            let problem = text(&output.stderr);
            assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""), "{command}: {problem}");
            assert!(problem.contains(why) && problem.contains("relay_test_nowhere at "), "{command}: {problem}");
            assert!(!problem.contains(password(url)), "{command}: {problem}");
        }
    }
}

#[test]
fn a_text_that_is_no_database_url_is_wrong_use_and_not_shown() {
    let directory = DataDir::with_sqlite();
    for command in ["serve", "migrate"] {
        let output = finish(&directory, &[command, "--database-url", "mysql://relay:hush@localhost/data"]);
        let problem = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {problem}");
        assert!(problem.contains("--database-url must start with postgres://") && !problem.contains("hush"), "{command}: {problem}");
    }
}
