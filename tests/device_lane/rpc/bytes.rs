//! C09 and C12: what passes through is not touched, whatever it says and however deep it is nested.

use super::{Peer, TRACE, assert_pair_works, pair, request, response};
use crate::support::{relay_process::RelayProcess, scale::scaled};
use relay_protocol::limits::MESSAGE_BYTES_MAX;

/// JSON texts that a reader and writer of JSON would not give back as they are.
fn delicate_values() -> Vec<String> {
    let mut values: Vec<String> = [
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775809",
        "0",
        "-0",
        "-0.0",
        "1.0",
        "1e2",
        "1E+2",
        "0.10",
        "1E400",
        "-1e-400",
        "5e-324",
        "0.1000000000000000055511151231257827021181583404541015625",
        r#""\u0041\u00e9\/\b\f\n\r\t\"\\""#,
        r#""/ é 😀 \ud83d\ude00 \uD83D\uDE00""#,
        r#""\ud800""#,
        r#"["\udfff\ud800","\ud83dx","\u0000"]"#,
        "\"\u{7f}\u{2028}\u{feff}\"",
        r#"{"b":1,"a":2,"":3,"\u0061":4,"a":5,"\ud800":6}"#,
        "{ \"a\" :\t[ 1 ,\r\n2,{ } , [ ] ] }",
        r#"[null,true,false,"",{},[]]"#,
        "null",
        "\"\"",
    ]
    .map(str::to_owned)
    .to_vec();
    let long = "1234567890".repeat(40);
    values.extend([long.clone(), format!("-{long}.{long}e-{}", &long[..20])]);
    values.push(format!("[{}]", values.join(" , ")));
    values
}

#[tokio::test(flavor = "multi_thread")]
async fn params_results_and_errors_pass_byte_for_byte() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    for value in delicate_values() {
        phone.request("\"a\"", "system.ping", &format!(",\"params\": {value} ")).await;
        let request = desktop.next_request().await;
        assert_eq!(request.field("params"), value);
        desktop.answer(&request, &format!("\"result\": {value} ,\"isFinal\":false")).await;
        assert_eq!(phone.next().await.field("result"), value, "progress");
        desktop.answer(&request, &format!("\"result\":\n{value}\t")).await;
        assert_eq!(phone.next().await.field("result"), value);

        phone.request("\"b\"", "system.ping", "").await;
        let request = desktop.next_request().await;
        let error = format!(r#"{{ "data" : {value} ,"code":-32603.0,"message":"\u0041" , "more":{value}}}"#);
        desktop.answer(&request, &format!("\"error\": {error} ")).await;
        assert_eq!(phone.next().await.field("error"), error);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_json_is_one_error_and_nothing_is_forwarded() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    phone.request("\"open\"", "system.ping", "").await;
    let open = desktop.next_request().await;
    let tokens = [
        "NaN",
        "Infinity",
        "-Infinity",
        "01",
        "-01",
        "+1",
        "1.",
        ".5",
        "-",
        "-.5",
        "1e",
        "1e+",
        "0x10",
        "1_000",
        "00",
        "undefined",
        "True",
        "nul",
        "'a'",
        "\"\\x41\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"a\tb\"",
        "\"\u{0}\"",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\":1,}",
        "{a:1}",
        "{\"a\"}",
        "{1:2}",
        "[1}",
        "{\"a\":1]",
        "/* */1",
        "",
    ];
    for token in tokens {
        for nested in [token.to_owned(), format!("{{\"deep\":[0,{token}]}}")] {
            if nested.is_empty() || serde_json::from_str::<&serde_json::value::RawValue>(&nested).is_err() {
                phone.request("\"x\"", "system.ping", &format!(r#","params":{nested}"#)).await;
                phone.next().await.assert_invalid_payload(&nested);
                desktop.answer(&open, &format!(r#""result":{nested}"#)).await;
                desktop.next().await.assert_invalid_payload(&nested);
            } else {
                panic!("{nested} is JSON");
            }
        }
    }
    for text in ["", " ", "{", "null", "7", "\"rpc.request\"", "{}", "[]", r#"{"type":"rpc.request"}"#, "\u{feff}{}", "{\"type\":1}"] {
        phone.socket.text(text).await;
        phone.next().await.assert_invalid_payload(text);
    }
    assert_pair_works(&mut phone, &mut desktop, "texts that are no JSON").await;
    desktop.answer(&open, r#""result":1"#).await;
    assert_eq!(phone.next().await.field("result"), "1", "the request that was answered in no JSON is still open");
}

/// Closed and unclosed values of this depth.
fn nested(depth: usize) -> [(String, String); 2] {
    let array = "[".repeat(depth);
    let object = r#"{"a":"#.repeat(depth);
    [(array.clone() + &"]".repeat(depth), array), (format!("{object}0{}", "}".repeat(depth)), object)]
}

async fn check_depth(phone: &mut Peer, desktop: &mut Peer, depth: usize) {
    for (closed, unclosed) in nested(depth) {
        phone.request("\"a\"", "system.ping", &format!(r#","params":{closed}"#)).await;
        let asked = desktop.next_request().await;
        assert!(asked.field("params") == closed, "params of depth {depth} pass byte for byte");
        let why = format!("depth {depth}");
        for text in [
            format!(r#"{{"type":"rpc.request","payload":{{"id":"x","method":"system.ping","traceparent":{TRACE},"params":{unclosed}"#),
            request("\"x\"", "system.ping", &format!(r#","params":{unclosed}"#)),
            request("\"x\"", "system.ping", &format!(r#","extra":{closed}"#)),
            request("\"x\"", "system.ping", &format!(r#","extra":{unclosed}"#)),
            request(&closed, "system.ping", ""),
            format!(r#"{{"payload":{{"id":"x","params":{unclosed}}},"type":"rpc.request"}}"#),
            closed.clone(),
            unclosed.clone(),
        ] {
            phone.socket.text(&text).await;
            phone.next().await.assert_invalid_payload(&why);
        }
        phone.socket.text(&format!(r#"{{"type":"no.such","payload":{closed}}}"#)).await;
        assert_eq!(phone.next().await.field("code"), "\"unknownMessageType\"");

        for field in ["result", "error"] {
            desktop.answer(&asked, &format!(r#""{field}":{unclosed}"#)).await;
            desktop.next().await.assert_invalid_payload(&why);
        }
        desktop.answer(&asked, &format!(r#""result":1,"extra":{closed}"#)).await;
        desktop.next().await.assert_invalid_payload(&why);
        desktop.answer(&asked, &format!(r#""result":{closed},"isFinal":false"#)).await;
        assert!(phone.next().await.field("result") == closed, "a result of depth {depth} passes byte for byte");
        desktop.answer(&asked, &format!(r#""error":{closed}"#)).await;
        assert!(phone.next().await.field("error") == closed, "an error of depth {depth} passes byte for byte");
    }
    assert_pair_works(phone, desktop, "nested values").await;
}

/// C12: there is no limit of depth, in either direction.
#[tokio::test(flavor = "multi_thread")]
async fn nesting_has_no_limit_and_costs_no_stack() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    for depth in [1, 100, 126, 127, 128, 129, 1_000] {
        check_depth(&mut phone, &mut desktop, depth).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_nesting_a_million_deep() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    check_depth(&mut phone, &mut desktop, scaled(1_000_000, 5_000_000)).await;
}

/// Text of exactly this many bytes whose parts can be told apart, as JSON.
fn long_json(bytes: usize, salt: &str) -> String {
    let mut text = String::with_capacity(bytes + 32);
    text.push_str("[\"");
    let mut number = 0;
    while text.len() < bytes {
        text.push_str(&format!("{salt}{number} \\u00e9\\/,"));
        number += 1;
    }
    // An escape that the cut would halve is made whole again: nothing but letters before the end.
    text.truncate(bytes - 12);
    text.push_str("..........");
    text.push_str("\"]");
    text
}

/// A message of exactly `bytes` bytes around a value as long as both directions allow; the value, and the message.
fn exactly(bytes: usize, frame: impl Fn(&str) -> String, value: &str) -> String {
    let text = frame(value);
    assert!(text.len() <= bytes, "{} bytes", text.len());
    // Blanks around the message count towards its size and are nobody's value.
    " ".repeat(bytes - text.len()) + &text
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_messages_up_to_the_cap_pass_in_one_frame() {
    let relay = RelayProcess::start(&[]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    for bytes in [1024 * 1024, MESSAGE_BYTES_MAX] {
        // Room for the larger of the two envelopes.
        let params = long_json(bytes - 512, "params");
        let result = long_json(bytes - 512, "result");
        let ask = exactly(bytes, |value| request("\"a\"", "files.readBinary", &format!(r#","params":{value}"#)), &params);
        assert_eq!(ask.len(), bytes);
        phone.socket.text(&ask).await;
        let asked = desktop.next_request().await;
        assert!(asked.field("params") == params, "{bytes} bytes of params");
        for (value, more) in [(&result, ",\"isFinal\":false"), (&params, "")] {
            let frame = |value: &str| response(asked.field("clientId"), "\"a\"", &format!(r#""result":{value}{more}"#));
            desktop.socket.text(&exactly(bytes, frame, value)).await;
            assert!(phone.next().await.field("result") == *value, "{bytes} bytes of result");
        }
        assert_pair_works(&mut phone, &mut desktop, "large messages").await;
    }
}
