//! Events of a desktop whose socket takes nothing for a while.

use crate::{
    desktop::{Running, options, run_desktop},
    fake_relay::{FakeRelay, PATIENCE, Peer},
};
use relay_endpoints::{
    desktop::{Desktop, Handler, Published, Publisher, Replies},
    frame::{Event, IncomingRequest},
};
use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};
use tokio::{sync::mpsc, time::timeout};
use uuid::Uuid;

/// More than the kernel takes for a peer that does not read, and more than the buffer holds beside another event; the test's peer takes
/// no message above 16 MiB.
const BLOCKING_BYTES: usize = 15 * 1024 * 1024;
const TTL_MS: u64 = 60_000;

/// Answers `null`, and tells what it has done.
struct Telling(mpsc::UnboundedSender<&'static str>);

impl Handler for Telling {
    async fn handle(&self, _request: IncomingRequest, replies: Replies) {
        replies.result(RawValue::NULL).await.unwrap();
        self.0.send("replied").unwrap();
    }

    fn on_event(&self, _event: Event) {
        self.0.send("heard").unwrap();
    }
}

/// A desktop that is registered, and a relay that reads nothing unless it is asked to.
struct Rig {
    relay: FakeRelay,
    peer: Peer,
    publisher: Publisher,
    done: mpsc::UnboundedReceiver<&'static str>,
    revision: u64,
    running: Running,
}

impl Rig {
    async fn start() -> Self {
        let relay = FakeRelay::start().await;
        let (telling, done) = mpsc::unbounded_channel();
        let desktop = Desktop::new(options(&relay), Telling(telling));
        let publisher = desktop.publisher();
        let mut running = run_desktop(desktop);
        let (peer, _register) = relay.accept_registered().await;
        assert_eq!(running.state().await, "registered resumed=false");
        let mut rig = Rig { relay, peer, publisher, done, revision: 0, running };
        rig.tell("s", Some("g")).await;
        rig
    }

    async fn done(&mut self, what: &str) {
        assert_eq!(timeout(PATIENCE, self.done.recv()).await.unwrap(), Some(what));
    }

    /// The desktop hears of an interest.
    async fn tell(&mut self, session: &str, generation: Option<&str>) {
        self.revision += 1;
        let (active, expires_in) = (generation.is_some(), generation.map(|_| TTL_MS));
        let payload = json!({
            "appSessionId": session, "active": active, "expiresAt": active.then_some(1), "expiresInMs": expires_in,
            "authorizationGeneration": generation, "revision": self.revision, "relayInstanceId": Uuid::from_u128(200)
        });
        self.peer.send_frame("event", json!({"eventType": "chat:timeline-interest-updated", "payload": payload})).await;
        self.done("heard").await;
    }

    /// From now on the socket takes nothing more, until the peer reads; an event `behind` waits.
    async fn block(&mut self) {
        assert_eq!(self.event("blocking", BLOCKING_BYTES).await, Published::Sent);
        // There is no room beside the large one: the socket has it.
        assert_eq!(self.event("behind", 1).await, Published::Sent);
    }

    async fn event(&self, event_type: &str, bytes: usize) -> Published {
        self.publisher.event(event_type, &to_raw_value(&json!({"n": "x".repeat(bytes)})).unwrap()).await
    }

    async fn timeline(&self, session: &str, key: Option<&str>, text: &str) -> Published {
        self.publisher.timeline(session, key, || fields(text)).await
    }

    /// What the peer gets until an event of that name: the texts of the timeline, names of other events, and types of other frames.
    async fn read_until(&mut self, last: &str) -> Vec<String> {
        let mut seen = Vec::new();
        while seen.last().is_none_or(|seen| seen != last) {
            let frame: Value = serde_json::from_str(&self.peer.text().await.unwrap()).unwrap();
            let name = match (frame["type"].as_str(), frame["payload"]["eventType"].as_str()) {
                (Some("event"), Some("chat:stream")) => &frame["payload"]["payload"]["text"],
                (Some("event"), _) => &frame["payload"]["eventType"],
                (_, _) => &frame["type"],
            };
            seen.push(name.as_str().unwrap().to_owned());
        }
        seen
    }
}

fn fields(text: &str) -> Map<String, Value> {
    Map::from_iter([("text".to_owned(), json!(text))])
}

async fn is_waiting<F: Future>(mut future: Pin<&mut F>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
}

#[tokio::test]
async fn what_waits_is_replaced_and_dropped_and_holds_up_no_reply() {
    let mut rig = Rig::start().await;
    rig.tell("r", Some("h")).await;
    rig.block().await;
    for text in ["draft 1", "draft 2", "entry", "draft 3"] {
        let key = text.starts_with("draft").then_some("draft");
        assert_eq!(rig.timeline("s", key, text).await, Published::Sent);
        assert_eq!(rig.timeline("r", key, &format!("of r: {text}")).await, Published::Sent);
    }
    // The interest of r ends, and begins anew.
    rig.tell("r", None).await;
    assert_eq!(rig.timeline("r", None, "nobody's").await, Published::NotWatched);
    rig.tell("r", Some("i")).await;
    assert_eq!(rig.timeline("r", None, "of r: anew").await, Published::Sent);
    let request = json!({"id": "1", "method": "session.list", "traceparent": "t", "clientId": "c", "userId": Uuid::from_u128(1)});
    rig.peer.send_frame("rpc.request", request).await;
    rig.done("replied").await;

    let read = rig.read_until("of r: anew").await;
    assert_eq!(read, ["blocking", "rpc.response", "behind", "entry", "draft 3", "of r: anew"]);
}

/// No message comes at the deadline, and what was sent before it is no reason to send what waits.
#[tokio::test]
async fn what_waits_for_longer_than_its_interest_is_not_sent() {
    let mut rig = Rig::start().await;
    rig.block().await;
    assert_eq!(rig.timeline("s", None, "entry").await, Published::Sent);
    assert_eq!(rig.timeline("s", Some("draft"), "draft").await, Published::Sent);
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(TTL_MS)).await;
    tokio::time::resume();
    assert_eq!(rig.event("last", 1).await, Published::Sent);
    assert_eq!(rig.read_until("last").await, ["blocking", "behind", "last"]);
}

#[tokio::test]
async fn at_each_bound_the_next_event_waits_for_room() {
    let mut rig = Rig::start().await;
    rig.block().await;
    for _ in 1..64 {
        assert_eq!(rig.event("regular", 1).await, Published::Sent);
    }
    for key in 0..64 {
        assert_eq!(rig.timeline("s", Some(&key.to_string()), "old").await, Published::Sent);
    }
    // A newer one of a key that waits needs no place.
    assert_eq!(rig.timeline("s", Some("63"), "new").await, Published::Sent);
    let publisher = rig.publisher.clone();
    {
        let mut one_more = pin!(publisher.timeline("s", Some("64"), || fields("one more")));
        assert!(is_waiting(one_more.as_mut()).await);
        // Nobody watches any more, so there is nothing to wait for, and what waited leaves room.
        rig.tell("s", None).await;
        assert_eq!(timeout(PATIENCE, one_more).await.unwrap(), Published::NotWatched);
    }
    let payload = to_raw_value(&json!({})).unwrap();
    let mut one_more = pin!(publisher.event("last", &payload));
    assert!(is_waiting(one_more.as_mut()).await);
    // The place of the one behind the blocking one is free when that has been written.
    let (published, read) = tokio::join!(timeout(PATIENCE, one_more), rig.read_until("last"));
    assert_eq!((published.unwrap(), read.len()), (Published::Sent, 66), "{read:?}");
    assert!(read[2..65].iter().all(|name| name == "regular"), "{read:?}");
}

#[tokio::test]
async fn with_the_link_everything_goes_that_waits() {
    let mut rig = Rig::start().await;
    rig.block().await;
    assert_eq!(rig.timeline("s", None, "entry").await, Published::Sent);
    let (publisher, waiting) = (rig.publisher.clone(), to_raw_value(&json!({"n": "x".repeat(BLOCKING_BYTES)})).unwrap());
    let mut waiting = pin!(publisher.event("waiting", &waiting));
    assert!(is_waiting(waiting.as_mut()).await);
    let mut behind_it = pin!(publisher.timeline("s", None, || unreachable!("the link has ended")));
    assert!(is_waiting(behind_it.as_mut()).await);

    // To a socket that takes nothing the goodbye of the relay is what ends it.
    rig.peer.close(1012, "relayDraining").await;
    assert_eq!(rig.running.state().await, "waiting: 1012");
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap(), Published::NotConnected);
    assert_eq!(timeout(PATIENCE, behind_it).await.unwrap(), Published::NotConnected);
    let (peer, _register) = rig.relay.accept_registered().await;
    rig.peer = peer;
    rig.tell("s", Some("g")).await;
    assert_eq!(rig.event("last", 1).await, Published::Sent);
    assert_eq!(rig.read_until("last").await, ["last"]);
}
