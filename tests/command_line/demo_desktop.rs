//! `relay desktop --demo` behind a real relay: what a phone gets from it, also when it is killed.

mod kills;
mod tour;

use crate::{
    clients::{output, texts},
    support::{
        PATIENCE,
        account::Account,
        desktop_process::{desktop_command, registered},
        relay_process::RelayProcess,
    },
};
use relay_endpoints::phone::{CallError, Events, Phone};
use relay_protocol::contract;
use serde_json::{Value, json, value::RawValue};
use std::path::Path;
use tempfile::TempDir;
use tokio::{process::Child, time::timeout};

/// An agent that writes its second word after the tests.
const SLOW: [&str; 2] = ["--demo-pace", "1h"];
/// One that is done soon.
const FAST: [&str; 2] = ["--demo-pace", "1ms"];

/// A relay, a demo desktop as a process, and a phone.
struct Demo {
    _relay: RelayProcess,
    account: Account,
    /// The desktop's state.
    data: TempDir,
    desktop: Child,
    phone: Phone,
}

impl Demo {
    async fn start(flags: &[&str]) -> Self {
        let relay = RelayProcess::start(&[]).await;
        let account = Account::new(&relay, 1, 1).await;
        let data = tempfile::tempdir().unwrap();
        let desktop = start_desktop(&account, data.path(), flags).await;
        let phone = Phone::connect(account.phone(0, 0)).await.unwrap();
        Demo { _relay: relay, account, data, desktop, phone }
    }

    /// Ends the desktop as the system does when it has no memory left, and starts it again on what it left.
    async fn kill_and_restart(&mut self, flags: &[&str]) {
        self.desktop.kill().await.unwrap();
        self.restart(flags).await;
    }

    /// Starts the desktop again on what the one before has left.
    async fn restart(&mut self, flags: &[&str]) {
        self.desktop = start_desktop(&self.account, self.data.path(), flags).await;
    }

    /// The result, or the code of the error.
    async fn call_with(&self, method: &str, params: &Value, key: Option<&str>) -> Result<Value, i64> {
        let params = RawValue::from_string(params.to_string()).unwrap();
        match timeout(PATIENCE, self.phone.call(method, Some(&params), key.map(str::to_owned))).await.expect("an answer") {
            Ok(result) => Ok(serde_json::from_str(result.get()).unwrap()),
            Err(CallError::Refused(error)) => Err(error.code),
            Err(other) => panic!("{other}"),
        }
    }

    /// The result, or the code of the error. A mutation has a key of its own.
    async fn call(&self, method: &str, params: Value) -> Result<Value, i64> {
        self.call_with(method, &params, None).await
    }

    async fn submit(&self, params: Value) -> Result<Value, i64> {
        self.call("run.chatOutboxSubmit", params).await
    }

    /// What the operations of a session have become: its messages, and what waits.
    async fn messages(&self) -> Vec<Value> {
        let loaded = self.call("run.chatLoad", json!({"appSessionId": "demo", "limit": 200})).await.unwrap();
        let waiting = self.call("run.chatOutboxList", json!({"sessionId": "demo"})).await.unwrap();
        let entries = loaded["entries"].as_array().unwrap().iter().chain(waiting["entries"].as_array().unwrap());
        entries.map(|entry| entry["operationId"].clone()).filter(|operation| !operation.is_null()).collect()
    }

    /// Watches the session. What the desktop publishes from now on is seen.
    async fn watch(&self) -> Events {
        let watch = self.phone.watch("demo");
        let events = self.phone.events();
        // The lease goes out before a second call does, whichever of lease and first call is first.
        self.call("system.ping", json!({})).await.unwrap();
        // Until the phone is gone.
        std::mem::forget(watch);
        events
    }
}

async fn start_desktop(account: &Account, data: &Path, flags: &[&str]) -> Child {
    let mut command = desktop_command(account);
    command.args(["--demo", "--data"]).arg(data).args(flags);
    registered(command).await
}

/// Params of `run.chatOutboxSubmit`, by number.
fn message(number: usize) -> Value {
    json!({
        "queueId": format!("queue-{number}"), "operationId": format!("operation-{number}"), "sessionId": "demo",
        "userText": "Explain the settings flow.", "promptText": "Explain the settings flow.", "attachments": [], "speedMode": "standard",
        "createdAt": 1789214400000_u64, "updatedAt": 1789214400000_u64, "intent": "enqueue", "sendMode": "queue", "source": "composer",
    })
}

fn with(mut params: Value, field: &str, value: Value) -> Value {
    params[field] = value;
    params
}

/// The payload of the next timeline frame.
async fn frame(events: &mut Events) -> Value {
    loop {
        let event = timeout(PATIENCE, events.recv()).await.expect("an event").unwrap();
        if event.event_type == "chat:stream" {
            return serde_json::from_str(event.payload.get()).unwrap();
        }
    }
}

/// Waits until the agent has taken up a message, or is done with it.
async fn until(events: &mut Events, operation: &str, state: &str) -> Value {
    loop {
        let frame = frame(events).await;
        if frame["run"]["operationId"] == operation && frame["run"]["state"] == state {
            return frame["run"].clone();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_from_newest_to_oldest_have_neither_gap_nor_double_while_the_agent_writes() {
    let demo = Demo::start(&FAST).await;
    let mut events = demo.watch().await;
    let mut page = demo.call("run.chatLoad", json!({"appSessionId": "demo", "limit": 11})).await.unwrap();
    assert_eq!((&page["storageFormat"], &page["agent"]), (&json!("indexed"), &json!("codex")));
    let newest = page["historyRevision"].as_i64().unwrap();
    assert!(newest >= 120);
    let mut seen: Vec<i64> = Vec::new();
    for number in 0.. {
        let entries = page["entries"].as_array().unwrap();
        seen.splice(0..0, entries.iter().map(|entry| entry["sequence"].as_i64().unwrap()));
        let Some(cursor) = page["olderCursor"].as_str().map(str::to_owned) else { break };
        demo.submit(message(number)).await.unwrap();
        until(&mut events, &format!("operation-{number}"), "completed").await;
        page = demo.call("run.chatLoadPageBefore", json!({"appSessionId": "demo", "cursor": cursor, "limit": 11})).await.unwrap();
    }
    assert_eq!(seen, (1..=newest).collect::<Vec<_>>());
    let native = demo.call("run.chatLoad", json!({"appSessionId": "demo-claude"})).await.unwrap();
    assert_eq!(native["storageFormat"], "native");
    for params in [json!({"appSessionId": "demo", "cursor": "made-up"}), json!({"appSessionId": "demo"})] {
        assert_eq!(demo.call("run.chatLoadPageBefore", params).await, Err(-32602));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_session_streams_drafts_the_entries_and_the_run() {
    let demo = Demo::start(&["--demo-pace", "20ms"]).await;
    let mut events = demo.watch().await;
    demo.submit(message(1)).await.unwrap();
    let mut frames = Vec::new();
    while frames.last().is_none_or(|frame: &Value| frame["run"]["state"] != "completed") {
        frames.push(frame(&mut events).await);
    }
    let texts = |kind: &str| frames.iter().filter(|frame| frame["kind"] == kind).collect::<Vec<_>>();
    let drafts = texts("draft");
    assert!(drafts.len() > 1, "{frames:?}");
    let key = format!("run:{}", frames.last().unwrap()["run"]["runId"].as_str().unwrap());
    let mut before = "";
    for draft in drafts {
        let text = draft["text"].as_str().unwrap();
        assert!(text.starts_with(before) && text.len() > before.len(), "{text:?} comes after {before:?}");
        assert_eq!(draft["timelineKey"], key);
        before = text;
    }
    let entries: Vec<_> = texts("entry").iter().map(|frame| frame["entry"].clone()).collect();
    let kinds: Vec<_> = entries.iter().map(|entry| (entry["sequence"].as_i64().unwrap(), entry["kind"].as_str().unwrap())).collect();
    assert_eq!(kinds, [(121, "userMessage"), (122, "agentMessage")]);
    assert!(entries[1]["text"].as_str().unwrap().starts_with(before));
    let loaded = demo.call("run.chatLoad", json!({"appSessionId": "demo", "limit": 2})).await.unwrap();
    assert_eq!(loaded["entries"], Value::from(entries));
    let usage = demo.call("run.chatContextUsage", json!({"appSessionId": "demo"})).await.unwrap();
    assert_eq!(usage["contextUsage"], frames.last().unwrap()["contextUsage"]);
    assert!(usage["contextUsage"]["usedTokens"].as_u64().unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_sent_once_whatever_keys_its_repeats_have() {
    let demo = Demo::start(&SLOW).await;
    let first = demo.call_with("run.chatOutboxSubmit", &message(1), Some("key-1")).await.unwrap();
    assert_eq!(first["receipt"], json!({"queueId": "queue-1", "operationId": "operation-1"}));
    assert_eq!(demo.call_with("run.chatOutboxSubmit", &message(1), Some("key-2")).await.unwrap()["receipt"], first["receipt"]);
    assert_eq!(demo.messages().await, ["operation-1"]);
    let other = with(message(1), "userText", json!("Another text."));
    for key in ["key-1", "key-3"] {
        assert_eq!(demo.call_with("run.chatOutboxSubmit", &other, Some(key)).await, Err(-32043), "{key}");
    }
    assert_eq!(demo.messages().await, ["operation-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_phone_sends_wrongly_is_refused_by_its_code() {
    let demo = Demo::start(&[]).await;
    for (method, params, code) in [
        ("run.chatOutboxSubmit", with(message(1), "surprise", json!(1)), -32602),
        ("run.chatOutboxSubmit", with(message(1), "queue_id", json!("queue-1")), -32602),
        ("run.chatOutboxSubmit", with(message(1), "speedMode", json!("warp")), -32602),
        ("run.chatOutboxSubmit", with(message(1), "operationId", json!("")), -32602),
        ("run.chatOutboxSubmit", with(message(1), "sessionId", json!("nowhere")), -32042),
        ("system.updateReplyStyle", json!({"style": "loud"}), -32602),
        ("system.ping", json!({"surprise": 1}), -32602),
        ("session.get", json!({"session_id": "demo"}), -32602),
        ("session.create", json!({"projectId": "example"}), -32602),
        ("run.chatLoad", json!({"appSessionId": "nowhere"}), -32042),
        ("run.cancel", json!({"sessionId": "demo", "runId": "nothing"}), -32042),
        ("files.getGitStatus", json!({"anything": 1}), -32047),
        ("files.list", json!({}), -32042),
    ] {
        assert_eq!(demo.call(method, params.clone()).await, Err(code), "{method} {params}");
    }
    assert!(demo.messages().await.is_empty());
    let seventeen = vec![json!({"sessionId": "demo"}); 17];
    assert_eq!(demo.call("run.chatReconcileSessions", json!({"sessions": seventeen})).await, Err(-32602));
    let known = json!({"sessions": [{"sessionId": "demo", "latestSequence": 118}, {"sessionId": "gone"}]});
    let reconciled = demo.call("run.chatReconcileSessions", known).await.unwrap();
    assert_eq!(reconciled["sessions"][0]["entries"].as_array().unwrap().len(), 2);
    assert_eq!((&reconciled["sessions"][0]["isGone"], &reconciled["sessions"][1]["isGone"]), (&json!(false), &json!(true)));
}

/// A method that it does not have says so before it looks at its params.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_lists_the_methods_that_there_are() {
    let demo = Demo::start(&[]).await;
    let mut answered = Vec::new();
    for method in contract::methods() {
        // The relay reads the params of one method.
        let params = if method.name == "session.syncHistoryState" {
            json!({"sessions": [{"sessionId": "demo", "historyRevision": 1}]})
        } else {
            json!({})
        };
        if demo.call(method.name, params).await != Err(-32047) {
            answered.push(method.name);
        }
    }
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/protocol.md")).unwrap();
    let section = page.split("\n## The demo desktop\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut listed: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    listed.retain(|name| name.contains('.'));
    answered.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, answered);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_the_run_that_it_names_and_no_other() {
    let demo = Demo::start(&SLOW).await;
    let mut events = demo.watch().await;
    for number in 1..=3 {
        demo.submit(message(number)).await.unwrap();
    }
    let first = until(&mut events, "operation-1", "running").await;
    let cancel = json!({"sessionId": "demo", "runId": first["runId"]});
    assert_eq!(demo.call("run.cancel", cancel.clone()).await.unwrap()["run"]["state"], "cancelled");
    until(&mut events, "operation-1", "cancelled").await;
    let second = until(&mut events, "operation-2", "running").await;
    assert_eq!(demo.call("run.cancel", cancel).await, Err(-32043), "it is over");
    assert_eq!(demo.call("run.getRunState", json!({"sessionId": "demo"})).await.unwrap()["run"]["runId"], second["runId"]);

    let send_now = json!({
        "sessionId": "demo", "queueId": "queue-3", "operationId": "operation-3", "expectedRunId": first["runId"],
        "expectedThreadId": second["threadId"], "expectedTurnId": second["turnId"],
    });
    assert_eq!(demo.call("run.chatOutboxStopAndSendNow", send_now.clone()).await, Err(-32043), "another run than was seen");
    let send_now = with(send_now, "expectedRunId", second["runId"].clone());
    let sent = demo.call("run.chatOutboxStopAndSendNow", send_now).await.unwrap();
    assert_eq!(sent, json!({"entries": [], "receipt": {"queueId": "queue-3", "operationId": "operation-3"}}));
    until(&mut events, "operation-3", "running").await;
    let active = demo.call("run.listActiveRuns", json!({})).await.unwrap();
    assert_eq!(active["runs"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read_below_their_folder_and_nowhere_else() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    std::fs::create_dir_all(root.join("docs")).unwrap();
    std::fs::write(outer.path().join("secret"), "secret").unwrap();
    std::fs::write(root.join("docs/a.txt"), "text").unwrap();
    std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
    let demo = Demo::start(&["--files", root.to_str().unwrap()]).await;
    let listed = demo.call("files.list", json!({"path": "docs"})).await.unwrap();
    assert_eq!(listed["entries"], json!([{"name": "a.txt", "kind": "file"}]));
    assert_eq!(demo.call("files.readContent", json!({"path": "docs/a.txt"})).await.unwrap()["content"], "text");
    assert_eq!(demo.call("files.readBinary", json!({"path": "docs/a.txt"})).await.unwrap()["data"], "dGV4dA==");
    assert_eq!(demo.call("files.search", json!({"query": "A."})).await.unwrap()["matches"][0]["path"], "docs/a.txt");
    let absolute = outer.path().join("secret");
    for (path, code) in [("../secret", -32602), (absolute.to_str().unwrap(), -32602), ("link", -32041), ("docs/none", -32042)] {
        for method in ["files.readContent", "files.readBinary", "files.stat", "files.list"] {
            assert_eq!(demo.call(method, json!({"path": path})).await, Err(code), "{method} {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_has_one_desktop_at_a_time_and_the_flags_belong_together() {
    let demo = Demo::start(&[]).await;
    let command = |flags: &[&str]| {
        let mut command = desktop_command(&demo.account);
        command.args(flags);
        command
    };
    let data = demo.data.path().to_str().unwrap();
    let second = output(command(&["--demo", "--data", data])).await;
    assert_eq!(texts(&second), (1, "", format!("error: another demo desktop uses {data}\n").as_str()));
    let missing = output(command(&["--demo", "--data", data, "--files", "/nowhere/at/all"])).await;
    assert_eq!(missing.status.code(), Some(1));
    for wrong in [
        &["--data", data][..],
        &["--files", data],
        &["--demo-pace", "1s"],
        &["--demo", "--demo-timeline"],
        &["--demo", "--demo-pace", "0s"],
    ] {
        assert_eq!(output(command(wrong)).await.status.code(), Some(2), "{wrong:?}");
    }
    let mut key = command(&["--demo", "--data", data]);
    key.env("RELAY_TOKEN", "rk_0123456789");
    let refused = output(key).await;
    assert_eq!(texts(&refused), (2, "", "error: give --user UUID: an API key does not say whose it is\n"));
}
