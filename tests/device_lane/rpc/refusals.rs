//! Requests that the relay refuses for what they say, and frames that it cannot take at all. Nothing of them reaches a desktop.

use super::{Peer, TRACE, assert_pair_works, json_string, pair, request};
use crate::support::{account::Account, relay_process::RelayProcess};

/// A request frame with this payload.
fn frame(payload: &str) -> String {
    format!(r#"{{"type":"rpc.request","payload":{{{payload}}}}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_breaks_a_rule_is_refused_by_number() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    let method = r#""method":"system.ping""#;
    let trace = format!(r#""traceparent":{TRACE}"#);
    let with_trace = |traceparent: &str| format!(r#""id":"x",{method},"traceparent":{traceparent}"#);
    let with_state = |state: &str| format!(r#""id":"x",{method},{trace},"tracestate":{state}"#);
    let invalid = [
        format!(r#""id":"x",{trace}"#),
        format!(r#""id":"x","method":null,{trace}"#),
        format!(r#""id":"x","method":1,{trace}"#),
        format!(r#""id":"x","method":["system.ping"],{trace}"#),
        format!(r#""id":"x",{method}"#),
        with_trace("null"),
        with_trace("7"),
        with_trace(r#""""#),
        with_trace(r#""00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7""#),
        with_trace(r#""00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x""#),
        with_trace(r#""00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01""#),
        with_trace(r#""00-00000000000000000000000000000000-00f067aa0ba902b7-01""#),
        with_trace(r#""00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01""#),
        with_trace(r#""ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01""#),
        with_state("null"),
        with_state("1"),
        with_state(r#""no-value""#),
        with_state(r#""a=1,a=2""#),
        with_state(&json_string(&(0..33).map(|key| format!("k{key}=v")).collect::<Vec<_>>().join(","))),
        format!(r#""id":"x",{method},{trace},"idempotencyKey":1"#),
        format!(r#""id":"x",{method},{trace},"idempotencyKey":{{}}"#),
        // The first fault in the order of the steps is named.
        r#""id":"x","method":"no.such""#.to_owned(),
        r#""id":"x","method":"session.create","traceparent":"bad""#.to_owned(),
    ];
    for payload in invalid {
        phone.socket.text(&frame(&payload)).await;
        phone.next().await.assert_refused("\"x\"", -32600, false);
    }
    for name in ["no.such", "", "system", "System.ping", " system.ping", "system.ping ", "system.ping\\u0000"] {
        phone.request("\"x\"", name, "").await;
        phone.next().await.assert_refused("\"x\"", -32601, false);
    }
    for key in ["", r#","idempotencyKey":null"#] {
        phone.request("\"x\"", "session.create", key).await;
        let refused = phone.next().await;
        refused.assert_refused("\"x\"", -32026, false);
        assert_eq!(refused.value("error")["data"]["reason"], "protocolUpdateRequired");
    }
    // The one method whose params are typed; a key that is missing comes first.
    let sync = r#","params":{"sessions":[{"sessionId":"s","historyRevision":1,"more":[ 1 ]}]},"idempotencyKey":"k""#;
    for fault in [
        sync.replace("sessionId", "sessionID"),
        sync.replace(":1,", ":-1,"),
        sync.replace(r#""s""#, r#""""#),
        sync.replace("sessions", "more"),
        r#","params":null,"idempotencyKey":"k""#.to_owned(),
        r#","idempotencyKey":"k""#.to_owned(),
    ] {
        phone.request("\"x\"", "session.syncHistoryState", &fault).await;
        phone.next().await.assert_refused("\"x\"", -32602, false);
    }
    phone.request("\"x\"", "session.syncHistoryState", r#","params":null"#).await;
    phone.next().await.assert_refused("\"x\"", -32026, false);
    assert_pair_works(&mut phone, &mut desktop, "refused requests").await;
    phone.request("\"x\"", "session.syncHistoryState", sync).await;
    let forwarded = desktop.next_request().await;
    assert_eq!(forwarded.field("params"), r#"{"sessions":[{"sessionId":"s","historyRevision":1,"more":[ 1 ]}]}"#);
    desktop.answer(&forwarded, r#""result":null"#).await;
    assert_eq!(phone.next().await.field("result"), "null");
    // An empty key is the desktop's to judge.
    phone.request("\"x\"", "session.create", r#","idempotencyKey":"""#).await;
    assert_eq!(desktop.next_request().await.field("idempotencyKey"), "\"\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_carries_the_id_as_it_was_written() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, _desktop) = pair(&relay).await;
    for id in [r#"" \u0041\/ ""#, r#""\ud83d\ude00""#, r#""é\t\"""#] {
        phone.request(id, "no.such", "").await;
        phone.next().await.assert_refused(id, -32601, false);
    }
}

/// C13: only strings of 1 to 128 bytes that are not blank are ids.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_id_fails_the_frame() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    let good = [
        json_string(&"a".repeat(128)),
        json_string(&"😀".repeat(32)),
        json_string(&"\u{1f600}".repeat(32)).replace('😀', r"\ud83d\ude00"),
        json_string(&("a".repeat(126) + "é")),
        json_string(" x "),
        json_string("a\0\"\n"),
        r#""\u00e9""#.to_owned(),
    ];
    for id in &good {
        phone.request(id, "system.ping", "").await;
        let request = desktop.next_request().await;
        assert_eq!(request.field("id"), id);
        desktop.answer(&request, r#""result":0"#).await;
        assert_eq!(phone.next().await.field("id"), id);
    }
    let bad = [
        json_string(&"a".repeat(129)),
        json_string(&("a".repeat(127) + "é")),
        json_string(&"😀".repeat(33)),
        r"\ud83d\ude00".repeat(33).replacen('\\', "\"\\", 1) + "\"",
        // The bound counts what was sent, before blanks are taken off.
        json_string(&format!(" {} ", "a".repeat(127))),
        json_string(""),
        json_string(" \t\n"),
        r#""\u0020\u0020""#.to_owned(),
        r#""\ud800""#.to_owned(),
        r#""\udc00\ud800""#.to_owned(),
    ];
    let other_types = ["null", "true", "false", "1.5", "-1", "9007199254740993", "18446744073709551616", "1e3", "[\"a\"]", "{\"a\":1}"];
    for id in bad.iter().map(String::as_str).chain(other_types) {
        phone.request(id, "system.ping", "").await;
        phone.next().await.assert_invalid_payload(id);
    }
    phone.socket.text(&frame(&format!(r#""method":"system.ping","traceparent":{TRACE}"#))).await;
    phone.next().await.assert_invalid_payload("no id");
    assert_pair_works(&mut phone, &mut desktop, "ids that are none").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_surrogate_where_the_relay_reads_fails_the_frame() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    for text in [
        request(r#""\ud83d""#, "system.ping", ""),
        request("\"x\"", r"system.ping\udead", ""),
        request("\"x\"", "session.create", r#","idempotencyKey":"\ud800x""#),
        // It fails the whole frame also where another step would have refused the request.
        request("\"x\"", "no.such", r#","idempotencyKey":"\udc00""#),
    ] {
        phone.socket.text(&text).await;
        phone.next().await.assert_invalid_payload(&text);
    }
    assert_pair_works(&mut phone, &mut desktop, "lone surrogates").await;
}

/// C11: a key that the relay reads may stand there once, however it is spelled. What passes through is the desktop's business.
#[tokio::test(flavor = "multi_thread")]
async fn a_doubled_or_unknown_key_fails_the_frame() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    let body = format!(r#""id":"x","method":"system.ping","traceparent":{TRACE}"#);
    let whole = r#","params":1,"idempotencyKey":"k","tracestate":"a=1""#;
    let doubles = [
        r#""id":"x""#,
        r#""id":"y""#,
        r#""\u0069d":"x""#,
        r#""method":"system.ping""#,
        r#""m\u0065thod":"system.listModels""#,
        r#""traceparent":null"#,
        r#""params":null"#,
        r#""par\u0061ms":2"#,
        r#""idempotencyKey":null"#,
        r#""tracestate":"b=1""#,
        // Not keys of a request, in this spelling or at all.
        r#""ID":"x""#,
        r#""Method":"system.ping""#,
        r#""clientId":"c""#,
        r#""userId":"u""#,
        r#""jsonrpc":"2.0""#,
        r#""extra":{"deep":[1]}"#,
        r#""":0"#,
    ];
    for double in doubles {
        for payload in [format!("{body}{whole},{double}"), format!("{double},{body}{whole}")] {
            phone.socket.text(&frame(&payload)).await;
            phone.next().await.assert_invalid_payload(&payload);
        }
    }
    for text in [
        format!(r#"{{"type":"rpc.request","type":"rpc.request","payload":{{{body}}}}}"#),
        format!(r#"{{"type":"rpc.request","payload":{{{body}}},"payload":{{{body}}}}}"#),
        format!(r#"{{"payload":{{{body}}},"type":"rpc.request","p\u0061yload":{{{body}}}}}"#),
        format!(r#"{{"payload":{{{body}}},"payload":{{{body}}},"type":"rpc.request"}}"#),
        format!(r#"{{"type":"rpc.request","payload":{{{body}}},"id":"x"}}"#),
        format!(r#"{{"type":"rpc.request","payload":{{{body}}}}}{{}}"#),
        format!(r#"{{"type":"rpc.request","payload":[{{{body}}}]}}"#),
        format!(r#"[{{"type":"rpc.request","payload":{{{body}}}}}]"#),
    ] {
        phone.socket.text(&text).await;
        phone.next().await.assert_invalid_payload(&text);
    }
    assert_pair_works(&mut phone, &mut desktop, "doubled keys").await;
    let params = r#"{"id":1,"id":2,"\u0069d":3,"a":{"b":0,"b":0}}"#;
    phone.request("\"x\"", "system.ping", &format!(r#","params":{params}"#)).await;
    assert_eq!(desktop.next_request().await.field("params"), params, "inside params doubles pass as they are");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_response_is_told_to_the_desktop_and_leaves_the_request_open() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    phone.request("\"x\"", "system.ping", "").await;
    let asked = desktop.next_request().await;
    for outcome in [
        r#""result":1,"error":{"code":1}"#,
        r#""isFinal":true"#,
        r#""error":null"#,
        r#""result":1,"isFinal":"true""#,
        r#""result":1,"isFinal":null"#,
        r#""result":1,"isFinal":1"#,
        r#""result":1,"result":1"#,
        r#""result":1,"res\u0075lt":1"#,
        r#""result":1,"id":"x""#,
        r#""result":1,"userId":"x""#,
    ] {
        desktop.answer(&asked, outcome).await;
        desktop.next().await.assert_invalid_payload(outcome);
    }
    for (client, id) in [("null", "\"x\""), ("7", "\"x\""), (r#""\ud800""#, "\"x\""), (asked.field("clientId"), "1")] {
        desktop.respond(client, id, r#""result":1"#).await;
        desktop.next().await.assert_invalid_payload(client);
    }
    desktop.answer(&asked, r#""result":null,"error":null"#).await;
    let answer = phone.next().await;
    assert_eq!((answer.field("id"), answer.field("result")), ("\"x\"", "null"), "a null result is a result, a null error is none");
    assert_eq!(answer.names(), ["id", "isFinal", "result"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_that_never_came_is_offline() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 1).await;
    let _other = Peer::desktop(&account, 1).await;
    let mut phone = Peer::phone(&account, 0, 0).await;
    phone.request("\"x\"", "system.ping", "").await;
    let refused = phone.next().await;
    refused.assert_refused("\"x\"", -32010, true);
    assert_eq!(refused.value("error")["message"], "Desktop is offline");
    // What a request says is judged before where it would go.
    phone.request("\"x\"", "no.such", "").await;
    phone.next().await.assert_refused("\"x\"", -32601, false);
    phone.request("\"x\"", "session.create", "").await;
    phone.next().await.assert_refused("\"x\"", -32026, false);
    let mut desktop = Peer::desktop(&account, 0).await;
    assert_pair_works(&mut phone, &mut desktop, "refused requests are not kept for later").await;
}
