//! Starts that cannot be, an issuer's keys in a file, two processes on one directory, the ready file, signals, `relay migrate`.

use crate::{
    Server, USER, finish, serve,
    support::{PATIENCE, data_dir::DataDir, signing_keys::P256_A, token::epoch_s},
    text,
};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    process::{Command, Stdio},
    time::Duration,
};
use tokio::time::{sleep, timeout};

fn names(server: &Server, directory: &DataDir) -> Vec<String> {
    let list = finish(directory, &["device", "list", "--user", USER, "--url", &server.url, "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    list["devices"].as_array().unwrap().iter().map(|device| device["deviceName"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_start_that_cannot_be_ends_with_1_and_says_why() {
    let directory = DataDir::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let problem = |flags: &[&str]| {
        let output = finish(&directory, &[&["serve", "--admin-listen", "127.0.0.1:0"], flags].concat());
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr).to_owned()
    };
    let taken = problem(&["--listen", &address]);
    assert!(taken.starts_with("error: ") && taken.contains("--listen HOST:PORT"), "{taken}");
    let no_folder = problem(&["--listen", "127.0.0.1:0", "--ready-file", "no-such-folder/ready.json"]);
    assert!(no_folder.starts_with("error: --ready-file no-such-folder/ready.json: "), "{no_folder}");

    let secret = directory.path().join("relay-data/jwt-secret");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
    let readable = problem(&["--listen", "127.0.0.1:0"]);
    assert!(readable.contains("chmod 600"), "{readable}");
}

#[test]
fn a_data_directory_that_cannot_be_used_names_the_file_and_the_flag() {
    let directory = DataDir::with_sqlite();
    std::fs::write(directory.path().join("a-file"), "").unwrap();
    std::fs::create_dir_all(directory.path().join("in-the-way/relay.db")).unwrap();
    // Not even root may write in /proc, so this is what an unwritable place looks like to every user.
    for (data_dir, named) in [("a-file", "a-file"), ("a-file/below", "a-file"), ("/proc/relay", "/proc/relay"), ("in-the-way", "relay.db")]
    {
        let output = finish(&directory, &["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data-dir", data_dir]);
        let problem = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""), "{data_dir}: {problem}");
        assert!(problem.starts_with("error: ") && problem.contains(named) && problem.contains("--data-dir"), "{data_dir}: {problem}");
    }
}

#[test]
fn a_second_start_on_the_same_ports_fails_and_leaves_the_first_alone() {
    let directory = DataDir::new();
    let server = Server::start(&directory, &[]);
    let announced = std::fs::read(directory.path().join("ready.json")).unwrap();
    let address = server.url.strip_prefix("http://").unwrap();
    for (flags, flag) in [
        (["--listen", address, "--admin-listen", "127.0.0.1:0"], "--listen HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--admin-listen", address], "--admin-listen HOST:PORT"),
    ] {
        let output = finish(&directory, &[&["serve", "--ready-file", "ready.json"][..], &flags].concat());
        let problem = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""), "{problem}");
        assert!(problem.contains(flag) && problem.contains(address), "{problem}");
    }
    assert_eq!(std::fs::read(directory.path().join("ready.json")).unwrap(), announced, "the first is still announced");
    assert!(names(&server, &directory).is_empty(), "and still answers");
    assert_eq!(server.end("-TERM"), Some(0));
    assert!(!directory.path().join("ready.json").exists());
}

#[test]
fn two_processes_share_one_data_directory() {
    let directory = DataDir::new();
    let older = Server::start(&directory, &[]);
    let newer = Server::start(&directory, &[]);
    assert_ne!(older.url, newer.url);
    for (server, name) in [(&older, "by the older"), (&newer, "by the newer")] {
        let added = ["device", "add", "--user", USER, "--role", "desktop", "--name", name, "--url", &server.url];
        assert_eq!(finish(&directory, &added).status.code(), Some(0));
    }
    for server in [&older, &newer] {
        assert_eq!(names(server, &directory), ["by the older", "by the newer"]);
    }
    assert_eq!(older.end("-TERM"), Some(0));
    assert!(directory.path().join("ready.json").exists(), "it announces the newer one by now");
    assert_eq!(names(&newer, &directory).len(), 2);
    assert_eq!(newer.end("-TERM"), Some(0));
    assert!(!directory.path().join("ready.json").exists());
}

#[test]
fn what_a_killed_process_announced_is_gone_before_the_next_one_serves() {
    let directory = DataDir::new();
    let ready_file = directory.path().join("ready.json");
    let server = Server::start(&directory, &[]);
    assert_eq!(server.end("-KILL"), None);
    assert!(ready_file.exists(), "nobody was left to remove it");
    // One that cannot serve still takes away what would mislead.
    let output = finish(&directory, &["serve", "--listen", "256.0.0.1:0", "--ready-file", "ready.json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(!ready_file.exists());
}

#[tokio::test]
async fn a_signal_during_the_start_ends_it_and_leaves_nothing_behind() {
    let directory = DataDir::new();
    for after in (0..16).map(|step| Duration::from_millis(4 * step)) {
        let mut command = tokio::process::Command::from(serve(&directory));
        let mut process = command.args(["--ready-file", "ready.json"]).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        sleep(after).await;
        let pid = process.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = timeout(PATIENCE, process.wait()).await.expect("the relay ends").unwrap();
        // Before it catches signals the system ends it; afterwards it ends well.
        assert!(status.code() == Some(0) || status.signal() == Some(15), "{after:?}: {status}");
        if status.code() == Some(0) {
            assert!(!directory.path().join("ready.json").exists(), "{after:?}");
        }
    }
    let server = Server::start(&directory, &[]);
    assert!(names(&server, &directory).is_empty());
    assert_eq!(server.end("-TERM"), Some(0));
}

#[test]
fn with_an_issuers_keys_alone_only_its_tokens_are_taken_and_no_secret_is_made() {
    let directory = DataDir::new();
    let publish = |kid: &str| std::fs::write(directory.path().join("keys.json"), json!({"keys": [P256_A.jwk(kid)]}).to_string()).unwrap();
    publish("one");
    let server = Server::start(&directory, &["--jwks", "keys.json"]);
    assert!(!directory.path().join("relay-data/jwt-secret").exists());
    assert!(server.start_up_text.iter().any(|line| line.contains("export RELAY_TOKEN=")), "{:?}", server.start_up_text);

    let list = |flags: &[&str]| finish(&directory, &[&["device", "list", "--url", &server.url], flags].concat());
    let token = |kid: &str| P256_A.sign(Some(kid), &json!({"sub": USER, "exp": epoch_s() + 3600}));
    assert_eq!(list(&["--token", &token("one")]).status.code(), Some(0));
    // A file that is replaced is read when a token shows that it must have been.
    publish("two");
    assert_eq!(list(&["--token", &token("two")]).status.code(), Some(0));
    assert_eq!(list(&["--token", &token("one")]).status.code(), Some(1));

    let by_secret = list(&["--user", USER, "--jwt-secret", &"s".repeat(32)]);
    assert_eq!(by_secret.status.code(), Some(1), "{}", text(&by_secret.stderr));
    let without = finish(&directory, &["token", "--user", USER]);
    assert_eq!(without.status.code(), Some(1));
    assert!(text(&without.stderr).contains("only its issuer's tokens"), "{}", text(&without.stderr));
}

#[test]
fn migrate_tells_what_was_there_and_what_is_new() {
    let directory = DataDir::new();
    let run = |flags: &[&str]| {
        let output = finish(&directory, &[&["migrate"], flags].concat());
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
        text(&output.stdout).to_owned()
    };
    let first = run(&[]);
    assert!(first.starts_with("applied  0001_") && first.lines().all(|line| line.starts_with("applied  ")), "{first}");
    assert_eq!(run(&[]), first.replace("applied  ", "present  "));
    let json: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    assert_eq!(json["present"].as_array().unwrap().len(), first.lines().count());
    assert_eq!(json["applied"], Value::from(Vec::<String>::new()));
}

#[tokio::test]
async fn a_database_that_a_newer_relay_has_used_is_refused() {
    let directory = DataDir::new();
    assert_eq!(finish(&directory, &["migrate", "--data-dir", "."]).status.code(), Some(0));
    let newer = "INSERT INTO schema_migrations SELECT version + 1, 'from_the_future', checksum, applied_at FROM schema_migrations \
                 ORDER BY version DESC LIMIT 1";
    directory.sql().await.run(newer).await;
    for command in [&["migrate"][..], &["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]] {
        let output = finish(&directory, &[command, &["--data-dir", "."]].concat());
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
        assert!(text(&output.stderr).contains("newer"), "{}", text(&output.stderr));
    }
}

#[test]
fn log_lines_are_json_when_asked_for() {
    let directory = DataDir::new();
    let mut command = serve(&directory);
    command.args(["--log-format", "json", "--log", "info"]);
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let serving = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let found = serving.into_iter().any(|line| line["message"] == "serving" && line["level"] == "INFO");
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(found);
}
