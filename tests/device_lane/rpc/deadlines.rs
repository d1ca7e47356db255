//! Requests that no desktop answers in time: -32012 for each class by its own limit, and what is left afterwards.

use super::{assert_pair_works, pair};
use crate::support::{PATIENCE, relay_process::RelayProcess};
use std::time::Duration;
use tokio::time::Instant;

/// Short enough to wait for, long enough to send a few frames in.
const SHORT: &str = "700ms";
const SHORT_LIMIT: Duration = Duration::from_millis(700);
const LONG: &str = "10m";

/// Methods of each class with what they need, under the flag that sets its limit.
const CLASSES: [(&str, &[(&str, &str)]); 3] = [
    ("--pending-default", &[("system.ping", ""), ("run.chatLoadPageBefore", ""), ("run.chatOutboxUpdate", r#","idempotencyKey":"k""#)]),
    ("--pending-load", &[("run.chatLoad", ""), ("run.chatLoadThread", "")]),
    ("--pending-outbox", &[("run.chatOutboxSubmit", r#","idempotencyKey":"k""#)]),
];

/// With one flag short, exactly the methods of its class expire; the others are open as long as anyone looks.
async fn only_its_class_expires(short_flag: &str) {
    let args: Vec<&str> = CLASSES.iter().flat_map(|(flag, _)| [*flag, if *flag == short_flag { SHORT } else { LONG }]).collect();
    let relay = RelayProcess::start(&args).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    let sent = Instant::now();
    for (method, more) in CLASSES.iter().flat_map(|(_, methods)| *methods) {
        phone.request(&format!("\"{method}\""), method, more).await;
        desktop.next_request().await;
    }
    let short = CLASSES.iter().find(|(flag, _)| *flag == short_flag).unwrap().1;
    for (method, _) in short {
        phone.next().await.assert_refused(&format!("\"{method}\""), -32012, true);
        assert!(sent.elapsed() >= SHORT_LIMIT, "{method} expired early");
    }
    for (method, more) in CLASSES.iter().filter(|(flag, _)| *flag != short_flag).flat_map(|(_, methods)| *methods) {
        phone.request(&format!("\"{method}\""), method, more).await;
        phone.next().await.assert_refused(&format!("\"{method}\""), -32021, false);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_expires_by_the_default_limit() {
    only_its_class_expires("--pending-default").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeline_load_expires_by_its_own_limit() {
    only_its_class_expires("--pending-load").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_submit_expires_by_its_own_limit() {
    only_its_class_expires("--pending-outbox").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_request_is_answered_once_and_its_id_is_free() {
    let relay = RelayProcess::start(&["--pending-load", SHORT]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    phone.request("\" late \"", "run.chatLoad", "").await;
    let late = desktop.next_request().await;
    phone.next().await.assert_refused("\" late \"", -32012, true);
    desktop.answer(&late, r#""result":"late","isFinal":false"#).await;
    desktop.answer(&late, r#""result":"late""#).await;
    assert_pair_works(&mut phone, &mut desktop, "late answers").await;
    phone.request("\"late\"", "system.ping", "").await;
    let again = desktop.next_request().await;
    desktop.answer(&again, r#""result":"again""#).await;
    let answer = phone.next().await;
    assert_eq!((answer.field("id"), answer.field("result")), ("\"late\"", "\"again\""));
}

/// A limit counts from the request, whatever progress there was.
#[tokio::test(flavor = "multi_thread")]
async fn progress_does_not_prolong_a_request() {
    let relay = RelayProcess::start(&["--pending-default", SHORT]).await;
    let (_account, mut phone, mut desktop) = pair(&relay).await;
    phone.request("\"a\"", "system.ping", "").await;
    let asked = desktop.next_request().await;
    let sent = Instant::now();
    let last = loop {
        assert!(sent.elapsed() < PATIENCE, "the request is still open");
        desktop.answer(&asked, r#""result":0,"isFinal":false"#).await;
        // Each step waits for the one before, so there is always a fresh one until the request ends.
        let message = phone.next().await;
        if message.fields.contains_key("error") {
            break message;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    last.assert_refused("\"a\"", -32012, true);
}
