//! The way of one call: what the desktop is told, and what the phone gets back.

use super::{Message, TRACE, assert_pair_works, json_string, pair};
use crate::support::{account::Account, relay_process::RelayProcess, running_desktop::RunningDesktop};
use relay_endpoints::{
    desktop::{Replies, SampleRouter},
    frame::{IncomingRequest, Outcome},
    phone::{Phone, Request, Step},
};
use serde_json::{Value, json, value::RawValue};

#[tokio::test(flavor = "multi_thread")]
async fn a_ping_goes_to_the_desktop_and_back() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let (_desktop, _) = RunningDesktop::start(account.desktop(0), SampleRouter).await;
    let phone = Phone::connect(account.phone(0, 0)).await.unwrap();
    let result = phone.call("system.ping", None, None).await.unwrap();
    let mut result: Value = serde_json::from_str(result.get()).unwrap();
    assert!(result["timestampMs"].take().as_u64().is_some_and(|at| at > 1_700_000_000_000), "the desktop's own clock");
    assert_eq!(result, json!({"ok": true, "service": "desktop-relay", "timestampMs": null, "capabilities": ["run.cancel.exact-run.v1"]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_desktop_learns_who_asks_and_gets_the_trace_as_sent() {
    let relay = RelayProcess::start(&[]).await;
    let (account, mut phone, mut desktop) = pair(&relay).await;
    let client = json_string(&format!("{}::{}", account.phones[0], account.desktops[0]));
    let user = json_string(&account.user.to_string());

    phone.request("\"a\"", "system.ping", "").await;
    let plain = desktop.next_request().await;
    assert_eq!(plain.names(), ["clientId", "id", "method", "traceparent", "userId"]);
    assert_eq!((plain.field("clientId"), plain.field("userId")), (client.as_str(), user.as_str()));
    assert_eq!((plain.field("traceparent"), plain.field("method")), (TRACE, "\"system.ping\""));

    // Escapes that a JSON writer would not choose, blanks that a trace state may hold, and empty values that are not absent.
    let trace = r#""\u0030\u0030-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0\u0031""#;
    let state = r#""rojo=00f067aa0ba902b7 ,, congo=t61rcWkgMzE\u002cfw529a3039@dt=x y""#;
    phone
        .socket
        .text(&format!(
            "\t{{ \"payload\" : {{\"tracestate\" : {state} , \"idempotencyKey\":\"\\u0041\\/\",\r\n\"id\":\"b\",\"params\" : null , \
             \"traceparent\":{trace},\"meth\\u006fd\":\"session.cre\\u0061te\"}}, \"typ\\u0065\":\"rpc.request\" }}\n"
        ))
        .await;
    let full = desktop.next_request().await;
    assert_eq!(
        full.names(),
        ["clientId", "id", "idempotencyKey", "method", "params", "traceparent", "tracestate", "userId"],
        "the same fields, and who asks"
    );
    assert_eq!((full.field("traceparent"), full.field("tracestate")), (trace, state));
    assert_eq!((full.field("params"), full.field("idempotencyKey")), ("null", r#""\u0041\/""#));
    assert_eq!((full.value("method"), full.field("clientId")), (json!("session.create"), client.as_str()));

    phone.request("\"c\"", "system.ping", r#","idempotencyKey":null"#).await;
    assert!(!desktop.next_request().await.fields.contains_key("idempotencyKey"), "null counts as absent and is not forwarded");

    desktop.answer(&plain, &format!(r#""result":1,"traceparent":{trace}"#)).await;
    let answer = phone.next().await;
    assert_eq!(answer.names(), ["id", "isFinal", "result", "traceparent"], "everything but the clientId");
    assert_eq!((answer.field("traceparent"), answer.field("isFinal")), (trace, "true"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_comes_back_as_the_phone_wrote_it_however_the_desktop_writes_it() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    for (written, answered) in [
        (r#""plain""#, r#""plain""#),
        (r#""\u0041\u0062c\/d""#, r#""Abc/d""#),
        (r#""  blanks \t""#, r#""blanks""#),
        (r#""blanks""#, r#""\u0009 blanks  ""#),
        (r#""😀""#, r#""\ud83d\uDE00""#),
        (r#""\ud83d\ude00""#, r#""😀""#),
        (r#""a\u0000\"\\\n""#, r#""\u0061\u0000\u0022\u005c\u000a""#),
    ] {
        phone.request(written, "system.ping", "").await;
        let request = desktop.next_request().await;
        assert_eq!(request.field("id"), written);
        desktop.respond(request.field("clientId"), answered, r#""result":0"#).await;
        assert_eq!(phone.next().await.field("id"), written, "answered as {answered}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_in_order_before_the_final_answer() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let handler = |_request: IncomingRequest, replies: Replies| async move {
        for step in ["1", "{ \"step\":2 }", "null"] {
            replies.progress(&RawValue::from_string(step.to_owned()).unwrap()).await.unwrap();
        }
        replies.result(RawValue::TRUE).await.unwrap();
    };
    let (_desktop, _) = RunningDesktop::start(account.desktop(0), handler).await;
    let phone = Phone::connect(account.phone(0, 0)).await.unwrap();
    let mut call = phone.start(Request::new("system.ping")).await.unwrap();
    for expected in ["1", "{ \"step\":2 }", "null"] {
        match call.next().await.unwrap() {
            Step::Progress(Outcome::Result(step)) => assert_eq!(step.get(), expected),
            other @ (Step::Progress(Outcome::Error(_)) | Step::Final(_)) => panic!("{expected}: {other:?}"),
        }
    }
    match call.next().await.unwrap() {
        Step::Final(result) => assert_eq!(result.get(), "true"),
        Step::Progress(progress) => panic!("{progress:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_keeps_the_request_open_and_a_final_answer_ends_it() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    let is_final = |message: &Message| message.field("isFinal") == "true";
    phone.request("\"a\"", "system.ping", "").await;
    let request = desktop.next_request().await;
    desktop.answer(&request, r#""result":1,"isFinal":false"#).await;
    desktop.answer(&request, r#""error":{"code":5},"isFinal":false"#).await;
    let (first, second) = (phone.next().await, phone.next().await);
    assert_eq!((first.field("result"), is_final(&first)), ("1", false));
    assert_eq!((second.field("error"), is_final(&second)), (r#"{"code":5}"#, false));
    phone.request("\"a\"", "system.ping", "").await;
    phone.next().await.assert_refused("\"a\"", -32021, false);
    // Without `isFinal` an answer is final.
    desktop.answer(&request, r#""result":2"#).await;
    assert!(is_final(&phone.next().await));
    for late in [r#""result":3,"isFinal":false"#, r#""result":4"#, r#""error":{"code":1}"#] {
        desktop.answer(&request, late).await;
    }
    assert_pair_works(&mut phone, &mut desktop, "answers to a finished request").await;
    phone.request("\"a\"", "system.ping", "").await;
    assert_eq!(desktop.next_request().await.field("id"), "\"a\"", "the id may be used again");
}
