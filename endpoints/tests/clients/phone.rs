use crate::fake_relay::{FakeRelay, PATIENCE, Peer, device};
use relay_endpoints::{
    frame::Outcome,
    link::{Ended, LinkOptions, OpenError, RegisterError},
    phone::{CallError, Phone, PhoneOptions, Request, Step},
};
use serde_json::{Value, json, value::RawValue};
use std::time::Duration;
use tokio::time::timeout;

fn options(relay: &FakeRelay) -> PhoneOptions {
    PhoneOptions::new(LinkOptions::phone(relay.address.clone(), "t".to_owned(), device(9)), device(2))
}

async fn connected(relay: &FakeRelay) -> (Phone, Peer, Value) {
    let (phone, (peer, register)) = tokio::join!(Phone::connect(options(relay)), relay.accept_registered());
    (phone.unwrap(), peer, register)
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

#[tokio::test]
async fn a_call_carries_what_the_contract_demands_and_nothing_else() {
    let relay = FakeRelay::start().await;
    let (phone, mut peer, register) = connected(&relay).await;
    assert_eq!(register, json!({"deviceId": device(2), "relayProtocolVersion": "1.7", "targetDesktopDeviceId": device(9)}));

    let params = r#"{"b":1.0, "a":"\ud83d"}"#;
    let server = async {
        let text = peer.text().await.unwrap();
        assert!(text.contains(&format!(r#""params":{params},"#)), "{text}");
        let payload = serde_json::from_str::<std::collections::BTreeMap<String, Box<RawValue>>>(&text).unwrap().remove("payload").unwrap();
        let fields: std::collections::BTreeMap<String, Box<RawValue>> = serde_json::from_str(payload.get()).unwrap();
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["id", "method", "params", "traceparent"]);
        assert_eq!(fields["traceparent"].get().len(), 2 + 55);
        peer.send(format!(r#"{{"type":"rpc.response","payload":{{"id":{},"result":{params},"isFinal":true}}}}"#, fields["id"])).await;
    };
    let params = raw(params);
    let (result, ()) = tokio::join!(phone.call("session.list", Some(&params), None), server);
    assert_eq!(result.unwrap().get(), params.get());
}

#[tokio::test]
async fn only_mutations_get_a_key_and_a_given_one_is_kept() {
    let relay = FakeRelay::start().await;
    let (phone, mut peer, _register) = connected(&relay).await;
    for (method, given, expected) in
        [("system.ping", None, false), ("run.cancel", None, true), ("run.cancel", Some("mine"), true), ("system.ping", Some("mine"), true)]
    {
        let server = async {
            let payload = peer.expect("rpc.request").await;
            let key = payload.get("idempotencyKey").map(|key| key.as_str().unwrap().to_owned());
            assert_eq!(key.is_some(), expected, "{method}");
            if let Some(given) = given {
                assert_eq!(key.as_deref(), Some(given));
            }
            peer.send_frame("rpc.response", json!({"id": payload["id"], "result": null})).await;
        };
        let (result, ()) = tokio::join!(phone.call(method, None, given.map(str::to_owned)), server);
        assert_eq!(result.unwrap().get(), "null");
    }
}

#[tokio::test]
async fn answers_find_their_calls_in_any_order() {
    let relay = FakeRelay::start().await;
    let (phone, mut peer, _register) = connected(&relay).await;
    let server = async {
        let one = peer.expect("rpc.request").await;
        let two = peer.expect("rpc.request").await;
        peer.send_frame("rpc.response", json!({"id": "nobody's", "result": 0})).await;
        for payload in [&two, &one] {
            peer.send_frame("rpc.response", json!({"id": payload["id"], "result": payload["params"]})).await;
        }
    };
    let (one, two) = (raw("1"), raw("2"));
    let calls = async { tokio::join!(phone.call("session.list", Some(&one), None), phone.call("session.list", Some(&two), None)) };
    let ((first, second), ()) = tokio::join!(calls, server);
    assert_eq!((first.unwrap().get(), second.unwrap().get()), ("1", "2"));
}

#[tokio::test]
async fn progress_comes_before_the_final_answer() {
    let relay = FakeRelay::start().await;
    let (phone, mut peer, _register) = connected(&relay).await;
    let mut call = phone.start(Request { id: Some("mine".to_owned()), ..Request::new("session.list") }).await.unwrap();
    let duplicate = phone.start(Request { id: Some("mine".to_owned()), ..Request::new("session.list") }).await;
    assert!(matches!(duplicate, Err(CallError::DuplicateId)));
    assert_eq!(peer.expect("rpc.request").await["id"], "mine");
    peer.send_frame("rpc.response", json!({"id": "mine", "result": 1, "isFinal": false})).await;
    peer.send_frame("rpc.response", json!({"id": "mine", "result": 2, "isFinal": false})).await;
    peer.send_frame("rpc.response", json!({"id": "mine", "result": 3, "isFinal": true})).await;
    for expected in ["1", "2"] {
        let Step::Progress(Outcome::Result(result)) = call.next().await.unwrap() else { panic!("progress first") };
        assert_eq!(result.get(), expected);
    }
    assert!(matches!(call.next().await.unwrap(), Step::Final(result) if result.get() == "3"));
}

#[tokio::test]
async fn refusals_carry_code_message_and_data() {
    let relay = FakeRelay::start().await;
    let (phone, mut peer, _register) = connected(&relay).await;
    let server = async {
        let id = peer.expect("rpc.request").await["id"].take();
        let error = json!({"code": -32010, "message": "Desktop is offline", "data": {"retryable": true}});
        peer.send_frame("rpc.response", json!({"id": id, "error": error, "isFinal": true})).await;
    };
    let (refused, ()) = tokio::join!(phone.call("system.ping", None, None), server);
    let CallError::Refused(error) = refused.unwrap_err() else { panic!("a refusal") };
    assert_eq!((error.code, error.message.as_str(), error.retryable), (-32010, "Desktop is offline", true));
    assert_eq!(error.data.unwrap().get(), r#"{"retryable":true}"#);
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_and_its_late_answer_is_nobodys() {
    let relay = FakeRelay::start().await;
    let (phone, mut peer, _register) = connected(&relay).await;
    let deadline = Duration::from_millis(50);
    let mut call = phone.start(Request { deadline: Some(deadline), ..Request::new("session.list") }).await.unwrap();
    assert!(matches!(call.next().await, Err(CallError::TimedOut(after)) if after == deadline));
    let late = call.id().to_owned();
    drop(call);
    peer.expect("rpc.request").await;
    peer.send_frame("rpc.response", json!({"id": late, "result": "late"})).await;
    let server = async {
        let id = peer.expect("rpc.request").await["id"].take();
        peer.send_frame("rpc.response", json!({"id": id, "result": "prompt"})).await;
    };
    let (result, ()) = tokio::join!(phone.call("session.list", None, None), server);
    assert_eq!(result.unwrap().get(), r#""prompt""#);
}

#[tokio::test]
async fn the_end_of_the_link_fails_open_and_later_calls() {
    let relay = FakeRelay::start().await;
    let (phone, mut peer, _register) = connected(&relay).await;
    let server = async {
        peer.expect("rpc.request").await;
        peer.close(4002, "replaced").await;
    };
    let (open, ()) = tokio::join!(phone.call("system.ping", None, None), server);
    let replaced = Ended::Closed { code: 4002, reason: "replaced".to_owned() };
    assert!(matches!(open, Err(CallError::Closed(ended)) if ended == replaced));
    assert!(matches!(phone.call("system.ping", None, None).await, Err(CallError::Closed(ended)) if ended == replaced));
    assert_eq!(phone.ended(), Some(replaced));
}

#[tokio::test]
async fn a_phone_that_is_closed_says_goodbye() {
    let relay = FakeRelay::start().await;
    let (phone, mut peer, _register) = connected(&relay).await;
    let ((), code) = tokio::join!(phone.close(), peer.closed_with());
    assert_eq!(code, Some(1000));
}

#[tokio::test]
async fn presence_reaches_subscribers() {
    let relay = FakeRelay::start().await;
    let (phone, mut peer, _register) = connected(&relay).await;
    let mut events = phone.events();
    peer.send_frame("event", json!({"eventType": "device-status", "payload": {"deviceId": device(9), "status": "online"}})).await;
    let event = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
    assert_eq!(event.event_type, "device-status");
    drop(phone);
    assert_eq!(peer.text().await, None, "a dropped phone ends its socket");
}

#[tokio::test]
async fn a_refused_registration_is_typed() {
    let relay = FakeRelay::start().await;
    let server = async {
        let mut peer = relay.accept().await;
        peer.expect("register").await;
        peer.refuse("deviceNotEligible", false).await;
        peer
    };
    let (phone, _peer) = tokio::join!(Phone::connect(options(&relay)), server);
    let error = phone.err().unwrap();
    assert!(!error.retryable());
    assert!(matches!(error, OpenError::Register(RegisterError::Refused(error)) if error.code == "deviceNotEligible"));
}
