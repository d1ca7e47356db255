//! `relay compat`: rules are added, listed and removed, and checks and registrations go by them.

use crate::{Server, USER, finish, support::data_dir::DataDir, text};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// A call without a token: its status and body.
fn check(server: &Server, body: &Value) -> (u16, Value) {
    let address = server.url.strip_prefix("http://").unwrap();
    let body = body.to_string();
    let mut connection = TcpStream::connect(address).unwrap();
    let head =
        format!("POST /public/compatibility/check HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}", body.len());
    write!(connection, "{head}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head["HTTP/1.1 ".len()..][..3].parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[test]
fn rules_are_added_listed_and_removed_and_clients_are_judged_by_them() {
    let directory = DataDir::new();
    let server = Server::start(&directory, &["--policy-cache", "0s"]);
    let run = |arguments: &[&str]| finish(&directory, &[&["compat"], arguments, &["--admin-url", &server.admin_url]].concat());
    let printed = |arguments: &[&str]| {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let json = |arguments: &[&str]| serde_json::from_str::<Value>(&printed(arguments)).unwrap();
    let phone = json!({"mobile": {"appVersion": "1.9", "platform": "ios", "relayProtocolVersion": "1.7"}});
    let decision = || {
        let (status, answer) = check(&server, &phone);
        assert_eq!(status, 200, "{answer}");
        (answer["decision"].as_str().unwrap().to_owned(), answer["message"].as_str().unwrap().to_owned())
    };
    assert_eq!(decision().0, "compatible");

    let minimum = ["add", "--kind", "minimum", "--client", "mobile", "--platform", "iOS", "--min-app-version", "1.10", "--json"];
    let added = json(&[&minimum[..], &["--message", "Update from the store."]].concat());
    assert_eq!((&added["minAppVersion"], &added["maxAppVersion"]), (&json!("1.10"), &Value::Null));
    assert_eq!(decision(), ("unsupportedMobileVersion".into(), "Update from the store.".into()));
    assert_eq!(json(&["list", "--json"]), json!({"rules": [added]}));
    let table = printed(&["list"]);
    let row = table.lines().nth(1).unwrap().split_whitespace().take(8).collect::<Vec<_>>();
    assert_eq!(row, [&added["id"].to_string(), "minimum", "mobile", "iOS", "1.10", "-", "-", "-"]);

    let id = added["id"].to_string();
    assert_eq!(printed(&["remove", "--id", &id]), format!("rule {id} is removed\n"));
    assert_eq!(decision().0, "compatible");
    let again = run(&["remove", "--id", &id]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("compatibilityRuleNotFound"), "{}", text(&again.stderr));
    for (wrong, told) in [
        (&["add", "--kind", "pair", "--client", "mobile"][..], "pairMinAppVersion"),
        (&["add", "--kind", "block", "--client", "mobile", "--min-app-version", "1.x"], "minAppVersion"),
        (&["add", "--kind", "blocks", "--client", "mobile"], "blocks"),
    ] {
        let refused = run(wrong);
        assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(2), ""), "{wrong:?}");
        assert!(text(&refused.stderr).contains(told), "{}", text(&refused.stderr));
    }
    assert_eq!(server.end("-TERM"), Some(0));
}

/// A rule that is added here keeps a desktop out that registers, and is told beforehand to who asks.
#[test]
fn a_protocol_minimum_is_the_same_for_checks_and_registrations() {
    let directory = DataDir::new();
    let server = Server::start(&directory, &["--policy-cache", "0s"]);
    let add = ["compat", "add", "--kind", "minimum", "--client", "desktop", "--minimum-relay-protocol-version", "9.9"];
    let added = finish(&directory, &[&add[..], &["--admin-url", &server.admin_url]].concat());
    assert_eq!(text(&added.stdout), "rule 1 is added\n", "{}", text(&added.stderr));
    let desktop = json!({"desktop": {"appVersion": "1", "platform": "linux", "relayProtocolVersion": "1.7"}});
    let (_, answer) = check(&server, &desktop);
    assert_eq!((&answer["decision"], &answer["requiredRelayProtocolVersion"]), (&json!("protocolUpdateRequired"), &json!("9.9")));

    let at = ["--url", &server.url, "--user", USER];
    let device = finish(&directory, &[&["device", "add", "--role", "desktop", "--name", "d", "--json"], &at[..]].concat());
    let device: Value = serde_json::from_slice(&device.stdout).unwrap();
    let refused = finish(&directory, &[&["desktop", "--device", device["deviceId"].as_str().unwrap()], &at[..]].concat());
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("protocolUpdateRequired"), "{}", text(&refused.stderr));
    // A phone does not ask beforehand.
    let route = ["phone", "--device", USER, "--desktop", USER];
    let refused = finish(&directory, &[&route[..], &at, &["call", "system.ping"]].concat());
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("protocolUpdateRequired"), "{}", text(&refused.stderr));
    assert_eq!(server.end("-TERM"), Some(0));
}

/// A version of the application is nothing that the registration looks at: only the check keeps it out, with the operator's words.
#[test]
fn a_desktop_whose_version_is_refused_says_so_and_does_not_connect() {
    let directory = DataDir::new();
    let server = Server::start(&directory, &["--policy-cache", "0s"]);
    let compat = |arguments: &[&str]| finish(&directory, &[&["compat"], arguments, &["--admin-url", &server.admin_url]].concat());
    let minimum = ["add", "--kind", "minimum", "--client", "desktop", "--min-app-version", "999", "--message", "Get 999 at the desk."];
    assert_eq!(text(&compat(&minimum).stdout), "rule 1 is added\n");
    // No device has this ID, which only a registration finds out.
    let desktop = || finish(&directory, &["desktop", "--device", USER, "--url", &server.url, "--user", USER]);
    let refused = desktop();
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), ""), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("unsupportedDesktopVersion: Get 999 at the desk."), "{}", text(&refused.stderr));

    assert_eq!(compat(&["remove", "--id", "1"]).status.code(), Some(0));
    let unknown = desktop();
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("deviceNotFound"), "{}", text(&unknown.stderr));
    assert_eq!(server.end("-TERM"), Some(0));
}
