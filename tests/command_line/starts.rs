//! Signals during a start that waits for another process, which holds what the start needs.

use crate::{
    serve,
    support::{PATIENCE, data_dir::DataDir, postgres::Server, wire::eventually},
    text,
};
use rusqlite::Connection;
use std::{fs, process::Stdio, time::Duration};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

/// SIGTERM, signal 15, in a signal set of proc(5).
const TERMINATE_BIT: u64 = 1 << 14;
/// The advisory lock of migrations, "relaymig" in ASCII.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_lock(8243113858876402023)";
/// A start that nothing holds up has passed by then.
const SERVES_WITHIN: Duration = Duration::from_millis(500);

/// Starts `relay serve` and returns once it catches signals.
async fn starting(directory: &DataDir) -> Child {
    let mut command = Command::from(serve(directory));
    command.args(["--data-dir", ".", "--ready-file", "ready.json"]).kill_on_drop(true);
    let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", process.id().unwrap());
    eventually("it catches signals", async || {
        let status = fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & TERMINATE_BIT != 0
    })
    .await;
    process
}

/// Each signal ends it at once and well, and nothing is announced.
async fn ends_by_a_signal(directory: &DataDir) {
    for signal in ["-TERM", "-INT", "-HUP"] {
        let mut process = starting(directory).await;
        assert!(timeout(SERVES_WITHIN, process.wait()).await.is_err(), "it waits");
        let sent = Command::new("kill").args([signal, &process.id().unwrap().to_string()]).status().await.unwrap();
        assert!(sent.success());
        let output = timeout(PATIENCE, process.wait_with_output()).await.expect("the relay ends").unwrap();
        let log = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{signal}: {log}");
        assert!(log.contains("stopped before the database was there") && !log.contains(" serving "), "{signal}: {log}");
        assert!(!directory.path().join("ready.json").exists());
    }
}

async fn serves(directory: &DataDir) {
    let mut process = starting(directory).await;
    eventually("it serves", async || directory.path().join("ready.json").exists()).await;
    process.kill().await.unwrap();
    fs::remove_file(directory.path().join("ready.json")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_waits_for_who_opens_the_file_ends_by_a_signal() {
    let directory = DataDir::with_sqlite();
    let turn = fs::File::create(directory.path().join("relay.db.lock")).unwrap();
    turn.lock().unwrap();
    ends_by_a_signal(&directory).await;
    turn.unlock().unwrap();
    serves(&directory).await;
}

/// Migrations need the file to themselves; who writes to it keeps them waiting for as long as the busy timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_waits_to_migrate_the_file_ends_by_a_signal() {
    let directory = DataDir::with_sqlite();
    let writer = Connection::open(directory.sqlite_file()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    ends_by_a_signal(&directory).await;
    writer.execute_batch("ROLLBACK").unwrap();
    serves(&directory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_waits_for_who_migrates_the_database_ends_by_a_signal() {
    let directory = DataDir::with_postgres(Server::shared());
    let migrating = directory.sql().await;
    migrating.run(MIGRATION_LOCK).await;
    ends_by_a_signal(&directory).await;
    drop(migrating);
    serves(&directory).await;
}
