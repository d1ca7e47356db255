//! What is left of a demo desktop that is killed: all that it has answered for, and each message once.

use super::{Demo, FAST, SLOW, message, until};
use crate::support::PATIENCE;
use relay_endpoints::{
    desktop::demo::{DATABASE_FILE, IDEMPOTENCY_FILE},
    phone::Request,
};
use rusqlite::Connection;
use serde_json::{Value, json, value::RawValue};
use std::{path::Path, time::Duration};
use tokio::time::{sleep, timeout};

/// How often a file that another process writes is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until the desktop has claimed a key of this method.
async fn claimed(data: &Path, method: &str) {
    let file = Connection::open(data.join(IDEMPOTENCY_FILE)).unwrap();
    let mut looked_up = file.prepare("SELECT 1 FROM remote_rpc_idempotency WHERE method = ?1 AND state = 'running'").unwrap();
    let looking = async {
        while !looked_up.exists([method]).unwrap() {
            sleep(POLL_INTERVAL).await;
        }
    };
    timeout(PATIENCE, looking).await.expect("the key is claimed");
}

impl Demo {
    /// Kills the desktop between its claim of a mutation's key and the reply, and starts it again.
    async fn kill_in_the_middle(&mut self, method: &str, params: &Value, key: &str) {
        // The handler waits for whoever writes the state.
        let state = Connection::open(self.data.path().join(DATABASE_FILE)).unwrap();
        state.execute_batch("BEGIN IMMEDIATE").unwrap();
        let params = Some(RawValue::from_string(params.to_string()).unwrap());
        let request = Request { params, idempotency_key: Some(key.to_owned()), ..Request::new(method) };
        let mut cut_off = self.phone.start(request).await.unwrap();
        claimed(self.data.path(), method).await;
        self.desktop.kill().await.unwrap();
        let answer = timeout(PATIENCE, cut_off.next()).await.expect("the relay sees its end").expect_err("no desktop answered");
        assert!(answer.to_string().contains("-32011"), "{answer}");
        drop(state);
        self.restart(&SLOW).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_submission_was_cut_off_is_sent_once_when_it_is_submitted_again() {
    let mut demo = Demo::start(&SLOW).await;
    demo.kill_in_the_middle("run.chatOutboxSubmit", &message(1), "key-1").await;
    assert!(demo.messages().await.is_empty(), "nothing was written");
    for key in ["key-1", "key-1", "key-2"] {
        let submitted = demo.call_with("run.chatOutboxSubmit", &message(1), Some(key)).await.expect("it is safe to run again");
        assert_eq!(submitted["receipt"]["operationId"], "operation-1");
    }
    assert_eq!(demo.messages().await, ["operation-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_mutation_that_was_cut_off_does_not_run_again() {
    let mut demo = Demo::start(&SLOW).await;
    let new = json!({"projectId": "example", "agent": "codex"});
    demo.kill_in_the_middle("session.create", &new, "key-1").await;
    assert_eq!(demo.call_with("session.create", &new, Some("key-1")).await, Err(-32050));
    let sessions = demo.call("session.list", json!({})).await.unwrap();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 2, "those of the example");
    demo.call_with("session.create", &new, Some("key-2")).await.expect("another key is another mutation");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_kept_under_its_key_across_a_kill() {
    let mut demo = Demo::start(&FAST).await;
    let new = json!({"projectId": "example", "agent": "codex"});
    let first = demo.call_with("session.create", &new, Some("key-1")).await.unwrap();
    assert_eq!(demo.call_with("session.create", &new, Some("key-1")).await.unwrap(), first);
    demo.kill_and_restart(&FAST).await;
    assert_eq!(demo.call_with("session.create", &new, Some("key-1")).await.unwrap(), first);
    let other = json!({"projectId": "example", "agent": "claude"});
    assert_eq!(demo.call_with("session.create", &other, Some("key-1")).await, Err(-32043));
    let sessions = demo.call("session.list", json!({})).await.unwrap();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_cut_off_is_finished_by_the_next_process_with_one_answer() {
    let mut demo = Demo::start(&SLOW).await;
    let mut events = demo.watch().await;
    demo.submit(message(1)).await.unwrap();
    demo.submit(message(2)).await.unwrap();
    until(&mut events, "operation-1", "running").await;
    demo.kill_and_restart(&FAST).await;
    demo.submit(message(1)).await.expect("the same again");
    demo.submit(message(3)).await.unwrap();
    // Those before it may have been done before the phone's lease was told.
    until(&mut events, "operation-3", "completed").await;
    let loaded = demo.call("run.chatLoad", json!({"appSessionId": "demo", "limit": 6})).await.unwrap();
    let kinds: Vec<&Value> = loaded["entries"].as_array().unwrap().iter().map(|entry| &entry["kind"]).collect();
    assert_eq!(kinds, ["userMessage", "agentMessage", "userMessage", "agentMessage", "userMessage", "agentMessage"]);
    assert_eq!(demo.messages().await, ["operation-1", "operation-2", "operation-3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_and_sessions_outlive_the_process() {
    let mut demo = Demo::start(&FAST).await;
    let updated = demo.call("system.updateReplyStyle", json!({"style": "ste"})).await.unwrap();
    let created = demo.call("session.create", json!({"projectId": "example", "agent": "claude", "conversationId": "c-1"})).await.unwrap();
    demo.kill_and_restart(&FAST).await;
    assert_eq!(demo.call("system.getReplyStyle", json!({})).await.unwrap(), updated);
    assert_eq!(updated["style"], "ste");
    let again = demo.call("session.create", json!({"projectId": "example", "agent": "claude", "conversationId": "c-1"})).await.unwrap();
    assert_eq!((&again["session"], &again["created"]), (&created["session"], &json!(false)));
    let mut events = demo.watch().await;
    demo.submit(message(1)).await.unwrap();
    until(&mut events, "operation-1", "completed").await;
    let loaded = demo.call("run.chatLoad", json!({"appSessionId": "demo", "limit": 1})).await.unwrap();
    assert_eq!(loaded["entries"][0]["text"], "I read 4 words. I am a demo agent. I did no work.");
}
