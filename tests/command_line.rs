//! The real binary as a script sees it: output, exit codes, files, signals.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use relay::{
    http::auth::{Authenticator, TokenRules},
    secrets::jwt_secret_in,
};
use relay_actors::clock::EpochMs;
use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

const RELAY: &str = env!("CARGO_BIN_EXE_relay");
const USER: &str = "a11ce000-0000-4000-8000-000000000001";

/// The binary, untouched by the environment of whoever runs the tests.
fn relay(directory: &Path) -> Command {
    let mut command = Command::new(RELAY);
    command.current_dir(directory).env_clear();
    command
}

fn finish(directory: &Path, arguments: &[&str]) -> Output {
    relay(directory).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A serving process, ended with its test.
struct Server {
    process: Child,
    start_up_text: Vec<String>,
    url: String,
}

impl Server {
    fn start(directory: &Path, flags: &[&str]) -> Self {
        let mut command = relay(directory);
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--ready-file", "ready.json"]).args(flags);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        // The last command of the start-up text says that it serves.
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut start_up_text = Vec::new();
        while start_up_text.last().is_none_or(|line: &String| !line.ends_with(" call system.ping")) {
            start_up_text.push(lines.next().expect("it ended before it served").unwrap());
        }
        let ready: Value = serde_json::from_slice(&std::fs::read(directory.join("ready.json")).unwrap()).unwrap();
        assert_eq!(ready["pid"], process.id());
        let url = format!("http://{}", ready["public"].as_str().unwrap());
        Server { process, start_up_text, url }
    }

    /// The printed commands, as they stand.
    fn commands(&self) -> Vec<&str> {
        self.start_up_text.iter().filter_map(|line| line.strip_prefix("  ")).filter(|line| line.starts_with(RELAY)).collect()
    }

    fn end(mut self, signal: &str) -> Option<i32> {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.process.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing to do if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_printed_device_commands_work_as_they_stand_and_stay_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    assert_eq!(server.commands().len(), 4, "{:?}", server.start_up_text);
    for _first_and_again in 0..2 {
        for command in server.commands().iter().filter(|command| command.contains(" device add ")) {
            let ran = Command::new("sh").current_dir(directory.path()).env_clear().args(["-c", command]).output().unwrap();
            assert!(ran.status.success(), "{command}: {}", text(&ran.stderr));
        }
    }
    let user = server.commands()[0].split(' ').skip_while(|word| *word != "--user").nth(1).unwrap().to_owned();
    let list = finish(directory.path(), &["device", "list", "--user", &user, "--url", &server.url, "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let names: Vec<&Value> = list["devices"].as_array().unwrap().iter().map(|device| &device["deviceName"]).collect();
    assert_eq!(names, ["Demo desktop", "Demo phone"]);

    let ids_of = |server: &Server| {
        let words = server.commands().join(" ");
        words.split(' ').filter(|word| word.parse::<relay_protocol::id::DeviceId>().is_ok()).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let first = ids_of(&server);
    assert_eq!(server.end("-TERM"), Some(0));
    assert!(!directory.path().join("ready.json").exists());
    let server = Server::start(directory.path(), &[]);
    assert_eq!(ids_of(&server), first);
    assert_eq!(server.end("-INT"), Some(0));
}

#[test]
fn devices_are_added_listed_and_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let run = |arguments: &[&str]| {
        let (access, command) = (["--user", USER, "--url", &server.url], arguments);
        finish(directory.path(), &[&["device"], command, &access].concat())
    };
    let added = run(&["add", "--role", "desktop", "--name", "Workshop", "--json"]);
    let device: Value = serde_json::from_slice(&added.stdout).unwrap();
    let id = device["deviceId"].as_str().unwrap();
    let table = run(&["list"]);
    let row = text(&table.stdout).lines().nth(1).unwrap();
    assert!(row.starts_with(id) && row.ends_with("Workshop"), "{row}");
    assert_eq!(run(&["forget", "--device", id]).status.code(), Some(0));
    let again = run(&["forget", "--device", id]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("deviceNotFound"), "{}", text(&again.stderr));
    assert_eq!(run(&["add", "--role", "phone", "--name", "x"]).status.code(), Some(2));
}

#[test]
fn a_token_stands_alone_on_standard_output() {
    let directory = tempfile::tempdir().unwrap();
    let missing = finish(directory.path(), &["token", "--user", USER]);
    assert_eq!((missing.status.code(), text(&missing.stdout)), (Some(1), ""));
    assert!(text(&missing.stderr).contains("jwt-secret"), "{}", text(&missing.stderr));

    let server = Server::start(directory.path(), &[]);
    let minted = finish(directory.path(), &["token", "--user", USER, "--ttl", "1m"]);
    assert_eq!(server.end("-TERM"), Some(0));
    assert_eq!((minted.status.code(), text(&minted.stderr)), (Some(0), ""));
    let token = text(&minted.stdout).strip_suffix('\n').unwrap();
    let secret = jwt_secret_in(&directory.path().join("relay-data")).unwrap();
    let authenticator = Authenticator::new(&TokenRules { secret, issuer: None, audience: None }).unwrap();
    let mut headers = actix_web::http::header::HeaderMap::new();
    headers.insert(actix_web::http::header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    assert_eq!(authenticator.authenticate(&headers, EpochMs::now()).unwrap().to_string(), USER);
}

#[test]
fn wrong_use_ends_with_2_and_names_the_flag() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, flag) in [
        (vec!["serve", "--silence-timeout", "30s"], "--silence-timeout"),
        (vec!["serve", "--jwt-secret", "too-short-a-secret"], "--jwt-secret"),
        (vec!["serve", "--max-message", "32MB"], "--max-message"),
        (vec!["serve", "--no-such-flag"], "--no-such-flag"),
        (vec!["token", "--user", USER, "--ttl", "0s"], "--ttl"),
        (vec!["token"], "--user"),
        (vec!["device", "list"], "--user"),
    ] {
        let output = finish(directory.path(), &arguments);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{arguments:?}");
        let problem = text(&output.stderr);
        assert!(problem.contains(flag) && !problem.contains("too-short-a-secret"), "{arguments:?}: {problem}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was started");
}

#[test]
fn a_start_that_cannot_be_ends_with_1_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = finish(directory.path(), &["serve", "--listen", &address, "--admin-listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--listen HOST:PORT"), "{}", text(&output.stderr));

    let secret = directory.path().join("relay-data/jwt-secret");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = finish(directory.path(), &["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("chmod 600"), "{}", text(&output.stderr));
}

#[test]
fn a_server_that_is_not_there_ends_a_command_with_3() {
    let directory = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let secret = "s".repeat(32);
    let url = format!("http://{free}");
    let output = finish(directory.path(), &["device", "list", "--user", USER, "--url", &url, "--jwt-secret", &secret]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}

#[test]
fn log_lines_are_json_when_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = relay(directory.path());
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log-format", "json", "--log", "info"]);
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let serving = lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let found = serving.into_iter().any(|line| line["message"] == "serving" && line["level"] == "INFO");
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(found);
}
