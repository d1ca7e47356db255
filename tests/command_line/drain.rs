//! `relay drain` and `relay status`: what they print, how they end, and that the process ends when it is asked to.

use crate::{Server, finish, support::data_dir::DataDir, text};
use serde_json::{Value, json};
use std::net::TcpListener;

#[test]
fn a_relay_is_drained_watched_and_ended_from_the_command_line() {
    let directory = DataDir::new();
    let server = Server::start(&directory, &[]);
    let run = |arguments: &[&str]| {
        let output = finish(&directory, &[arguments, &["--admin-url", &server.admin_url]].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let json = |arguments: &[&str]| serde_json::from_str::<Value>(&run(arguments)).unwrap();
    assert_eq!(json(&["status", "--json"])["drain"]["phase"], "serving");
    assert!(run(&["status"]).lines().any(|line| line.split_whitespace().eq(["drain.phase", "serving"])));

    let progress = json(&["drain", "--wait", "--json"]);
    assert_eq!((&progress["phase"], &progress["socketsLeft"]), (&json!("drained"), &json!(0)));
    assert!(run(&["drain"]).starts_with("drained: 0 in flight, 0 sockets left, "));
    assert_eq!(json(&["status", "--json"])["drain"], progress);
    assert!(run(&["drain", "--wait", "--exit-after-drain"]).starts_with("drained: "));
    let mut server = server;
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
}

#[test]
fn an_operator_without_the_right_token_or_address_is_told_which() {
    let directory = DataDir::new();
    let without = finish(&directory, &["status"]);
    assert_eq!(without.status.code(), Some(1));
    assert!(text(&without.stderr).contains("admin-token"), "{}", text(&without.stderr));

    let server = Server::start(&directory, &[]);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let away = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    for command in ["status", "drain"] {
        let refused = finish(&directory, &[command, "--admin-url", &server.admin_url, "--admin-token", "wrong"]);
        assert_eq!(refused.status.code(), Some(1), "{command}");
        assert!(text(&refused.stderr).contains("unauthorized"), "{}", text(&refused.stderr));
        let unreachable = finish(&directory, &[command, "--admin-url", &away]);
        assert_eq!((unreachable.status.code(), text(&unreachable.stdout)), (Some(3), ""), "{command}");
        assert!(text(&unreachable.stderr).contains(&away), "{}", text(&unreachable.stderr));
    }
    assert_eq!(server.end("-TERM"), Some(0));
}
