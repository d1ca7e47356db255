//! C39 and C40: what a phone that pauses, or reads slowly, finds of events: each once and in order, and of state only the newest.

use super::{freezing, stands_still};
use crate::support::{
    raw_socket::RawSocket,
    scale::scaled,
    timeline::{event, interest, next_update},
    wire::{KIB, MIB, Rig, next_of, registered, request, response, round_trip},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Instant, sleep, sleep_until};

const SESSION: &str = "session-1";

/// A phone that watches the session, and the generation that its desktop was told.
async fn watching(rig: &Rig, desktop: &mut RawSocket) -> (RawSocket, String) {
    let mut phone = registered(&freezing(rig.account.raw_phone()), rig.account.phones[0]).await;
    phone.text(&interest(SESSION, true)).await;
    (phone, next_update(desktop).await.generation().to_owned())
}

/// Timeline frames of a desktop.
struct Timeline {
    generation: String,
    filler: String,
}

impl Timeline {
    /// State: of several with one key that wait, the newest is enough.
    fn state(&self, key: &str, value: usize) -> String {
        self.frame(&json!({"timelineKey": key, "value": value}))
    }

    /// Something that happened.
    fn happened(&self, what: &str) -> String {
        self.frame(&json!({"value": what}))
    }

    fn frame(&self, more: &Value) -> String {
        let mut payload = json!({"appSessionId": SESSION, "authorizationGeneration": self.generation, "filler": self.filler});
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event("chat:stream", &payload.to_string())
    }
}

/// What a phone received, in short.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    State { key: String, value: u64 },
    Happened(String),
    Replied(String),
}

async fn next_seen(phone: &mut RawSocket) -> Seen {
    loop {
        let frame: Value = serde_json::from_str(&phone.next_text().await).unwrap();
        let (payload, event) = (&frame["payload"], &frame["payload"]["payload"]);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        match (frame["type"].as_str(), payload["eventType"].as_str()) {
            (Some("rpc.response"), None) => return Seen::Replied(text(&payload["id"])),
            (Some("event"), Some("device-status")) => {}
            (Some("event"), Some("chat:stream")) => {
                assert!(event.get("authorizationGeneration").is_none(), "{event}");
                return match event["timelineKey"].as_str() {
                    Some(key) => Seen::State { key: key.to_owned(), value: event["value"].as_u64().unwrap() },
                    None => Seen::Happened(text(&event["value"])),
                };
            }
            (Some("event"), Some("session:note")) => return Seen::Happened(text(&event["value"])),
            _ => panic!("{frame}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_that_pauses_finds_all_that_happened_in_order_and_the_newest_state_in_its_place() {
    let rig = Rig::start(&[], 2).await;
    let (mut desktop, mut other) = (rig.desktop().await, rig.phone(1).await);
    let (mut phone, generation) = watching(&rig, &mut desktop).await;
    phone.text(&request("small", "1")).await;
    let small = next_of(&mut desktop, "rpc.request").await;
    // Nothing more fits its transport, so what follows waits.
    stands_still(&rig, &mut desktop, &mut phone, 8 * MIB).await;

    let timeline = Timeline { generation, filler: String::new() };
    let note = |what: &str| event("session:note", &json!({"value": what}).to_string());
    let sent = [
        timeline.state("k", 1),
        note("first"),
        timeline.state("k", 2),
        timeline.happened("k deleted"),
        timeline.state("k", 3),
        response(&small, "1"),
        timeline.state("j", 1),
        timeline.happened("session ended"),
    ];
    for frame in &sent {
        desktop.text(frame).await;
    }
    round_trip(&mut other, &mut desktop, "behind them").await;

    let happened = |what: &str| Seen::Happened(what.to_owned());
    let state = |key: &str, value| Seen::State { key: key.to_owned(), value };
    let (mut events, mut replies) = (Vec::new(), Vec::new());
    while events.last() != Some(&happened("session ended")) || replies.len() < 2 {
        match next_seen(&mut phone).await {
            Seen::Replied(id) => replies.push(id),
            seen @ (Seen::State { .. } | Seen::Happened(_)) => events.push(seen),
        }
    }
    assert_eq!(events, [happened("first"), happened("k deleted"), state("k", 3), state("j", 1), happened("session ended")]);
    assert_eq!(replies, ["large", "small"]);
    round_trip(&mut phone, &mut desktop, "after").await;
}

/// A tenth of the state that is produced fits what the phone reads; what happens fits well. At the real rates it would take minutes
/// until the kernel's buffers are full, so everything is fifty times as fast here.
#[tokio::test(flavor = "multi_thread")]
async fn heavy_a_phone_that_reads_slowly_settles_and_is_never_cut() {
    const FRAME_BYTES: usize = 4 * KIB;
    const READ_PER_SECOND: usize = 50 * 20_000;
    const STATES_PER_SECOND: usize = 50 * 200_000 / FRAME_BYTES;
    /// One event for so many frames of state is a fortieth of the bytes.
    const STATES_PER_EVENT: usize = 40;
    const KEYS: usize = 10;
    let states = STATES_PER_SECOND * scaled(3, 60);
    let rig = Rig::start(&[], 1).await;
    let mut desktop = rig.desktop().await;
    let (mut phone, generation) = watching(&rig, &mut desktop).await;
    let timeline = Timeline { generation, filler: "f".repeat(FRAME_BYTES) };

    let start = Instant::now();
    let producing = async {
        for number in 0..states {
            desktop.text(&timeline.state(&format!("k{}", number % KEYS), number)).await;
            if number % STATES_PER_EVENT == 0 {
                desktop.text(&event("session:note", &json!({"value": number.to_string()}).to_string())).await;
            }
            sleep_until(start + Duration::from_secs(1) * u32::try_from(number).unwrap() / u32::try_from(STATES_PER_SECOND).unwrap()).await;
        }
        desktop.text(&timeline.happened("end")).await;
    };
    let reading = async {
        let (mut newest, mut taken, mut next_event) = (BTreeMap::<String, u64>::new(), 0, 0);
        loop {
            match next_seen(&mut phone).await {
                Seen::State { key, value } => {
                    assert!(newest.get(&key).is_none_or(|newest| *newest < value), "{key} goes back to {value}: {newest:?}");
                    newest.insert(key, value);
                    taken += 1;
                    sleep(Duration::from_secs(1) * u32::try_from(FRAME_BYTES).unwrap() / u32::try_from(READ_PER_SECOND).unwrap()).await;
                }
                Seen::Happened(what) if what == "end" => return (newest, taken, next_event),
                Seen::Happened(what) => {
                    assert_eq!(what, next_event.to_string(), "each event once and in order");
                    next_event += STATES_PER_EVENT;
                }
                Seen::Replied(id) => panic!("{id} was not asked"),
            }
        }
    };
    let ((), (newest, taken, events)) = tokio::join!(producing, reading);
    assert!(taken < states / 2, "{taken} of {states} states came: it was not slow");
    assert_eq!(events, states.next_multiple_of(STATES_PER_EVENT), "every event came");
    let last: BTreeMap<String, u64> = (states - KEYS..states).map(|number| (format!("k{}", number % KEYS), number as u64)).collect();
    assert_eq!(newest, last, "what is left is the newest state");
    round_trip(&mut phone, &mut desktop, "after").await;
}
