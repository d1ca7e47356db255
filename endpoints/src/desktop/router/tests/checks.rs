//! What is judged before a handler runs, and in which order.

use super::*;
use crate::desktop::router::{Call, NoParams};
use relay_protocol::{contract, id::UserId, limits::desktop::IDEMPOTENCY_KEY_BYTES_MAX};
use serde::Deserialize;
use std::collections::BTreeMap;

fn error(code: i32, message: &str) -> Value {
    json!({"code": code, "message": message, "data": {"retryable": false}})
}

#[tokio::test]
async fn a_request_of_another_account_is_forbidden_before_anything_else() {
    let (system, runs) = counting(Namespace::new("system"), "ping");
    let router = Arc::new(router().namespace(system));
    for method in ["system.ping", "run.cancel", "nonsense"] {
        let stranger: UserId = STRANGER.parse().unwrap();
        let asked = ask(&router, IncomingRequest { user_id: stranger, ..request(method, json!({})) });
        assert_eq!(asked.error().await, error(-32041, "This desktop is signed in to another account."), "{method}");
    }
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    assert_eq!(router.meter().read(), Figures { forbidden: 3, ..Figures::default() });
    assert_eq!(ask(&router, request("system.ping", json!({}))).result().await, json!({"ran": true}));
}

#[tokio::test]
async fn a_method_must_be_in_the_contract_and_have_a_handler() {
    let (run, runs) = counting(Namespace::new("run"), "cancel");
    let router = Arc::new(router().namespace(run));
    assert_eq!(ask(&router, request("run.cancelAll", json!({}))).error().await, error(-32601, "The contract has no such method."));
    // Without a handler a key is not looked at.
    for method in ["system.ping", "run.chatLoad", "run.chatCompact"] {
        let message = format!("This desktop has no method {method}.");
        assert_eq!(ask(&router, request(method, json!({}))).error().await, error(-32601, &message));
    }
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

#[test]
fn a_router_lists_what_it_answers_in_the_contracts_order() {
    let system = Namespace::new("system").on("ping", |_call, _: NoParams| never());
    let run = Namespace::new("run").on("cancel", |_call, _: NoParams| never()).on("chatLoad", |_call, _: NoParams| never());
    let names = |router: &Router| router.methods().map(|method| method.name).collect::<Vec<_>>();
    let router = router().namespace(system).namespace(run);
    let order: Vec<_> = contract::methods().map(|method| method.name).filter(|name| names(&router).contains(name)).collect();
    assert_eq!((names(&router), order.len()), (order, 3));
    assert_eq!(names(&router.namespace(Namespace::new("run"))), ["system.ping"], "the second of a name is in the first one's place");
}

#[test]
#[should_panic(expected = "the contract has no method run.cancelAll")]
fn a_handler_of_no_method_does_not_start() {
    let _ = Namespace::new("run").on("cancelAll", |_call, _: NoParams| never());
}

#[tokio::test]
async fn a_mutation_needs_a_key_that_is_not_blank_and_not_too_long() {
    let run = Namespace::new("run").on("cancel", |call: Call, _: NoParams| async move { Ok(call.idempotency_key.map(|key| key.len())) });
    let router = Arc::new(router().namespace(run));
    let ask_with = |key: Option<String>| ask(&router, IncomingRequest { idempotency_key: key, ..request("run.cancel", json!({})) });

    for blank in [None, Some(""), Some(" \t"), Some("\u{3000}")] {
        let answer = ask_with(blank.map(str::to_owned)).error().await;
        assert_eq!(answer, error(-32602, "A mutation needs an idempotencyKey that is not blank."), "{blank:?}");
    }
    let accents = |bytes: usize| "é".repeat(bytes / 2) + &"a".repeat(bytes % 2);
    for key in ["k".repeat(IDEMPOTENCY_KEY_BYTES_MAX + 1), accents(IDEMPOTENCY_KEY_BYTES_MAX + 1)] {
        assert_eq!(ask_with(Some(key)).error().await, error(-32602, "idempotencyKey must be at most 256 bytes."));
    }
    for key in ["k".to_owned(), "k".repeat(IDEMPOTENCY_KEY_BYTES_MAX), accents(IDEMPOTENCY_KEY_BYTES_MAX)] {
        assert_eq!(ask_with(Some(key.clone())).result().await, key.len());
    }
}

#[tokio::test]
async fn the_key_of_a_method_that_is_no_mutation_is_ignored() {
    let system = Namespace::new("system").on("ping", |call: Call, _: NoParams| async move { Ok(call.idempotency_key.is_some()) });
    let router = Arc::new(router().namespace(system));
    for key in ["".to_owned(), "k".to_owned(), "k".repeat(1_000)] {
        assert_eq!(ask(&router, mutation("system.ping", &key)).result().await, false);
    }
}

/// As a careless author writes it: nothing says that unknown fields are refused.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only read in")]
struct Careless {
    app_session_id: String,
    #[serde(default, alias = "page_size")]
    page_size: u32,
    #[serde(default)]
    inner: Option<Inner>,
    #[serde(default)]
    words: BTreeMap<String, u32>,
    #[serde(default)]
    opaque: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only read in")]
struct Inner {
    file_name: String,
}

#[tokio::test]
async fn unknown_and_snake_case_fields_of_params_are_refused_whatever_the_handler_says() {
    let run = Namespace::new("run").on("chatContextUsage", |_call, _: Careless| async { Ok(()) });
    let router = Arc::new(router().namespace(run));
    for (params, fault) in [
        (json!({"appSessionId": "s", "threadId": "t"}), "unknown field `threadId`"),
        (json!({"appSessionId": "s", "app_session_id": "s"}), "field `app_session_id` is in snake_case"),
        (json!({"appSessionId": "s", "page_size": 1}), "field `page_size` is in snake_case"),
        (json!({"appSessionId": "s", "inner": {"fileName": "a", "size": 1}}), "unknown field `inner.?.size`"),
        (json!({"appSessionId": "s", "inner": {"fileName": "a", "file_name": "a"}}), "unknown field `inner.?.file_name`"),
        (json!({}), "missing field `appSessionId`"),
        (json!([]), "invalid type: sequence, expected an object"),
        (json!(null), "invalid type: null, expected an object"),
    ] {
        let answer = ask(&router, request("run.chatContextUsage", params.clone())).error().await;
        assert_eq!(answer["code"], -32602, "{params}");
        assert!(answer["message"].as_str().unwrap().starts_with(fault), "{params}: {answer}");
    }
    for params in [
        json!({"appSessionId": "s"}),
        json!({"appSessionId": "s", "pageSize": 5, "inner": {"fileName": "a"}}),
        // What is data, or opaque, may have any key.
        json!({"appSessionId": "s", "words": {"user_id": 1}, "opaque": {"old_string": {"a_b": 1}}}),
    ] {
        assert_eq!(ask(&router, request("run.chatContextUsage", params)).result().await, json!(null));
    }
}

#[tokio::test]
async fn a_handler_may_take_any_params() {
    use serde::de::IgnoredAny;
    let run = Namespace::new("run").on("chatContextUsage", |_call, _: IgnoredAny| async { Ok(1) });
    let run = run.on("chatModels", |_call, _: BTreeMap<String, Vec<IgnoredAny>>| async { Ok(2) });
    let router = Arc::new(router().namespace(run));
    assert_eq!(ask(&router, request("run.chatContextUsage", json!({"any": {"thing": 1}}))).result().await, 1);
    assert_eq!(ask(&router, request("run.chatModels", json!({"any": [{"thing": 1}, 2]}))).result().await, 2);
    assert_eq!(ask(&router, request("run.chatContextUsage", json!({"any_thing": 1}))).code().await, -32602);
}

#[tokio::test]
async fn params_are_absent_or_an_empty_object_where_a_method_has_none() {
    let system = Namespace::new("system").on("getReplyStyle", |_call, _: NoParams| async { Ok(1) });
    let router = Arc::new(router().namespace(system));
    let ask_with =
        |params: Option<&str>| ask(&router, IncomingRequest { params: params.map(raw), ..request("system.getReplyStyle", json!({})) });
    for params in [None, Some("{}"), Some(" { } ")] {
        assert_eq!(ask_with(params).result().await, 1, "{params:?}");
    }
    for params in ["null", "[]", "1", "{\"style\":1}", "{\"reply_style\":1}"] {
        assert_eq!(ask_with(Some(params)).code().await, -32602, "{params}");
    }
}

#[tokio::test]
async fn a_fault_of_params_is_told_in_few_bytes_and_depth_costs_no_stack() {
    let run = Namespace::new("run").on("chatContextUsage", |_call, _: Careless| async { Ok(()) });
    let router = Arc::new(router().namespace(run));
    let long = "é".repeat(500_000);
    for params in [format!("{{\"{long}\":1}}"), format!("{{\"appSessionId\":\"s\",\"{long}\":1}}"), format!("{{\"pageSize\":\"{long}\"}}")]
    {
        let answer =
            ask(&router, IncomingRequest { params: Some(raw(params)), ..request("run.chatContextUsage", json!({})) }).error().await;
        assert_eq!(answer["code"], -32602);
        assert!(answer["message"].as_str().unwrap().len() < 250);
    }
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    for (params, code) in
        [(format!("{{\"unknown\":{deep}}}"), Some(-32602)), (format!("{{\"appSessionId\":\"s\",\"opaque\":{deep}}}"), None)]
    {
        let mut asked = ask(&router, IncomingRequest { params: Some(raw(params)), ..request("run.chatContextUsage", json!({})) });
        assert_eq!(asked.next().await["error"]["code"].as_i64(), code);
    }
}

#[tokio::test]
async fn a_handler_learns_who_asks() {
    let system = Namespace::new("system").on("ping", |call: Call, _: NoParams| async move {
        Ok(json!([call.method.name, &*call.id, call.user.to_string(), &*call.device, &*call.traceparent, call.params.unwrap().get()]))
    });
    let router = Arc::new(router().namespace(system));
    assert_eq!(ask(&router, request("system.ping", json!({}))).result().await, json!(["system.ping", "1", USER, PHONE, TRACE, "{}"]));
    assert_eq!(Call::PERMISSIONS.to_string(), "rpc");
    let strange = IncomingRequest { client_id: raw("7"), ..request("system.ping", json!({})) };
    assert_eq!(ask(&router, strange).code().await, -32600);
}

#[test]
fn events_and_refusals_go_to_whoever_listens() {
    use crate::frame::{ErrorFrame, Event};
    let (sender, mut heard) = mpsc::unbounded_channel();
    let other = sender.clone();
    let deaf = router();
    let router = router().events(move |event| sender.send(event.event_type).unwrap()).errors(move |error| other.send(error.code).unwrap());
    let event = || Event { event_type: "agent:notification-result".to_owned(), source_device_id: None, payload: raw("{}") };
    let error = || ErrorFrame { code: "invalidEvent".to_owned(), message: String::new(), retryable: false };
    deaf.on_event(event());
    deaf.on_error(error());
    router.on_event(event());
    router.on_error(error());
    assert_eq!([heard.try_recv().unwrap(), heard.try_recv().unwrap()], ["agent:notification-result", "invalidEvent"]);
    assert!(heard.try_recv().is_err());
}
