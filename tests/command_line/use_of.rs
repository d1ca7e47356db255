//! Devices, tokens, wrong use.

use crate::{
    Server, USER,
    clients::{client, output},
    finish,
    support::{account::Account, data_dir::DataDir, relay_process::RelayProcess},
    text,
};
use relay::{
    http::auth::jwt::{TokenRules, Verifier},
    secrets::jwt_secret_in,
};
use relay_actors::clock::EpochMs;
use serde_json::{Value, json};
use std::net::TcpListener;

#[test]
fn devices_are_added_listed_and_forgotten() {
    let directory = DataDir::new();
    let server = Server::start(&directory, &[]);
    let run = |arguments: &[&str]| {
        let (access, command) = (["--user", USER, "--url", &server.url], arguments);
        finish(&directory, &[&["device"], command, &access].concat())
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
fn api_keys_are_made_listed_used_and_revoked() {
    let directory = DataDir::new();
    let server = Server::start(&directory, &[]);
    let run = |arguments: &[&str]| {
        let access = ["--user", USER, "--url", &server.url];
        finish(&directory, &[arguments, &access].concat())
    };
    let made = run(&["api-key", "create", "--scopes", "read", "--name", "dashboard"]);
    let key = text(&made.stdout).strip_suffix('\n').unwrap();
    assert!(key.starts_with("rk_") && !key.contains(char::is_whitespace), "it stands alone: {key}");
    assert!(!text(&made.stderr).contains(key) && text(&made.stderr).contains("not shown again"));
    let as_json = run(&["api-key", "create", "--scopes", "rpc,write", "--json"]);
    let created: Value = serde_json::from_slice(&as_json.stdout).unwrap();
    assert_eq!((&created["scopes"], &created["name"]), (&json!(["rpc", "write"]), &Value::Null));
    assert!(created["apiKey"].as_str().unwrap().starts_with("rk_"));

    let table = run(&["api-key", "list"]);
    let rows: Vec<&str> = text(&table.stdout).lines().skip(1).collect();
    assert!(rows.len() == 2 && rows[0].ends_with("dashboard") && rows[1].starts_with(created["apiKeyId"].as_str().unwrap()), "{rows:?}");
    let listed: Value = serde_json::from_slice(&run(&["api-key", "list", "--json"]).stdout).unwrap();
    assert!(!listed.to_string().contains("rk_"), "{listed}");

    let with_key = |key: &str, arguments: &[&str]| finish(&directory, &[arguments, &["--token", key, "--url", &server.url]].concat());
    assert_eq!(with_key(key, &["device", "list"]).status.code(), Some(0));
    let added = with_key(key, &["device", "add", "--role", "desktop", "--name", "x"]);
    assert_eq!(added.status.code(), Some(1));
    assert!(text(&added.stderr).contains("insufficientScope"), "{}", text(&added.stderr));
    let desktop = with_key(key, &["desktop", "--device", USER]);
    assert_eq!(desktop.status.code(), Some(1));
    assert!(text(&desktop.stderr).contains("scope rpc"), "{}", text(&desktop.stderr));
    let managing = with_key(created["apiKey"].as_str().unwrap(), &["api-key", "list"]);
    assert!(text(&managing.stderr).contains("accountTokenRequired"), "{}", text(&managing.stderr));

    let id = listed["apiKeys"][0]["apiKeyId"].as_str().unwrap();
    assert_eq!(run(&["api-key", "revoke", "--id", id]).status.code(), Some(0));
    assert_eq!(with_key(key, &["device", "list"]).status.code(), Some(1));
    let again = run(&["api-key", "revoke", "--id", id]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("apiKeyNotFound"), "{}", text(&again.stderr));
    for wrong in ["", "admin", "rpc,"] {
        assert_eq!(run(&["api-key", "create", "--scopes", wrong]).status.code(), Some(2), "{wrong}");
    }
}

/// `relay desktop` and `relay phone` take a key wherever they take a token.
#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_and_a_phone_work_with_an_api_key() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let (answers, calls) = (account.api_key("rpc").await.api_key, account.api_key("rpc,read").await.api_key);
    let url = format!("http://{}", relay.ready().public);
    let (desktop_id, phone_id) = (account.desktops[0].to_string(), account.phones[0].to_string());
    let _desktop = client(&url, &["desktop", "--device", &desktop_id]).env("RELAY_TOKEN", &answers).spawn().unwrap();
    let call = |method: &str| {
        let mut command = client(&url, &["phone", "--device", &phone_id, "--desktop", &desktop_id, "call", method, "--wait", "20s"]);
        command.env("RELAY_TOKEN", &calls);
        command
    };
    let ping = output(call("system.ping")).await;
    assert_eq!(ping.status.code(), Some(0), "{}", text(&ping.stderr));
    let rename = output(call("session.rename")).await;
    assert_eq!(rename.status.code(), Some(1));
    let refused = "error: -32027 The API key of this connection lacks a scope (not retryable); the method needs rpc,write\n";
    assert_eq!(text(&rename.stderr), refused);
}

#[tokio::test]
async fn a_token_stands_alone_on_standard_output() {
    let directory = DataDir::new();
    let missing = finish(&directory, &["token", "--user", USER]);
    assert_eq!((missing.status.code(), text(&missing.stdout)), (Some(1), ""));
    assert!(text(&missing.stderr).contains("jwt-secret"), "{}", text(&missing.stderr));

    let server = Server::start(&directory, &[]);
    let minted = finish(&directory, &["token", "--user", USER, "--ttl", "1m"]);
    assert_eq!(server.end("-TERM"), Some(0));
    assert_eq!((minted.status.code(), text(&minted.stderr)), (Some(0), ""));
    let token = text(&minted.stdout).strip_suffix('\n').unwrap();
    let secret = jwt_secret_in(&directory.path().join("relay-data")).unwrap();
    let verifier = Verifier::new(&TokenRules { secret: Some(secret), ..TokenRules::default() }).unwrap();
    assert_eq!(verifier.account_of(token, EpochMs::now()).await.unwrap().to_string(), USER);
}

#[test]
fn wrong_use_ends_with_2_and_names_the_flag() {
    let directory = DataDir::new();
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
        let output = finish(&directory, &arguments);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{arguments:?}");
        let problem = text(&output.stderr);
        assert!(problem.contains(flag) && !problem.contains("too-short-a-secret"), "{arguments:?}: {problem}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was started");
}

#[test]
fn a_server_that_is_not_there_ends_a_command_with_3() {
    let directory = DataDir::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let secret = "s".repeat(32);
    let url = format!("http://{free}");
    let output = finish(&directory, &["device", "list", "--user", USER, "--url", &url, "--jwt-secret", &secret]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}
