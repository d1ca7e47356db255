//! Devices, tokens, wrong use.

use crate::{Server, USER, finish, text};
use relay::{
    http::auth::jwt::{TokenRules, Verifier},
    secrets::jwt_secret_in,
};
use relay_actors::clock::EpochMs;
use serde_json::Value;
use std::net::TcpListener;

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

#[tokio::test]
async fn a_token_stands_alone_on_standard_output() {
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
    let verifier = Verifier::new(&TokenRules { secret: Some(secret), ..TokenRules::default() }).unwrap();
    assert_eq!(verifier.account_of(token, EpochMs::now()).await.unwrap().to_string(), USER);
}

#[test]
fn wrong_use_ends_with_2_and_names_the_flag() {
    let directory = tempfile::tempdir().unwrap();
    for (arguments, flag) in [
        (vec!["serve", "--silence-timeout", "30s"], "--silence-timeout"),
        (vec!["serve", "--jwt-secret", "too-short-a-secret"], "--jwt-secret"),
        (vec!["serve", "--max-message", "32MB"], "--max-message"),
        (vec!["serve", "--jwks", "absent.json"], "--jwks absent.json"),
        (vec!["serve", "--jwks", "/dev/null"], "--jwks /dev/null"),
        (vec!["serve", "--jwks", "ftp://127.0.0.1/keys.json"], "--jwks"),
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
fn a_server_that_is_not_there_ends_a_command_with_3() {
    let directory = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let secret = "s".repeat(32);
    let url = format!("http://{free}");
    let output = finish(directory.path(), &["device", "list", "--user", USER, "--url", &url, "--jwt-secret", &secret]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}
