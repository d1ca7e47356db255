//! `relay phone` while its desktop is away: it keeps trying for `--wait`, says so once, and gives up on anything else at once.

use crate::{
    clients::{Server, output, payload, phone, send, texts},
    support::{account::Account, relay_process::RelayProcess, running_desktop::RunningDesktop, token::TEST_SECRET},
};
use relay_endpoints::desktop::SampleRouter;
use serde_json::{Value, json};
use std::{process::Stdio, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    time::{Instant, timeout},
};

const OFFLINE: &str = r#"{"code":-32010,"message":"Desktop is offline","data":{"retryable":true}}"#;
const RECONNECTING: &str = r#"{"code":-32011,"message":"Desktop is reconnecting","data":{"retryable":true}}"#;

/// A call of the account's phone, with the relay's own secret.
fn call(account: &Account, wait: &str) -> Command {
    let [user, device, desktop] = [account.user.to_string(), account.phones[0].to_string(), account.desktops[0].to_string()];
    let url = account.address.to_string();
    let mut command = Command::new(crate::RELAY);
    command.env_clear().env("RELAY_JWT_SECRET", TEST_SECRET).env("RELAY_URL", url).stdin(Stdio::null()).kill_on_drop(true);
    command.args(["phone", "--user", &user, "--device", &device, "--desktop", &desktop, "call", "system.ping", "--wait", wait]);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_that_comes_while_the_phone_waits_is_called() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let mut waiting = call(&account, "1m").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let told = timeout(crate::support::PATIENCE, stderr.next_line()).await.unwrap().unwrap().unwrap();
    assert_eq!(told, "-32010 Desktop is offline; trying again for up to 1m");
    let (desktop, _registered) = RunningDesktop::start(account.desktop(0), SampleRouter).await;
    let printed = timeout(crate::support::PATIENCE, waiting.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(printed.status.code(), Some(0));
    assert_eq!(serde_json::from_slice::<Value>(&printed.stdout).unwrap()["ok"], true);
    assert_eq!(stderr.next_line().await.unwrap(), None, "it is said once");

    // The same while it reconnects.
    drop(desktop);
    let (printed, desktop) = tokio::join!(output(call(&account, "1m")), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        RunningDesktop::start(account.desktop(0), SampleRouter).await
    });
    assert_eq!(texts(&printed).0, 0);
    drop(desktop);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_time_is_over_the_last_refusal_counts() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let started = Instant::now();
    let printed = output(call(&account, "700ms")).await;
    assert!(started.elapsed() >= Duration::from_millis(700), "{:?}", started.elapsed());
    let told = "-32010 Desktop is offline; trying again for up to 700ms\nerror: -32010 Desktop is offline (retryable)\n";
    assert_eq!(texts(&printed), (3, "", told));
    assert_eq!(texts(&output(call(&account, "0s")).await), (3, "", "error: -32010 Desktop is offline (retryable)\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_share_the_connection_and_a_mutation_its_key() {
    let server = Server::start().await;
    let serving = async {
        let mut socket = server.accept_registered().await;
        let mut requests = Vec::new();
        for outcome in [format!(r#""error":{OFFLINE}"#), format!(r#""error":{RECONNECTING}"#), r#""result":{"done":1}"#.to_owned()] {
            let request = payload(&mut socket).await;
            send(&mut socket, &format!(r#"{{"type":"rpc.response","payload":{{"id":{},{outcome},"isFinal":true}}}}"#, request["id"])).await;
            requests.push(request);
        }
        requests
    };
    let (printed, requests) = tokio::join!(output(phone(&server.url, &["session.create", "{\"a\":1}"])), serving);
    assert_eq!((texts(&printed).0, texts(&printed).1), (0, "{\"done\":1}\n"));
    let key = requests[0]["idempotencyKey"].as_str().expect("a mutation has a key");
    for request in &requests {
        assert_eq!((&request["idempotencyKey"], &request["params"]), (&Value::from(key), &json!({"a": 1})));
    }
    assert_ne!(requests[0]["id"], requests[1]["id"], "each attempt is a request of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_that_is_refused_for_now_is_tried_again() {
    let server = Server::start().await;
    let serving = async {
        for _attempt in 0..2 {
            let mut socket = server.accept().await;
            payload(&mut socket).await;
            send(&mut socket, r#"{"type":"error","payload":{"code":"deviceLookupUnavailable","message":"m.","retryable":true}}"#).await;
        }
        server.answer_call(r#""result":1"#).await;
    };
    let (printed, ()) = tokio::join!(output(phone(&server.url, &["session.get"])), serving);
    assert_eq!(texts(&printed), (0, "1\n", "deviceLookupUnavailable: m; trying again for up to 5s\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_other_refusal_ends_it_at_once() {
    let server = Server::start().await;
    for error in
        [-32020, -32023, -32024, -32600, -32603].map(|code| format!(r#"{{"code":{code},"message":"m","data":{{"retryable":true}}}}"#))
    {
        let outcome = format!(r#""error":{error}"#);
        // A second attempt would find nobody that answers it.
        let (printed, ()) = tokio::join!(output(phone(&server.url, &["session.get", "--wait", "1h"])), server.answer_call(&outcome));
        assert_eq!(texts(&printed).0, 3, "{error}");
        assert!(!texts(&printed).2.contains("trying again"), "{error}");
    }
    for (refusal, code) in [("deviceNotFound", 1), ("protocolUpdateRequired", 1)] {
        let refuse = async {
            let mut socket = server.accept().await;
            payload(&mut socket).await;
            send(&mut socket, &format!(r#"{{"type":"error","payload":{{"code":"{refusal}","message":"m","retryable":false}}}}"#)).await;
            socket
        };
        let (printed, _socket) = tokio::join!(output(phone(&server.url, &["session.get", "--wait", "1h"])), refuse);
        assert_eq!(texts(&printed).0, code, "{refusal}");
    }
    let url = server.url.clone();
    drop(server);
    assert_eq!(texts(&output(phone(&url, &["session.get", "--wait", "1h"])).await).0, 3, "nothing listens there");
}
