//! What is left of a demo desktop that is killed: all that it has answered for, and each message once.

use super::{Demo, FAST, SLOW, message, until};
use serde_json::{Value, json};

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
