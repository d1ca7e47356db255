//! `relay drain`, `relay status`, `relay log-level`: what they print, how they end, and that the process ends when it is asked to.

use crate::{Server, finish, support::data_dir::DataDir, text};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
};

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
    for command in ["status", "drain", "log-level"] {
        let refused = finish(&directory, &[command, "--admin-url", &server.admin_url, "--admin-token", "wrong"]);
        assert_eq!(refused.status.code(), Some(1), "{command}");
        assert!(text(&refused.stderr).contains("unauthorized"), "{}", text(&refused.stderr));
        let unreachable = finish(&directory, &[command, "--admin-url", &away]);
        assert_eq!((unreachable.status.code(), text(&unreachable.stdout)), (Some(3), ""), "{command}");
        assert!(text(&unreachable.stderr).contains(&away), "{}", text(&unreachable.stderr));
    }
    assert_eq!(server.end("-TERM"), Some(0));
}

/// The looks of `--wait` are 250 ms apart, so a process may end right behind one that counted a socket.
#[test]
fn a_process_that_ended_between_two_looks_has_left_nothing_behind() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let relay = thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        assert!(connection.read(&mut [0; 4_096]).unwrap() > 0);
        let body = json!({"phase": "closing", "inFlight": 2, "socketsLeft": 1, "elapsedMs": 60_000}).to_string();
        let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
    });
    let directory = DataDir::new();
    let command = ["drain", "--wait", "--exit-after-drain", "--json", "--admin-token", "t", "--admin-url", &url];
    let output = finish(&directory, &command);
    relay.join().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["phase"], "drained");
    assert_eq!((&told["inFlight"], &told["socketsLeft"]), (&json!(0), &json!(0)));
    assert!(told["elapsedMs"].as_u64().unwrap() > 60_000, "{told}");
}

#[test]
fn what_is_logged_is_shown_and_changed_from_the_command_line() {
    let directory = DataDir::new();
    let server = Server::start(&directory, &["--log", "warn"]);
    let run = |arguments: &[&str]| finish(&directory, &[&["log-level", "--admin-url", &server.admin_url], arguments].concat());
    let printed = |arguments: &[&str]| {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    assert_eq!(printed(&[]), "warn\n");
    assert_eq!(printed(&["info,relay_actors=debug"]), "info,relay_actors=debug\n");
    assert_eq!(serde_json::from_str::<Value>(&printed(&["--json"])).unwrap(), json!({"filter": "info,relay_actors=debug"}));
    let refused = run(&["info,relay=loud"]);
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), ""));
    assert!(text(&refused.stderr).contains("relay=loud"), "{}", text(&refused.stderr));
    assert_eq!(printed(&[]), "info,relay_actors=debug\n");
    assert_eq!(server.end("-TERM"), Some(0));
}
