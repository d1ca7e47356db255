//! A phone that watches a session: its lease, and the events that come.

use crate::fake_relay::{FakeRelay, PATIENCE, Peer, device};
use relay_endpoints::{
    link::LinkOptions,
    phone::{NoEvent, Phone, PhoneOptions},
};
use relay_protocol::{event::INTEREST, limits::TIMELINE_INTEREST_RENEWAL};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

const PING: &str = r#"{"type":"ping","payload":{}}"#;
/// Longer than a round trip takes.
const MARGIN: Duration = Duration::from_secs(5);

/// Lets this time pass at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn options(relay: &FakeRelay) -> PhoneOptions {
    PhoneOptions::new(LinkOptions::phone(relay.address.clone(), "t".to_owned(), device(9)), device(2))
}

async fn connected(relay: &FakeRelay) -> (Phone, Peer) {
    let (phone, (peer, _register)) = tokio::join!(Phone::connect(options(relay)), relay.accept_registered());
    (phone.unwrap(), peer)
}

fn interest(session: &str, active: bool) -> Value {
    json!({"eventType": INTEREST, "payload": {"appSessionId": session, "active": active}})
}

#[tokio::test]
async fn a_lease_is_taken_at_once_renewed_in_time_and_given_back() {
    let relay = FakeRelay::start().await;
    let (phone, mut peer) = connected(&relay).await;
    let watch = phone.watch("s-1");
    assert_eq!(peer.expect("event").await, interest("s-1", true));
    for _renewal in 0..2 {
        pass(TIMELINE_INTEREST_RENEWAL - MARGIN).await;
        // What is sent now comes first: the renewal is not due yet.
        phone.send_frame(PING.to_owned()).await.unwrap();
        peer.expect("ping").await;
        pass(MARGIN).await;
        assert_eq!(peer.expect("event").await, interest("s-1", true));
    }
    drop(watch);
    assert_eq!(peer.expect("event").await, interest("s-1", false));
    phone.send_frame(PING.to_owned()).await.unwrap();
    peer.expect("ping").await;
}

#[tokio::test]
async fn a_phone_has_one_lease_and_a_former_watch_does_not_end_the_later_one() {
    let relay = FakeRelay::start().await;
    let (phone, mut peer) = connected(&relay).await;
    let first = phone.watch("a");
    assert_eq!(peer.expect("event").await, interest("a", true));
    let second = phone.watch("b");
    assert_eq!(peer.expect("event").await, interest("b", true));
    drop(first);
    pass(TIMELINE_INTEREST_RENEWAL).await;
    assert_eq!(peer.expect("event").await, interest("b", true), "renewed");
    let ((), code) = tokio::join!(phone.close(), async {
        assert_eq!(peer.expect("event").await, interest("b", false), "given back before the goodbye");
        peer.closed_with().await
    });
    assert_eq!(code, Some(1000));
    drop(second);
}

#[tokio::test]
async fn events_of_every_kind_come_as_they_were_sent_and_calls_go_on() {
    let relay = FakeRelay::start().await;
    let (phone, mut peer) = connected(&relay).await;
    let mut watch = phone.watch("s");
    peer.expect("event").await;
    let payload = r#"{ "appSessionId":"s", "n":1.0e2, "t":"\ud800\/" }"#;
    peer.send(format!(
        r#"{{"type":"event","payload":{{"eventType":"chat:stream","sourceDeviceId":"{}","payload":{payload}}}}}"#,
        device(9)
    ))
    .await;
    peer.send_frame("event", json!({"eventType": "device-status", "payload": {"deviceId": device(9), "status": "online"}})).await;
    let frame = timeout(PATIENCE, watch.next()).await.unwrap().unwrap();
    assert_eq!((&*frame.event_type, frame.source_device_id, frame.payload.get()), ("chat:stream", Some(device(9)), payload));
    let status = timeout(PATIENCE, watch.next()).await.unwrap().unwrap();
    assert_eq!((&*status.event_type, status.source_device_id), ("device-status", None));
    let answer = async {
        let id = peer.expect("rpc.request").await["id"].take();
        peer.send_frame("rpc.response", json!({"id": id, "result": 1})).await;
    };
    assert_eq!(tokio::join!(phone.call("system.ping", None, None), answer).0.unwrap().get(), "1");
    peer.close(1012, "relayDraining").await;
    assert_eq!(timeout(PATIENCE, watch.next()).await.unwrap().unwrap_err(), NoEvent::Ended);
    assert_eq!(phone.ended().unwrap().code(), 1012);
}

#[tokio::test]
async fn a_program_that_takes_no_events_learns_how_many_it_missed_and_its_calls_are_answered() {
    const SENT: u64 = 3_000;
    let relay = FakeRelay::start().await;
    let (phone, mut peer) = connected(&relay).await;
    let mut watch = phone.watch("s");
    peer.expect("event").await;
    let server = async {
        for number in 0..SENT {
            peer.send_frame("event", json!({"eventType": "chat:stream", "payload": {"number": number}})).await;
        }
        let id = peer.expect("rpc.request").await["id"].take();
        peer.send_frame("rpc.response", json!({"id": id, "result": 1})).await;
    };
    tokio::join!(phone.call("system.ping", None, None), server).0.unwrap();
    let Err(NoEvent::Missed(missed)) = watch.next().await else { panic!("the first is no longer there") };
    assert!((1..SENT).contains(&missed), "{missed}");
    for number in missed..SENT {
        assert_eq!(watch.next().await.unwrap().payload.get(), format!(r#"{{"number":{number}}}"#));
    }
}
