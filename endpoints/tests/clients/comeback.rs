//! A phone that comes back: what it does over several connections, against a server that ends them.

use crate::fake_relay::{FakeRelay, PATIENCE, Peer, device};
use relay_endpoints::{
    backoff::Policy,
    frame::{ErrorFrame, Resume},
    link::LinkOptions,
    phone::{
        Client, ClientOptions, NoEvent, PhoneOptions, Request,
        client::{CALLS_MAX, Failure, MemoryStore, ResumeStore, Status},
    },
};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::watch, time::timeout};

const SOON: Policy = Policy { first: Duration::from_millis(1), max: Duration::from_millis(1) };

fn options(relay: &FakeRelay) -> ClientOptions {
    let phone = PhoneOptions::new(LinkOptions::phone(relay.address.clone(), "t".to_owned(), device(9)), device(2));
    ClientOptions { reconnect: SOON, ..ClientOptions::new(phone) }
}

fn interest(session: &str, active: bool) -> Value {
    json!({"eventType": "chat:timeline-interest", "payload": {"appSessionId": session, "active": active}})
}

async fn until(status: &mut watch::Receiver<Status>, is: impl FnMut(&Status) -> bool) -> Status {
    timeout(PATIENCE, status.wait_for(is)).await.expect("the status comes").expect("the client is there").clone()
}

/// The next request, which has this method.
async fn request(peer: &mut Peer, method: &str) -> Value {
    let request = peer.expect("rpc.request").await;
    assert_eq!(request["method"], method);
    request
}

async fn answer(peer: &mut Peer, request: &Value) {
    peer.send_frame("rpc.response", json!({"id": request["id"], "result": 1})).await;
}

/// Lets a client that has just registered verify its desktop and the session `s`.
async fn verify(peer: &mut Peer) {
    assert_eq!(peer.expect("event").await, interest("s", true));
    let ping = request(peer, "system.ping").await;
    answer(peer, &ping).await;
    let load = request(peer, "run.chatLoad").await;
    assert_eq!(load["params"], json!({"appSessionId": "s"}));
    answer(peer, &load).await;
}

/// A store that a test can look into.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Vec<Option<String>>>>);

impl Shown {
    fn saved(&self) -> Vec<Option<String>> {
        self.0.lock().unwrap().clone()
    }
}

impl ResumeStore for Shown {
    type Error = Infallible;

    fn load(&mut self) -> Result<Option<Resume>, Infallible> {
        Ok(Some(Resume { session_id: device(3).to_string().parse().unwrap(), resume_token: "stored".to_owned() }))
    }

    fn save(&mut self, resume: &Resume) -> Result<(), Infallible> {
        self.0.lock().unwrap().push(Some(resume.resume_token.clone()));
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Infallible> {
        self.0.lock().unwrap().push(None);
        Ok(())
    }
}

#[tokio::test]
async fn it_verifies_the_desktop_after_each_registration_and_is_ready_then() {
    let relay = FakeRelay::start().await;
    let client = Client::start(options(&relay), MemoryStore::default());
    let (mut status, mut window) = (client.status(), client.window());
    let mut watch = client.watch("s");
    let (mut peer, register) = relay.accept_registered().await;
    assert!(register.get("resumeToken").is_none());
    verify(&mut peer).await;
    until(&mut status, |status| matches!(status, Status::Ready)).await;
    let loaded = window.borrow_and_update().clone().unwrap();
    assert_eq!((&*loaded.session, loaded.result.get()), ("s", "1"));
    peer.send_frame("event", json!({"eventType": "x", "payload": {}})).await;
    assert_eq!(timeout(PATIENCE, watch.next()).await.unwrap().unwrap().event_type, "x");

    drop(peer);
    until(&mut status, |status| matches!(status, Status::Reconnecting { .. })).await;
    let mut peer = relay.accept().await;
    assert_eq!(peer.expect("register").await["resumeToken"], "token-1");
    peer.answer_register("resumed", 1).await;
    until(&mut status, |status| matches!(status, Status::Verifying)).await;
    verify(&mut peer).await;
    until(&mut status, |status| matches!(status, Status::Ready)).await;
    assert!(window.has_changed().unwrap(), "it is loaded again");
    peer.send_frame("event", json!({"eventType": "y", "payload": {}})).await;
    assert_eq!(timeout(PATIENCE, watch.next()).await.unwrap().unwrap().event_type, "y", "one watch over all connections");

    drop(watch);
    assert_eq!(peer.expect("event").await, interest("s", false));
    let ((), code) = tokio::join!(client.close(), peer.closed_with());
    assert_eq!(code, Some(1000));
}

#[tokio::test]
async fn a_resume_that_is_refused_is_given_up_and_the_new_token_kept() {
    let relay = FakeRelay::start().await;
    let store = Shown::default();
    let client = Client::start(options(&relay), store.clone());
    let mut status = client.status();
    let mut peer = relay.accept().await;
    assert_eq!(peer.expect("register").await["resumeToken"], "stored");
    peer.refuse("invalidResume", false).await;
    assert!(peer.expect("register").await.get("resumeToken").is_none());
    peer.answer_register("registered", 1).await;
    let ping = request(&mut peer, "system.ping").await;
    answer(&mut peer, &ping).await;
    until(&mut status, |status| matches!(status, Status::Ready)).await;
    assert_eq!(store.saved(), [Some("token-1".to_owned())]);

    // After a log-out nothing is left of it.
    peer.close(1008, "loggedOut").await;
    let ended = until(&mut status, Status::is_over).await;
    assert!(matches!(ended, Status::Ended(cause) if cause.to_string().contains("1008 loggedOut")));
    assert_eq!(store.saved(), [Some("token-1".to_owned()), None]);
}

#[tokio::test]
async fn a_call_outlives_its_connection_and_is_sent_once() {
    let relay = FakeRelay::start().await;
    let client = Client::start(ClientOptions { verifies: false, ..options(&relay) }, MemoryStore::default());
    let (mut peer, _register) = relay.accept_registered().await;
    let mut call = client.call(Request::new("session.create")).unwrap();
    let asked = request(&mut peer, "session.create").await;
    drop(peer);
    let mut status = client.status();
    until(&mut status, |status| matches!(status, Status::Reconnecting { .. })).await;
    let held = client.call(Request::new("session.get")).unwrap();
    let (mut peer, _register) = relay.accept_registered().await;
    request(&mut peer, "session.get").await;
    peer.send_frame("rpc.response", json!({"id": asked["id"], "result": 1, "isFinal": false})).await;
    answer(&mut peer, &asked).await;
    assert!(matches!(timeout(PATIENCE, call.next()).await.unwrap().unwrap(), relay_endpoints::phone::Step::Progress(_)));
    assert_eq!(timeout(PATIENCE, call.result()).await.unwrap().unwrap().get(), "1");
    peer.close(4002, "replaced").await;
    assert!(matches!(timeout(PATIENCE, held.result()).await.unwrap(), Err(Failure::Ended(cause)) if cause.to_string().contains("4002")));
    until(&mut status, Status::is_over).await;
    let late = client.call(Request::new("session.get")).unwrap();
    assert!(matches!(timeout(PATIENCE, late.result()).await.unwrap(), Err(Failure::Ended(_))), "and so is every later call");
    assert_eq!(client.events().recv().await.unwrap_err(), NoEvent::Ended);
}

#[tokio::test]
async fn refused_frames_are_told_and_frames_that_make_no_sense_are_skipped() {
    let relay = FakeRelay::start().await;
    let client = Client::start(ClientOptions { verifies: false, ..options(&relay) }, MemoryStore::default());
    let mut refusals = client.refusals();
    let (mut peer, _register) = relay.accept_registered().await;
    for text in ["{", r#"{"type":"rpc.response","payload":{}}"#, r#"{"type":"new","payload":{}}"#] {
        peer.send(text).await;
    }
    peer.refuse("invalidPayload", false).await;
    timeout(PATIENCE, refusals.changed()).await.unwrap().unwrap();
    let expected = ErrorFrame { code: "invalidPayload".to_owned(), message: "m".to_owned(), retryable: false };
    assert_eq!(refusals.borrow().clone(), Some(expected));
    assert!(client.status().borrow().is_connected());
}

#[tokio::test]
async fn no_more_calls_are_open_than_a_relay_takes() {
    let relay = FakeRelay::start().await;
    let client = Client::start(options(&relay), MemoryStore::default());
    let call = || client.call(Request::new("session.get"));
    let mut open: Vec<_> = (0..CALLS_MAX).map(|_call| call().unwrap()).collect();
    assert!(matches!(call(), Err(Failure::TooManyCalls)));
    open.pop();
    assert!(call().is_ok(), "a call that was dropped leaves its place");
}
