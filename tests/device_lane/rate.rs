//! The rate limit of a connection (device-lane section 4): what a phone loses and is told, how a desktop is slowed down.
//!
//! Tokens come back slowly here. Where a test counts them it knows how many may have come back, from the time that it took itself, so
//! a slow machine changes no outcome. A burst goes out in one write.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawOptions, RawSocket, Received, opcode},
    relay_process::RelayProcess,
    wire::{MIB, Rig, next_of, payload_field, registered, request, response, round_trip},
};
use relay_protocol::device::Role;
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

const PING: &str = r#"{"type":"ping","payload":{}}"#;
const PONG: &str = r#"{"type":"pong","payload":{}}"#;
/// How often somebody without tokens tries again.
const TRY_AGAIN: Duration = Duration::from_millis(100);

fn texts<T: AsRef<str>>(messages: impl IntoIterator<Item = T>) -> Vec<u8> {
    messages.into_iter().flat_map(|message| Frame::text(message.as_ref()).encode()).collect()
}

/// As many pings as a full bucket has tokens.
fn draining(burst: usize) -> Vec<u8> {
    Frame::new(opcode::PING, "").encode().repeat(burst)
}

/// A request with so many bytes of params behind everything that an answer needs.
fn large_request(bytes: usize) -> String {
    let small = request("large", "1");
    let trace = payload_field(&small, "traceparent");
    let params = "x".repeat(bytes);
    format!(r#"{{"type":"rpc.request","payload":{{"id":"large","traceparent":{trace},"method":"system.ping","params":"{params}"}}}}"#)
}

/// The number and the id of a refusal, checked to be a whole one that may be tried again.
fn refusal(text: &str) -> (i64, String) {
    let frame: Value = serde_json::from_str(text).unwrap();
    let (payload, error) = (&frame["payload"], &frame["payload"]["error"]);
    assert_eq!(
        (&frame["type"], &payload["isFinal"], &error["data"]["retryable"]),
        (&"rpc.response".into(), &true.into(), &true.into()),
        "{text}"
    );
    (error["code"].as_i64().unwrap(), payload_field(text, "id").to_owned())
}

fn text_of(received: &Received) -> &str {
    received.text().unwrap_or_else(|| panic!("no text, but {received:?}"))
}

/// Pings in text until one is answered: a token has come back. What else came before that; statuses are nobody's answer.
async fn until_a_token_comes_back(socket: &mut RawSocket) -> Vec<String> {
    let (deadline, mut others) = (Instant::now() + PATIENCE, Vec::new());
    loop {
        assert!(Instant::now() < deadline, "no token comes back: {others:?}");
        socket.text(PING).await;
        loop {
            match socket.read(TRY_AGAIN).await {
                Received::Nothing => break,
                Received::Frame { opcode: opcode::PING | opcode::PONG, .. } => {}
                other @ (Received::Frame { .. } | Received::End | Received::EndInsideFrame | Received::Reset) => {
                    let text = text_of(&other);
                    if text == PONG {
                        return others;
                    }
                    others.extend((!text.starts_with(r#"{"type":"event""#)).then(|| text.to_owned()));
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phones_request_over_the_burst_is_refused_and_forwarded_nowhere() {
    const BURST: usize = 40;
    const SENT: usize = 60;
    let rig = Rig::start(&["--rate-burst=40", "--rate-per-second=1"], 2).await;
    let mut desktop = rig.desktop().await;
    let start = Instant::now();
    let mut phone = rig.phone(0).await;
    let ids: Vec<String> = (0..SENT).map(|number| format!(r"\u0069{number:02}\/é")).collect();
    phone.write(&texts(ids.iter().map(|id| request(id, "1")))).await;

    let mut refused = Vec::new();
    while refused.last().is_none_or(|id| *id != format!("\"{}\"", ids[SENT - 1])) {
        let (code, id) = refusal(&next_of(&mut phone, "rpc.response").await);
        assert_eq!(code, -32028);
        refused.push(id);
    }
    // Registering took a token.
    let came_back = usize::try_from(start.elapsed().as_secs()).unwrap();
    let forwarded = SENT - refused.len();
    assert!((BURST - 1..BURST + came_back).contains(&forwarded), "{forwarded} forwarded, {came_back} came back");
    assert_eq!(refused, ids[forwarded..].iter().map(|id| format!("\"{id}\"")).collect::<Vec<_>>(), "each in turn, byte for byte");

    let others = until_a_token_comes_back(&mut phone).await;
    assert_eq!(others, Vec::<String>::new(), "no request is answered twice");
    for id in &ids[..forwarded] {
        assert_eq!(payload_field(&next_of(&mut desktop, "rpc.request").await, "id"), format!("\"{id}\""));
    }
    // What comes next at the desktop is another phone's, whose bucket is its own.
    let mut other = rig.phone(1).await;
    round_trip(&mut other, &mut desktop, "fence").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_end_with_the_second_bucket() {
    const BURST: usize = 10;
    let rig = Rig::start(&["--rate-burst=10", "--rate-per-second=1"], 1).await;
    let mut phone = rig.phone(0).await;
    let start = Instant::now();
    phone.write(&[draining(BURST), texts((0..50).map(|number| request(&number.to_string(), "1")))].concat()).await;
    let answers = until_a_token_comes_back(&mut phone).await;
    let came_back = usize::try_from(start.elapsed().as_secs()).unwrap();
    assert!((BURST..=BURST + came_back).contains(&answers.len()), "{} answers, {came_back} came back", answers.len());
    for (number, answer) in answers.iter().enumerate().take(BURST) {
        assert_eq!(refusal(answer), (-32028, format!("\"{number}\"")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_requests_that_can_be_answered_are_answered() {
    let rig = Rig::start(&["--rate-burst=20", "--rate-per-second=1"], 1).await;
    let mut phone = rig.phone(0).await;
    let good = request("good", "1");
    let trace = payload_field(&good, "traceparent");
    let behind = format!(r#"{{"type":"rpc.request","payload":{{"params":"{}","id":"behind","traceparent":{trace}}}}}"#, "x".repeat(4_096));
    let unanswered = [
        PING.to_owned(),
        "not JSON".to_owned(),
        good.replace("rpc.request", "rpc.response"),
        good.replace("rpc.request", "event"),
        good.replace(trace, r#""00-0""#),
        good.replace(r#""id":"good""#, r#""id":7"#),
        request(&"x".repeat(129), "1"),
        good.replace(r#""id":"good","#, "").replace(r#""params":1"#, r#""params":{"id":"nested"}"#),
        behind,
    ];
    let answered = [request(&"x".repeat(128), "1"), large_request(100_000), request("last", "1")];
    phone.write(&[draining(20), texts(unanswered.iter().chain(&answered))].concat()).await;
    for id in [&"x".repeat(128), "large", "last"] {
        assert_eq!(refusal(&next_of(&mut phone, "rpc.response").await), (-32028, format!("\"{id}\"")));
    }
    assert_eq!(until_a_token_comes_back(&mut phone).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn before_registration_nothing_over_the_limit_is_answered() {
    let rig = Rig::start(&["--rate-burst=5", "--rate-per-second=1"], 1).await;
    let mut phone = RawSocket::open(&rig.account.raw_phone()).await;
    let register = format!(r#"{{"type":"register","payload":{{"deviceId":"{}"}}}}"#, rig.account.phones[0]);
    phone.write(&[draining(5), texts([request("early", "1"), register])].concat()).await;
    assert_eq!(until_a_token_comes_back(&mut phone).await, Vec::<String>::new());
}

/// A fragmented message counts once, so all of these pass where their fragments would not.
#[tokio::test(flavor = "multi_thread")]
async fn fragments_count_once() {
    let rig = Rig::start(&["--rate-burst=5", "--rate-per-second=1"], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    for id in ["one", "two", "three", "four"] {
        phone.fragmented_text(&request(id, "1"), 10).await;
        assert_eq!(payload_field(&next_of(&mut desktop, "rpc.request").await, "id"), format!("\"{id}\""));
    }
    phone.write(&draining(5)).await;
    phone.fragmented_text(&request("over", "1"), 10).await;
    assert_eq!(refusal(&next_of(&mut phone, "rpc.response").await), (-32028, "\"over\"".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_take_tokens_and_over_the_limit_get_no_pong() {
    const BURST: usize = 20;
    let rig = Rig::start(&["--rate-burst=20", "--rate-per-second=1"], 1).await;
    let start = Instant::now();
    let mut phone = rig.phone(0).await;
    let pings = (0..60).flat_map(|number: u8| Frame::new(opcode::PING, [number]).encode()).collect();
    phone.write(&[pings, texts([request("behind", "1")])].concat()).await;
    // Of the pings that are let in, only the last need be answered, and that one is.
    let mut last_pong = None;
    let mut refused = None;
    while refused.is_none() || last_pong.is_none_or(|last: usize| last + 2 < BURST) {
        match phone.read(PATIENCE).await {
            Received::Frame { opcode: opcode::PONG, payload, .. } => last_pong = Some(usize::from(payload[0])),
            other @ (Received::Frame { .. } | Received::End | Received::EndInsideFrame | Received::Reset | Received::Nothing) => {
                let text = text_of(&other);
                refused = refused.or((!text.starts_with(r#"{"type":"event""#)).then(|| refusal(text)));
            }
        }
    }
    let came_back = usize::try_from(start.elapsed().as_secs()).unwrap();
    assert_eq!(refused, Some((-32028, "\"behind\"".to_owned())));
    assert!((BURST - 2..BURST - 1 + came_back).contains(&last_pong.unwrap()), "{last_pong:?}, {came_back} came back");
    assert_eq!(until_a_token_comes_back(&mut phone).await, Vec::<String>::new());
}

/// What a phone sends over the limit is not kept, however large.
#[tokio::test(flavor = "multi_thread")]
async fn large_messages_over_the_limit_take_no_memory() {
    let rig = Rig::start(&["--rate-burst=5", "--rate-per-second=1"], 1).await;
    let mut phone = rig.phone(0).await;
    let large = Frame::text(&large_request(31 * MIB)).encode();
    let before_kib = rig.relay.rss_peak_kib();
    // A message has its token when it begins, or never, however long it takes.
    phone.write(&[draining(5), large].concat()).await;
    assert_eq!(refusal(&next_of(&mut phone, "rpc.response").await), (-32028, "\"large\"".to_owned()));
    let grown_kib = rig.relay.rss_peak_kib() - before_kib;
    assert!(grown_kib < 8 * 1024, "{grown_kib} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desktop_that_answers_three_bursts_at_once_loses_none() {
    const BURST: usize = 20;
    const EACH: usize = 15;
    let rig = Rig::start(&["--rate-burst=20", "--rate-per-second=100"], 4).await;
    let mut desktop = rig.desktop().await;
    let (mut phones, mut requests) = (Vec::new(), Vec::new());
    for index in 0..4 {
        let mut phone = rig.phone(index).await;
        phone.write(&texts((0..EACH).map(|number| request(&format!("{index}/{number}"), "1")))).await;
        for _ in 0..EACH {
            requests.push(next_of(&mut desktop, "rpc.request").await);
        }
        phones.push(phone);
    }
    assert_eq!(requests.len(), 3 * BURST);
    let start = Instant::now();
    desktop.write(&texts(requests.iter().map(|request| response(request, payload_field(request, "id"))))).await;
    for (index, phone) in phones.iter_mut().enumerate() {
        let mut answers = BTreeMap::new();
        for _ in 0..EACH {
            let answer = next_of(phone, "rpc.response").await;
            answers.insert(payload_field(&answer, "id").to_owned(), payload_field(&answer, "result").to_owned());
        }
        let expected = (0..EACH).map(|number| format!("\"{index}/{number}\""));
        assert_eq!(answers, expected.map(|id| (id.clone(), id)).collect(), "phone {index}");
    }
    // At most one burst was there at the start, and the others took their time.
    assert!(start.elapsed() >= Duration::from_millis(400), "{:?}: the desktop was not paced", start.elapsed());
    round_trip(&mut phones[0], &mut desktop, "afterwards").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paced_desktop_is_not_silent_and_still_hears_the_relay() {
    let flags = ["--rate-burst=2", "--rate-per-second=1", "--silence-timeout=700ms", "--heartbeat-interval=100ms"];
    let rig = Rig::start(&flags, 1).await;
    let mut desktop = rig.desktop().await;
    desktop.write(&texts([PING; 4])).await;
    let mut phone = rig.phone(0).await;
    phone.text(&request("meanwhile", "1")).await;
    // Of four pings, the last three wait a second each, longer than anybody may be silent.
    let (mut pongs, mut pings_between, mut request_after) = (0, 0, None);
    while pongs < 4 {
        match desktop.read(PATIENCE).await {
            Received::Frame { opcode: opcode::PING, .. } => pings_between += usize::from(pongs > 0),
            other @ (Received::Frame { .. } | Received::End | Received::EndInsideFrame | Received::Reset | Received::Nothing) => {
                match text_of(&other) {
                    PONG => pongs += 1,
                    text if text.contains("meanwhile") => request_after = Some(pongs),
                    text => panic!("{text}"),
                }
            }
        }
    }
    assert!(pings_between >= 10, "{pings_between} heartbeats in three seconds");
    assert!(request_after.is_some_and(|pongs| pongs < 4), "a request waits for nobody's token");
    // Now nothing is left to read, and silence is silence again.
    assert_eq!(desktop.closed(PATIENCE).await, Some((4004, "silent".to_owned())));
}

/// It is slowed down by its own TCP connection, and the relay keeps nothing for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_paced_desktop_delays_nobody_else() {
    let relay = RelayProcess::start(&["--rate-burst=50", "--rate-per-second=50"]).await;
    let (account, stranger) = (Account::new(&relay, 2, 1).await, Account::new(&relay, 1, 1).await);
    let mut paced = registered(&account.raw_desktop(), account.desktops[0]).await;
    let (token, target) = (&account.token, account.desktops[1]);
    let mut desktop = registered(&RawOptions::device_link(&account.address, token, Role::Desktop, None), target).await;
    let mut phone = registered(&RawOptions::device_link(&account.address, token, Role::Mobile, Some(target)), account.phones[0]).await;
    let mut strange_desktop = registered(&stranger.raw_desktop(), stranger.desktops[0]).await;
    let mut strange_phone = registered(&stranger.raw_phone(), stranger.phones[0]).await;

    let before_kib = relay.rss_peak_kib();
    let flood = texts([PING]).repeat(2_000_000);
    assert!(!paced.try_write(&flood, Duration::from_millis(500)).await, "64 MB were taken from a desktop that is paced");
    for number in 0..20 {
        round_trip(&mut phone, &mut desktop, &format!("near {number}")).await;
        round_trip(&mut strange_phone, &mut strange_desktop, &format!("far {number}")).await;
    }
    assert!(!paced.try_write(&[0], Duration::ZERO).await, "it is still paced");
    let grown_kib = relay.rss_peak_kib() - before_kib;
    assert!(grown_kib < 8 * 1024, "{grown_kib} KiB");
    for _ in 0..60 {
        assert_eq!(next_of(&mut paced, "pong").await, PONG);
    }
}
