//! The relay's spans as a collector gets them: whose children they are, how each end of a request is told, and that no collector, however
//! it behaves, is noticed by anybody but the operator.

use crate::support::{
    PATIENCE,
    collector::{Collector, Exported, Reaction},
    metrics::Scrape,
    raw_socket::RawSocket,
    relay_process::RelayProcess,
    wire::{Rig, eventually, next_of, next_refusal, payload_field, request, response, round_trip},
};
use relay_actors::clock::EpochMs;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT_ID: &str = "00f067aa0ba902b7";
/// What the helpers' requests carry.
const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// How long a process may go on exporting at its end, and some time for the rest of its end.
const ENDED_WITHIN: Duration = Duration::from_secs(10);

async fn rig(collector: &Collector, args: &[&str]) -> Rig {
    Rig::start(&[&["--otlp-endpoint", &collector.endpoint()], args].concat(), 1).await
}

fn fate(scrape: &Scrape, name: &str) -> f64 {
    scrape.get(&format!("relay_trace_spans_total{{fate=\"{name}\"}}"))
}

async fn eventually_fate(relay: &RelayProcess, name: &str, count: usize) {
    eventually(&format!("{count} spans are {name}"), async || fate(&Scrape::of(relay).await, name) == count as f64).await;
}

fn attribute<'a>(span: &'a Exported, key: &str) -> &'a str {
    span.attributes.get(key).and_then(Value::as_str).unwrap_or_else(|| panic!("no {key} in {span:?}"))
}

/// What a span says of its request's end.
fn end(span: &Exported) -> (&str, Option<&str>, Option<&str>, bool) {
    let text = |key: &str| span.attributes.get(key).and_then(Value::as_str);
    (attribute(span, "relay.outcome"), text("error.type"), text("rpc.response.status_code"), span.attributes["relay.delivered"] == true)
}

/// Sends requests to a desktop that is not there; each has a span, and costs the test one answer.
async fn refused(phone: &mut RawSocket, count: usize) {
    const AT_ONCE: usize = 200;
    for first in (0..count).step_by(AT_ONCE) {
        let ids = first..count.min(first + AT_ONCE);
        for id in ids.clone() {
            phone.text(&request(&id.to_string(), "1")).await;
        }
        for id in ids {
            assert_eq!(next_refusal(phone).await, (id.to_string(), -32010));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_one_span_as_child_of_its_phones_and_the_header_passes_byte_for_byte() {
    let collector = Collector::start();
    let rig = rig(&collector, &[]).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let header = format!("\"\\u00300-{TRACE_ID}-{PARENT_ID}-03\"");
    let before = EpochMs::now().0;
    phone.text(&request("one", "1").replace(&format!("\"{SAMPLED}\""), &header)).await;
    let asked = next_of(&mut desktop, "rpc.request").await;
    assert_eq!(payload_field(&asked, "traceparent"), header);
    let partial = response(&asked, "1").replace(r#""result""#, r#""isFinal":false,"result""#);
    for answer in [&partial, &response(&asked, "2")] {
        desktop.text(answer).await;
        next_of(&mut phone, "rpc.response").await;
    }
    let after = EpochMs::now().0;
    round_trip(&mut phone, &mut desktop, "two").await;

    let spans = collector.has_taken(2).await;
    let [one, two] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((one.trace.as_str(), one.parent.as_str(), one.flags), (TRACE_ID, PARENT_ID, 0x303));
    assert!(one.span != PARENT_ID && two.span != PARENT_ID && one.span != two.span, "{} {}", one.span, two.span);
    assert_eq!((one.name.as_str(), one.kind, &one.status), ("files.readContent", 2, &(0, String::new())));
    let millis = |nanos: u128| i64::try_from(nanos / 1_000_000).unwrap();
    assert!(before <= millis(one.began_ns) && one.began_ns < one.ended_ns && millis(one.ended_ns) <= after, "{before} {one:?} {after}");
    let expected = json!({
        "rpc.system.name": "jsonrpc",
        "rpc.method": "files.readContent",
        "relay.method.class": "files",
        "relay.outcome": "result",
        "relay.delivered": true,
        "relay.user.id": rig.account.user,
        "relay.phone.id": rig.account.phones[0],
        "relay.desktop.id": rig.account.desktops[0],
    });
    assert_eq!(json!(one.attributes), expected);
    let instance = &rig.relay.ready().relay_instance_id;
    let resource = json!({"service.name": "relay", "service.version": env!("CARGO_PKG_VERSION"), "service.instance.id": instance});
    assert_eq!(json!(one.resource), resource);
    assert_eq!(collector.spans().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_end_of_a_request_is_told() {
    let collector = Collector::start();
    let rig = rig(&collector, &["--pending-default", "300ms"]).await;
    let mut phone = rig.phone(0).await;
    let mut ends: Vec<(&str, Option<&str>, Option<&str>, bool)> = Vec::new();
    phone.text(&request("offline", "1")).await;
    assert_eq!(next_refusal(&mut phone).await.1, -32010);
    ends.push(("refused", Some("desktopOffline"), Some("-32010"), true));

    let mut desktop = rig.desktop().await;
    phone.text(&request("failing", "1")).await;
    let asked = next_of(&mut desktop, "rpc.request").await;
    desktop.text(&response(&asked, r#"{"code":-7,"message":"no"}"#).replace(r#""result""#, r#""error""#)).await;
    next_of(&mut phone, "rpc.response").await;
    ends.push(("error", Some("_OTHER"), None, true));

    phone.text(&request("late", "1")).await;
    phone.text(&request("late", "1")).await;
    assert_eq!(next_refusal(&mut phone).await.1, -32021);
    ends.push(("refused", Some("duplicateRequest"), Some("-32021"), true));
    assert_eq!(next_refusal(&mut phone).await.1, -32012);
    ends.push(("expired", Some("expired"), Some("-32012"), true));

    phone.text(&request("lost", "1")).await;
    for _ in ["late", "lost"] {
        next_of(&mut desktop, "rpc.request").await;
    }
    desktop.reset();
    assert_eq!(next_refusal(&mut phone).await.1, -32011);
    ends.push(("desktopLost", Some("desktopReconnecting"), Some("-32011"), true));

    let spans = collector.has_taken(ends.len()).await;
    assert_eq!(spans.iter().map(end).collect::<Vec<_>>(), ends);
    for span in &spans {
        let refusal = end(span).1.filter(|kind| *kind != "_OTHER").unwrap_or_default();
        assert_eq!(span.status, (2, refusal.to_owned()));
    }
    let lasted = |span: &Exported| Duration::from_nanos(u64::try_from(span.ended_ns - span.began_ns).unwrap());
    assert_eq!((lasted(&spans[0]), lasted(&spans[3]) >= Duration::from_millis(300)), (Duration::ZERO, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_sampled_or_malformed_has_no_span() {
    let collector = Collector::start();
    let rig = rig(&collector, &[]).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    for (id, traceparent) in [("a", SAMPLED.replace("-01", "-00")), ("b", SAMPLED.replace("-01", "-02"))] {
        phone.text(&request(id, "1").replace(SAMPLED, &traceparent)).await;
        let asked = next_of(&mut desktop, "rpc.request").await;
        assert_eq!(payload_field(&asked, "traceparent"), format!("\"{traceparent}\""));
        desktop.text(&response(&asked, "1")).await;
        next_of(&mut phone, "rpc.response").await;
    }
    for bad in [SAMPLED.replace(TRACE_ID, &"0".repeat(32)), SAMPLED.replace("00-4", "ff-4"), SAMPLED.to_uppercase()] {
        phone.text(&request("bad", "1").replace(SAMPLED, &bad)).await;
        assert_eq!(next_refusal(&mut phone).await, ("bad".to_owned(), -32600));
    }
    // A later version has more fields.
    phone.text(&request("later", "1").replace(SAMPLED, &SAMPLED.replace("00-4", "01-4").replace("-01", "-01-more"))).await;
    let asked = next_of(&mut desktop, "rpc.request").await;
    desktop.text(&response(&asked, "1")).await;
    next_of(&mut phone, "rpc.response").await;
    eventually_fate(&rig.relay, "exported", 1).await;
    let spans = collector.has_taken(1).await;
    assert_eq!((spans.len(), spans[0].parent.as_str()), (1, PARENT_ID));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_gets_what_waited_when_it_is_back() {
    let mut collector = Collector::away();
    let rig = rig(&collector, &["--log", "info,relay=debug"]).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    for id in ["a", "b"] {
        round_trip(&mut phone, &mut desktop, id).await;
    }
    eventually("it is tried again", async || rig.relay.log().contains("spans still cannot be exported")).await;
    round_trip(&mut phone, &mut desktop, "c").await;
    collector.come_up();
    assert_eq!(collector.has_taken(3).await.len(), 3);
    eventually_fate(&rig.relay, "exported", 3).await;
    let count = |line: &str| rig.relay.log().matches(line).count();
    assert_eq!((count("spans cannot be exported"), count("spans are exported again")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_collector_answers_decides_between_another_attempt_and_none() {
    let collector = Collector::start();
    let rig = rig(&collector, &[]).await;
    let mut phone = rig.phone(0).await;
    collector.react(Reaction::Refuse("503 Service Unavailable\r\nRetry-After: 2"));
    refused(&mut phone, 1).await;
    collector.has_been_asked(1).await;
    collector.react(Reaction::Take);
    collector.has_taken(1).await;
    let [first, second] = &collector.asked()[..] else { panic!("two attempts") };
    assert!(*second - *first >= Duration::from_secs(2), "what Retry-After asks for is kept");
    let [first, second] = &collector.bodies()[..] else { panic!("two attempts") };
    assert_eq!(first, second, "an attempt that was taken unseen makes no other spans");

    collector.react(Reaction::Refuse("400 Bad Request"));
    refused(&mut phone, 2).await;
    eventually_fate(&rig.relay, "rejected", 2).await;
    collector.react(Reaction::TakeButOne);
    refused(&mut phone, 3).await;
    eventually_fate(&rig.relay, "rejected", 3).await;
    let scrape = Scrape::of(&rig.relay).await;
    assert_eq!((fate(&scrape, "exported"), fate(&scrape, "queueFull"), fate(&scrape, "givenUp")), (3.0, 0.0, 0.0));
    assert_eq!(collector.bodies().len(), 4, "what was rejected is not tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_collector_that_hangs_costs_a_bounded_queue_and_delays_nobody() {
    const QUEUE_AND_BATCH: usize = 8_192 + 512;
    const MORE: usize = 1_000;
    let collector = Collector::start();
    collector.react(Reaction::Hang);
    let mut rig = rig(&collector, &[]).await;
    let mut phone = rig.phone(0).await;
    refused(&mut phone, 1).await;
    collector.has_been_asked(1).await;
    refused(&mut phone, QUEUE_AND_BATCH + MORE).await;
    let scrape = Scrape::of(&rig.relay).await;
    let dropped = fate(&scrape, "queueFull");
    assert!((MORE as f64..=(MORE + 512) as f64).contains(&dropped), "{dropped} were dropped");
    let (held, began) = (rig.relay.rss_kib(), Instant::now());
    refused(&mut phone, QUEUE_AND_BATCH).await;
    let grown_kib = rig.relay.rss_kib().saturating_sub(held);
    assert!(grown_kib < 4 * 1024, "{grown_kib} KiB more for spans that have no room");
    assert!(began.elapsed() < PATIENCE && rig.relay.alive());

    // At the end it waits for its bound and not for the collector.
    let leaving = Instant::now();
    rig.relay.signal("TERM");
    assert!(rig.relay.exited().await.success());
    assert!(leaving.elapsed() < ENDED_WITHIN);
    assert!(rig.relay.log().contains("spans that the collector did not take are lost"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_ends_exports_what_it_has() {
    let collector = Collector::start();
    let mut rig = rig(&collector, &[]).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    // Without an end the next attempt would be far away.
    collector.react(Reaction::Refuse("503 Service Unavailable\r\nRetry-After: 30"));
    round_trip(&mut phone, &mut desktop, "answered").await;
    collector.has_been_asked(1).await;
    collector.react(Reaction::Take);
    phone.text(&request("open", "1")).await;
    next_of(&mut desktop, "rpc.request").await;
    rig.relay.signal("TERM");
    for socket in [&mut phone, &mut desktop] {
        assert_eq!(socket.closed(PATIENCE).await, Some((1012, "relayDraining".to_owned())));
    }
    assert!(rig.relay.exited().await.success());
    let spans = collector.spans();
    let ends: Vec<_> = spans.iter().map(end).collect();
    let open = ("desktopLost", Some("desktopReconnecting"), Some("-32011"), false);
    assert_eq!(ends, [("result", None, None, true), open], "nobody was told the end of the open one");
    assert!(!rig.relay.log().contains("are lost"));
}
