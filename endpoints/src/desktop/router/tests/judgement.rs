//! What leaves a desktop, and what does not.

use super::*;
use crate::desktop::router::{Call, NoParams};
use relay_protocol::limits::{
    MESSAGE_BYTES_MAX,
    desktop::{COMMAND_OUTPUT_PAGE_BYTES_MAX, READ_BINARY_BYTES_MAX, RECONCILE_RESULT_BYTES_MAX},
};

/// A router of one method that answers with this text.
fn answering(method: &'static str, text: String) -> Arc<Router> {
    let (namespace, name) = method.split_once('.').unwrap();
    let result = raw(text);
    let namespace = Namespace::new(match namespace {
        "files" => "files",
        "run" => "run",
        _ => "system",
    });
    Arc::new(router().namespace(namespace.on(name, move |_call, _: Value| std::future::ready(Ok(result.clone())))))
}

#[tokio::test]
async fn a_result_with_a_field_in_snake_case_is_replaced_as_a_whole() {
    for text in [r#"{"user_id":1}"#, r#"[0,{"a":{"b":[{"run_id":null}]}}]"#, r#"{"user\u005fid":1}"#] {
        let router = answering("system.ping", text.to_owned());
        let answer = ask(&router, request("system.ping", json!({}))).error().await;
        let expected = json!({"code": -32044, "message": "The result has a field in snake_case.", "data": {"retryable": false}});
        assert_eq!(answer, expected, "{text}: the phone does not learn the name");
        assert_eq!(router.meter().read().snake_case, 1);
    }
    for text in [r#"{"userId":"user_id"}"#, r#"["user_id"]"#, r#""user_id""#, "null"] {
        let router = answering("system.ping", text.to_owned());
        let result = ask(&router, request("system.ping", json!({}))).result().await;
        assert_eq!(result, serde_json::from_str::<Value>(text).unwrap());
    }
}

#[tokio::test]
async fn a_result_passes_byte_for_byte() {
    let text = r#"{ "b" : 1.50e+3, "a":"\ud800 \/ \u00e9", "b":-0 }"#;
    let router = answering("system.ping", text.to_owned());
    let mut asked = ask(&router, request("system.ping", json!({})));
    assert!(asked.frames.recv().await.unwrap().contains(text));
}

#[tokio::test]
async fn a_result_that_does_not_fit_a_frame_is_an_error() {
    let router = answering("system.ping", format!("\"{}\"", "x".repeat(MESSAGE_BYTES_MAX)));
    let answer = ask(&router, request("system.ping", json!({}))).error().await;
    assert_eq!(answer, json!({"code": -32603, "message": "The result does not fit a frame."}));
}

#[tokio::test]
async fn progress_is_sent_in_order_judged_and_not_behind_the_answer() {
    let system = Namespace::new("system").on("ping", |call: Call, _: NoParams| async move {
        call.progress(&json!({"step": 1})).await?;
        call.progress(&json!({"step": 2})).await?;
        call.progress(&json!({"next_step": 3})).await?;
        Ok("not reached")
    });
    let router = Arc::new(router().namespace(system));
    let mut asked = ask(&router, request("system.ping", json!({})));
    for step in 1..=2 {
        let frame = asked.next().await;
        assert_eq!((&frame["result"], &frame["isFinal"]), (&json!({"step": step}), &json!(false)));
    }
    assert_eq!(asked.code().await, -32044);
    assert_eq!(router.meter().read().snake_case, 1);
}

#[tokio::test(start_paused = true)]
async fn progress_that_finds_no_room_costs_the_request_nothing_but_time() {
    let system = Namespace::new("system").on("ping", |call: Call, _: NoParams| async move {
        call.progress(&1).await?;
        Ok("done")
    });
    let router = Arc::new(router().namespace(system));
    let asked = request("system.ping", json!({}));
    let (outbound, mut frames) = mpsc::channel(1);
    outbound.try_send("full".to_owned()).unwrap();
    let replies = Replies::new(&asked, outbound);
    let start = Instant::now();
    let task = tokio::spawn(async move { router.handle(asked, replies).await });
    settle().await;
    advance(relay_protocol::limits::desktop::QUEUE_REPLY).await;
    settle().await;
    assert_eq!(frames.recv().await.unwrap(), "full");
    assert!(frames.recv().await.unwrap().contains(r#""result":"done","isFinal":true"#));
    task.await.unwrap();
    assert_eq!(start.elapsed(), relay_protocol::limits::desktop::QUEUE_REPLY);
}

#[tokio::test]
async fn errors_of_a_handler_say_what_they_mean() {
    let run = Namespace::new("run")
        .on("getRunState", |_call, _: NoParams| async {
            Err::<(), _>(HandlerError::new(DesktopError::NotFound, "There is no such session.").with("sessionId", "s"))
        })
        .on("listActiveRuns", |_call, _: NoParams| async { Err::<(), _>(HandlerError::new(DesktopError::Internal, "It broke.")) })
        .on("chatModels", |_call, _: NoParams| async {
            Err::<(), _>(HandlerError::new(DesktopError::ExternalService, "Away.").retryable())
        });
    let router = Arc::new(router().namespace(run));
    for (method, expected) in [
        (
            "run.getRunState",
            json!({"code": -32042, "message": "There is no such session.", "data": {"sessionId": "s", "retryable": false}}),
        ),
        ("run.listActiveRuns", json!({"code": -32603, "message": "It broke."})),
        ("run.chatModels", json!({"code": -32049, "message": "Away.", "data": {"retryable": true}})),
    ] {
        assert_eq!(ask(&router, request(method, json!({}))).error().await, expected);
    }
}

fn over(code: i32, limit: &str, there: usize, max: usize) -> Value {
    let message = format!("{there} is over the contract's {limit}, {max}.");
    json!({"code": code, "message": message, "data": {"limit": limit, "max": max, "retryable": false}})
}

#[tokio::test]
async fn sixteen_sessions_are_reconciled_in_one_call() {
    let result = raw(r#"{"sessions":[]}"#);
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let run = Namespace::new("run").on("chatReconcileSessions", move |_call, _: Value| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(result.clone()))
    });
    let router = Arc::new(router().namespace(run));
    let ask_for = |count: usize| {
        let sessions: Vec<_> = (0..count).map(|index| json!({"sessionId": index.to_string()})).collect();
        ask(&router, request("run.chatReconcileSessions", json!({"sessions": sessions})))
    };
    assert_eq!(ask_for(17).error().await, over(-32602, "reconcileSessionsPerCall", 17, 16));
    assert_eq!(ask(&router, request("run.chatReconcileSessions", json!({}))).code().await, -32602);
    assert_eq!(runs.load(Ordering::Relaxed), 0, "the handler does not run");
    for count in [0, 16] {
        assert_eq!(ask_for(count).result().await, json!({"sessions": []}));
    }
}

#[tokio::test]
async fn results_of_three_methods_have_limits() {
    let reconciled = |entries: usize| {
        let session =
            |entries| json!({"sessionId": "s", "storageFormat": "native", "outboxEntries": vec![json!({"queueId": "q"}); entries]});
        json!({"sessions": [session(1), session(entries), session(0)]}).to_string()
    };
    let padded =
        |length: usize| format!("{{\"sessions\":[],\"padding\":\"{}\"}}", "x".repeat(length - r#"{"sessions":[],"padding":""}"#.len()));
    let page = |bytes: usize| format!("{{\"output\":\"{}{}\"}}", "\\u00e9".repeat(bytes / 2), "\\n".repeat(bytes % 2));
    let file = |bytes: usize| format!("{{\"data\":\"{}\"}}", base64(bytes));
    for (method, result, fault) in [
        ("run.chatReconcileSessions", reconciled(256), None),
        ("run.chatReconcileSessions", reconciled(257), Some(("reconcileOutboxEntriesPerSession", 257, 256))),
        ("run.chatReconcileSessions", padded(RECONCILE_RESULT_BYTES_MAX), None),
        (
            "run.chatReconcileSessions",
            padded(RECONCILE_RESULT_BYTES_MAX + 1),
            Some(("reconcileResultBytes", RECONCILE_RESULT_BYTES_MAX + 1, RECONCILE_RESULT_BYTES_MAX)),
        ),
        ("run.chatCommandOutputRead", page(0), None),
        ("run.chatCommandOutputRead", page(COMMAND_OUTPUT_PAGE_BYTES_MAX), None),
        (
            "run.chatCommandOutputRead",
            page(COMMAND_OUTPUT_PAGE_BYTES_MAX + 1),
            Some(("commandOutputPageBytes", COMMAND_OUTPUT_PAGE_BYTES_MAX + 1, COMMAND_OUTPUT_PAGE_BYTES_MAX)),
        ),
        ("files.readBinary", file(0), None),
        ("files.readBinary", file(READ_BINARY_BYTES_MAX), None),
        ("files.readBinary", file(READ_BINARY_BYTES_MAX + 1), Some(("readBinaryBytes", READ_BINARY_BYTES_MAX + 1, READ_BINARY_BYTES_MAX))),
    ] {
        let router = answering(method, result);
        let asked = ask(&router, request(method, json!({"sessions": []})));
        match fault {
            None => assert!(asked.result().await.is_object(), "{method}"),
            Some((limit, there, max)) => {
                assert_eq!(asked.error().await, over(-32044, limit, there, max));
                assert_eq!(router.meter().read().over_limit, 1);
            }
        }
    }
}

/// As many bytes as given, in base64 with padding.
fn base64(bytes: usize) -> String {
    let characters = (bytes * 4).div_ceil(3);
    "A".repeat(characters) + &"=".repeat(characters.next_multiple_of(4) - characters)
}

#[tokio::test]
async fn a_result_that_cannot_be_judged_does_not_leave() {
    for (method, result) in [
        ("run.chatReconcileSessions", "{}"),
        ("run.chatReconcileSessions", r#"{"sessions":[{"sessionId":"s"}]}"#),
        ("run.chatCommandOutputRead", r#"{"text":"x"}"#),
        ("run.chatCommandOutputRead", r#"{"output":["x"]}"#),
        ("files.readBinary", "null"),
    ] {
        let router = answering(method, result.to_owned());
        let answer = ask(&router, request(method, json!({"sessions": []}))).error().await;
        assert_eq!(answer["code"], -32044, "{method} {result}");
    }
}
