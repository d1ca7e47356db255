use crate::fake_relay::{FakeRelay, PATIENCE, device};
use relay_endpoints::{
    backoff::Policy,
    desktop::{Cause, Desktop, DesktopOptions, Handler, Replies, SampleRouter, State},
    frame::{Event, IncomingRequest, RpcError},
    link::{Ended, LinkOptions, OpenError, RegisterError},
};
use serde_json::{json, value::RawValue};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

const USER: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

pub(crate) fn options(relay: &FakeRelay) -> DesktopOptions {
    let mut options = DesktopOptions::new(LinkOptions::desktop(relay.address.clone(), "t".to_owned()), device(1));
    options.backoff = Policy { first: Duration::from_millis(1), max: Duration::from_millis(1) };
    options
}

pub(crate) struct Running {
    states: mpsc::UnboundedReceiver<String>,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) outcome: JoinHandle<Result<(), Cause>>,
}

/// Runs a desktop; its states arrive as short texts.
fn run<H: Handler>(options: DesktopOptions, handler: H) -> Running {
    run_desktop(Desktop::new(options, handler))
}

pub(crate) fn run_desktop<H: Handler>(desktop: Desktop<H>) -> Running {
    let (sender, states) = mpsc::unbounded_channel();
    let (stop, stopped) = oneshot::channel();
    let stopped = async {
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let on_state = move |state: &State| {
        let text = match state {
            State::Registered(registered) => format!("registered resumed={}", registered.resumed),
            State::Waiting { cause: Cause::Open(_), .. } => "waiting: open".to_owned(),
            State::Waiting { cause: Cause::Ended(ended), .. } => format!("waiting: {}", ended.code()),
            State::Waiting { cause: Cause::Incompatible(_), .. } => unreachable!("waiting does not help"),
        };
        let _ = sender.send(text);
    };
    let outcome = tokio::spawn(desktop.run_until(stopped, on_state));
    Running { states, stop, outcome }
}

impl Running {
    pub(crate) async fn state(&mut self) -> String {
        timeout(PATIENCE, self.states.recv()).await.unwrap().unwrap()
    }

    pub(crate) async fn cause(self) -> Cause {
        timeout(PATIENCE, self.outcome).await.unwrap().unwrap().unwrap_err()
    }
}

fn request(id: &str, method: &str, params: Option<&str>) -> String {
    let params = params.map(|params| format!(r#""params":{params},"#)).unwrap_or_default();
    format!(
        r#"{{"type":"rpc.request","payload":{{"id":{id},"method":"{method}",{params}"traceparent":"t","clientId":"phone::desktop","userId":"{USER}"}}}}"#
    )
}

#[tokio::test]
async fn params_come_back_as_the_result_byte_for_byte() {
    let relay = FakeRelay::start().await;
    let _running = run(options(&relay), SampleRouter);
    let (mut peer, register) = relay.accept_registered().await;
    assert_eq!(register, json!({"deviceId": device(1), "relayProtocolVersion": "1.7"}));

    for (params, result) in [
        (Some("{}"), "{}"),
        (None, "null"),
        (Some("null"), "null"),
        (Some(r#"{ "b" : 1.50e+3, "a":"\ud800 \/ \u00e9", "b":-0 }"#), r#"{ "b" : 1.50e+3, "a":"\ud800 \/ \u00e9", "b":-0 }"#),
        (Some("123456789012345678901234567890.10"), "123456789012345678901234567890.10"),
    ] {
        peer.send(request(r#""\u0041 1""#, "session.list", params)).await;
        let expected = format!(
            r#"{{"type":"rpc.response","payload":{{"clientId":"phone::desktop","id":"\u0041 1","result":{result},"isFinal":true}}}}"#
        );
        assert_eq!(peer.text().await.unwrap(), expected);
    }
}

#[tokio::test]
async fn deep_nesting_is_echoed() {
    let relay = FakeRelay::start().await;
    let _running = run(options(&relay), SampleRouter);
    let (mut peer, _register) = relay.accept_registered().await;
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    peer.send(request(r#""1""#, "session.list", Some(&deep))).await;
    assert!(peer.text().await.unwrap().contains(&deep));
}

#[tokio::test]
async fn ping_is_answered_as_the_seed_shows() {
    let relay = FakeRelay::start().await;
    let _running = run(options(&relay), SampleRouter);
    let (mut peer, _register) = relay.accept_registered().await;
    peer.send(request(r#""1""#, "system.ping", Some("{}"))).await;
    let mut result = peer.expect("rpc.response").await["result"].take();
    assert!(result["timestampMs"].take().as_u64().unwrap() > 1_700_000_000_000);
    assert_eq!(result, json!({"ok": true, "service": "desktop-relay", "timestampMs": null, "capabilities": ["run.cancel.exact-run.v1"]}));
    peer.send_frame("ping", json!({})).await;
    assert_eq!(peer.text().await.unwrap(), r#"{"type":"pong","payload":{}}"#);
}

#[tokio::test]
async fn frames_that_it_does_not_know_are_skipped() {
    let relay = FakeRelay::start().await;
    let _running = run(options(&relay), SampleRouter);
    let (mut peer, _register) = relay.accept_registered().await;
    for text in ["[]", r#"{"type":"news","payload":{}}"#, r#"{"type":"rpc.request","payload":{"id":1}}"#] {
        peer.send(text).await;
    }
    peer.send_frame("event", json!({"eventType": "device-status", "payload": {}})).await;
    peer.refuse("invalidPayload", false).await;
    peer.send(request(r#""after""#, "session.list", None)).await;
    assert_eq!(peer.expect("rpc.response").await["id"], "after");
}

/// Methods say what it does: `hold` waits to be released, `progress` answers in parts, `twice` answers twice, `fail` fails.
struct Scripted {
    release: Arc<Notify>,
    events: mpsc::UnboundedSender<Event>,
}

impl Handler for Scripted {
    async fn handle(&self, request: IncomingRequest, replies: Replies) {
        let one = RawValue::from_string("1".to_owned()).unwrap();
        match request.method.as_str() {
            "hold" => {
                self.release.notified().await;
                let _ = replies.result(&one).await;
            }
            "progress" => {
                replies.progress(&one).await.unwrap();
                replies.result(&one).await.unwrap();
            }
            "twice" => {
                replies.result(&one).await.unwrap();
                replies.result(&one).await.unwrap();
            }
            "big" => {
                let big = RawValue::from_string(format!("\"{}\"", "x".repeat(32 * 1024 * 1024))).unwrap();
                replies.result(&big).await.unwrap();
            }
            _ => replies.error(&RpcError::new(-32000, "no")).await.unwrap(),
        }
    }

    fn on_event(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

fn scripted() -> (Scripted, Arc<Notify>, mpsc::UnboundedReceiver<Event>) {
    let release = Arc::new(Notify::new());
    let (events, received) = mpsc::unbounded_channel();
    (Scripted { release: Arc::clone(&release), events }, release, received)
}

#[tokio::test]
async fn requests_are_answered_concurrently_and_as_the_handler_likes() {
    let relay = FakeRelay::start().await;
    let (handler, release, mut events) = scripted();
    let _running = run(options(&relay), handler);
    let (mut peer, _register) = relay.accept_registered().await;

    peer.send(request(r#""held""#, "hold", None)).await;
    peer.send(request(r#""quick""#, "fail", None)).await;
    let failed = peer.expect("rpc.response").await;
    assert_eq!(failed["id"], "quick");
    assert_eq!(failed["error"], json!({"code": -32000, "message": "no"}));
    assert!(failed.get("result").is_none());
    release.notify_one();
    assert_eq!(peer.expect("rpc.response").await["id"], "held");

    peer.send(request(r#""p""#, "progress", None)).await;
    assert_eq!(peer.expect("rpc.response").await["isFinal"], false);
    assert_eq!(peer.expect("rpc.response").await["isFinal"], true);
    peer.send(request(r#""t""#, "twice", None)).await;
    assert_eq!(peer.text().await, peer.text().await);

    peer.send_frame("event", json!({"eventType": "chat:timeline-interest-updated", "payload": {"active": true}})).await;
    let event = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
    assert_eq!((event.event_type.as_str(), event.payload.get()), ("chat:timeline-interest-updated", r#"{"active":true}"#));
}

#[tokio::test]
async fn a_closure_is_a_handler() {
    let relay = FakeRelay::start().await;
    let _running = run(options(&relay), |request: IncomingRequest, replies: Replies| async move {
        replies.error(&RpcError::new(-32001, &request.method)).await.unwrap();
    });
    let (mut peer, _register) = relay.accept_registered().await;
    peer.send(request(r#""1""#, "session.list", None)).await;
    assert_eq!(peer.expect("rpc.response").await["error"], json!({"code": -32001, "message": "session.list"}));
}

#[tokio::test]
async fn what_it_cannot_take_or_send_is_refused() {
    let relay = FakeRelay::start().await;
    let (handler, _release, _events) = scripted();
    let mut options = options(&relay);
    options.handlers_max = 1;
    let _running = run(options, handler);
    let (mut peer, _register) = relay.accept_registered().await;
    peer.send(request(r#""big""#, "big", None)).await;
    let answer = peer.expect("rpc.response").await;
    assert_eq!(answer["error"]["code"], -32603);
    peer.send(request(r#""held""#, "hold", None)).await;
    peer.send(request(r#""above""#, "hold", None)).await;
    let answer = peer.expect("rpc.response").await;
    assert_eq!(answer["id"], "above");
    assert_eq!(answer["error"], json!({"code": -32603, "message": "Desktop is busy; retry the request shortly."}));
}

#[tokio::test]
async fn it_comes_back_with_its_resume_token_and_without_it_if_that_is_unknown() {
    let relay = FakeRelay::start().await;
    let mut running = run(options(&relay), SampleRouter);
    let (mut peer, _register) = relay.accept_registered().await;
    assert_eq!(running.state().await, "registered resumed=false");
    peer.close(1012, "relayDraining").await;
    assert_eq!(running.state().await, "waiting: 1012");

    let mut peer = relay.accept().await;
    let register = peer.expect("register").await;
    assert_eq!(register["resumeToken"], "token-1");
    peer.answer_register("resumed", 1).await;
    assert_eq!(running.state().await, "registered resumed=true");
    drop(peer);
    assert_eq!(running.state().await, "waiting: 1006");

    let mut peer = relay.accept().await;
    assert_eq!(peer.expect("register").await["resumeToken"], "token-1");
    peer.refuse("invalidResume", false).await;
    assert!(peer.expect("register").await.get("resumeToken").is_none());
    peer.answer_register("registered", 2).await;
    assert_eq!(running.state().await, "registered resumed=false");
    drop(peer);

    let mut peer = relay.accept().await;
    assert_eq!(peer.expect("register").await["resumeToken"], "token-2");
    peer.refuse("deviceLookupUnavailable", true).await;
    assert_eq!(running.state().await, "waiting: 1006");
    assert_eq!(running.state().await, "waiting: open");
    relay.accept_registered().await;
    assert_eq!(running.state().await, "registered resumed=false");
}

#[tokio::test]
async fn what_trying_again_cannot_mend_stops_it() {
    let relay = FakeRelay::start().await;
    for (code, reason) in [(1008, "loggedOut"), (4002, "replaced")] {
        let running = run(options(&relay), SampleRouter);
        let (mut peer, _register) = relay.accept_registered().await;
        peer.close(code, reason).await;
        let Cause::Ended(ended) = running.cause().await else { panic!("it was registered") };
        assert_eq!(ended, Ended::Closed { code, reason: reason.to_owned() });
    }

    let running = run(options(&relay), SampleRouter);
    let mut peer = relay.accept().await;
    peer.expect("register").await;
    peer.refuse("deviceNotFound", false).await;
    let cause = running.cause().await;
    assert!(matches!(cause, Cause::Open(OpenError::Register(RegisterError::Refused(error))) if error.code == "deviceNotFound"));

    let running = run(options(&relay), SampleRouter);
    relay.answer_http("401 Unauthorized", "").await;
    assert!(matches!(running.cause().await, Cause::Open(OpenError::Connect(_))));
}

#[tokio::test]
async fn asked_to_stop_it_says_goodbye() {
    let relay = FakeRelay::start().await;
    let mut running = run(options(&relay), SampleRouter);
    let (mut peer, _register) = relay.accept_registered().await;
    assert_eq!(running.state().await, "registered resumed=false");
    running.stop.send(()).unwrap();
    assert_eq!(peer.closed_with().await, Some(1000));
    timeout(PATIENCE, running.outcome).await.unwrap().unwrap().unwrap();
}
