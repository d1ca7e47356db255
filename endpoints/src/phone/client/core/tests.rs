//! What the client does and shows, in tables.

use super::{
    testing::{desktop, instance, registered, status},
    *,
};
use crate::frame::RpcError;
use rand::SeedableRng;
use relay_protocol::limits::TIMELINE_INTEREST_RENEWAL;
use serde_json::{Value, json};
use std::{io, time::Duration};

const MS: Duration = Duration::from_millis(1);
const RECONNECT: Policy = Policy { first: Duration::from_secs(1), max: Duration::from_secs(8) };

struct Rig {
    core: Core,
    now: Instant,
    out: Vec<Effect>,
}

impl Rig {
    fn new(verifies: bool) -> Self {
        let settings =
            Settings { desktop: Some(desktop()), platform: Platform::Other, verifies, reconnect: RECONNECT, retries: Retries::NONE };
        let now = Instant::now();
        Rig { core: Core::new(now, settings, None, StdRng::seed_from_u64(1)), now, out: Vec::new() }
    }

    /// Registered, with a session watched.
    fn watching() -> Self {
        let mut rig = Rig::new(true);
        rig.watch(1, "s");
        rig.register(1);
        rig
    }

    /// The same, and verified.
    fn ready() -> Self {
        let mut rig = Rig::watching();
        let ping = rig.sent().remove(1);
        rig.answer(&ping, Ok("{}"));
        let load = rig.sent().remove(0);
        rig.answer(&load, Ok("{}"));
        assert!(matches!(rig.core.shown, Status::Ready));
        rig.out.clear();
        rig
    }

    fn handle(&mut self, input: Input) {
        self.core.handle(self.now, input, &mut self.out);
    }

    fn watch(&mut self, number: u64, session: &str) {
        let window = Some(Request::new("run.chatLoad"));
        self.handle(Input::Watch(Watched { number, session: Arc::from(session), window }));
    }

    fn register(&mut self, process: u128) {
        self.handle(Input::Opened(Ok(registered(process, Some(1)))));
    }

    fn lose(&mut self) {
        self.handle(Input::LinkEnded(Ended::Lost("x".to_owned())));
    }

    fn close_with(&mut self, code: u16) {
        self.handle(Input::LinkEnded(Ended::Closed { code, reason: String::new() }));
    }

    /// The frames of all effects since the last look: each as its type, or its method, with its payload.
    fn sent(&mut self) -> Vec<Value> {
        let frames = self.out.drain(..).filter_map(|effect| match effect {
            Effect::Send(frame) => Some(serde_json::from_str::<Value>(&frame).unwrap()["payload"].take()),
            Effect::Open(_)
            | Effect::Goodbye
            | Effect::Save(_)
            | Effect::Clear
            | Effect::Registered(_)
            | Effect::Progress(..)
            | Effect::Done(..)
            | Effect::Publish(..)
            | Effect::Refused(_)
            | Effect::Window(..)
            | Effect::Show(_) => None,
        });
        frames.collect()
    }

    fn answer(&mut self, request: &Value, outcome: Result<&str, i64>) {
        let outcome = match outcome {
            Ok(result) => Outcome::Result(RawValue::from_string(result.to_owned()).unwrap()),
            Err(code) => {
                let retryable = (-32024..=-32010).contains(&code) && code != -32021;
                let text = format!(r#"{{"code":{code},"message":"m","data":{{"retryable":{retryable}}}}}"#);
                Outcome::Error(RpcError::from_raw(RawValue::from_string(text).unwrap()))
            }
        };
        let id = request["id"].as_str().unwrap().to_owned();
        self.handle(Input::Response(IncomingResponse { id, outcome, is_final: true }));
    }

    fn presence(&mut self, process: u128, revision: u64, presence: Presence) {
        let told = status(process, revision, presence);
        let payload = json!({
            "deviceId": told.device_id, "status": presence.to_string(), "revision": revision, "relayInstanceId": instance(process),
        });
        let payload = RawValue::from_string(payload.to_string()).unwrap();
        self.handle(Input::Event(Event { event_type: DEVICE_STATUS.to_owned(), source_device_id: None, payload }, 1));
    }

    /// Lets the time pass until something is due, and does it; how long it took. A millisecond before nothing happens.
    fn until_due(&mut self) -> Duration {
        let due = self.core.next_timeout().expect("something is due");
        let waited = due.saturating_duration_since(self.now);
        if waited > MS {
            let effects = self.out.len();
            self.core.handle(due - MS, Input::Timeout, &mut self.out);
            assert_eq!((self.out.len(), self.core.next_timeout()), (effects, Some(due)));
        }
        self.now = self.now.max(due);
        self.handle(Input::Timeout);
        waited
    }

    fn shown(&self) -> String {
        self.core.shown.to_string()
    }

    fn has(&self, is: impl Fn(&Effect) -> bool) -> bool {
        self.out.iter().any(is)
    }
}

fn interest(session: &str, active: bool) -> Value {
    json!({"eventType": "chat:timeline-interest", "payload": {"appSessionId": session, "active": active}})
}

#[test]
fn lease_ping_and_window_in_this_order_and_reconnecting_is_shown_until_then() {
    let mut rig = Rig::new(true);
    assert_eq!(rig.shown(), "connecting");
    rig.watch(1, "s");
    rig.handle(Input::Start(7, Box::new(Request::new("session.list"))));
    assert!(rig.sent().is_empty());
    rig.register(1);
    let sent = rig.sent();
    assert_eq!(sent[0], interest("s", true));
    assert_eq!([&sent[1]["method"], &sent[2]["method"]], ["system.ping", "session.list"], "what the program asked comes last");
    assert_eq!((sent.len(), rig.shown().as_str()), (3, "reconnecting: verifying the desktop"));
    rig.answer(&sent[1], Ok("{}"));
    let load = rig.sent();
    assert_eq!((load.len(), &load[0]["method"]), (1, &json!("run.chatLoad")));
    assert_eq!(rig.shown(), "reconnecting: verifying the desktop");
    rig.answer(&load[0], Ok("[1]"));
    assert!(rig.has(|effect| matches!(effect, Effect::Window(session, result) if &**session == "s" && result.get() == "[1]")));
    assert_eq!(rig.shown(), "ready");
    assert_eq!(rig.core.calls.next_timeout().map(|due| due - rig.now), Some(Duration::from_secs(60)), "the program's call is open");
}

#[test]
fn after_each_gap_the_same_happens_again() {
    for process in [1, 2] {
        let mut rig = Rig::ready();
        rig.lose();
        assert!(rig.shown().starts_with("reconnecting: the connection was lost"), "{}", rig.shown());
        let waited = rig.until_due();
        assert!(waited <= RECONNECT.first);
        assert!(rig.has(|effect| matches!(effect, Effect::Open(Some(resume)) if resume.resume_token == "token-1")));
        assert!(rig.shown().starts_with("reconnecting: the connection was lost"), "while the attempt is under way");
        rig.register(process);
        let sent = rig.sent();
        assert_eq!((sent.len(), &sent[0], &sent[1]["method"]), (2, &interest("s", true), &json!("system.ping")));
        rig.answer(&sent[1], Ok("{}"));
        let load = rig.sent().remove(0);
        assert_eq!(load["method"], "run.chatLoad");
    }
}

#[test]
fn a_lease_is_renewed_while_there_is_a_link_and_only_then() {
    let mut rig = Rig::ready();
    let start = rig.now;
    for _renewal in 0..3 {
        assert_eq!(rig.until_due(), TIMELINE_INTEREST_RENEWAL);
        assert_eq!(rig.sent(), [interest("s", true)]);
    }
    assert_eq!(rig.now - start, 3 * TIMELINE_INTEREST_RENEWAL);
    rig.lose();
    rig.until_due();
    assert_eq!((rig.sent(), rig.core.next_timeout()), (vec![], None), "the attempt is awaited, and nothing else");
}

#[test]
fn a_failed_attempt_is_tried_again_with_longer_waits() {
    let mut rig = Rig::new(true);
    let mut most = Duration::ZERO;
    for _attempt in 0..40 {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        rig.handle(Input::Opened(Err(OpenError::Connect(crate::link::ConnectError::Unreachable(refused)))));
        assert!(rig.shown().starts_with("reconnecting: no connection"));
        let waited = rig.until_due();
        assert!(waited <= RECONNECT.max);
        most = most.max(waited);
    }
    assert!(most > RECONNECT.max / 2, "{most:?}");
}

#[test]
fn what_trying_again_cannot_mend_is_the_end_of_every_call() {
    for (code, is_end, clears) in
        [(1008, true, true), (4002, true, false), (1012, false, false), (4003, false, false), (1006, false, false)]
    {
        let mut rig = Rig::ready();
        rig.handle(Input::Start(7, Box::new(Request::new("session.list"))));
        rig.close_with(code);
        assert_eq!(rig.core.is_over(), is_end, "{code}");
        assert_eq!(rig.has(|effect| matches!(effect, Effect::Done(7, Err(Failure::Ended(_))))), is_end, "{code}");
        assert_eq!(rig.has(|effect| matches!(effect, Effect::Clear)), clears, "{code}");
        assert_eq!(rig.shown().starts_with("ended: "), is_end, "{}", rig.shown());
    }
    let mut rig = Rig::new(true);
    let refusal = |retryable| ErrorFrame { code: "x".to_owned(), message: "m".to_owned(), retryable };
    rig.handle(Input::Opened(Err(OpenError::Register(RegisterError::Refused(refusal(true))))));
    assert!(!rig.core.is_over());
    rig.until_due();
    rig.handle(Input::Opened(Err(OpenError::Register(RegisterError::Refused(refusal(false))))));
    assert!(rig.core.is_over());
}

#[test]
fn a_token_is_saved_when_it_is_new() {
    let mut rig = Rig::watching();
    assert!(rig.has(|effect| matches!(effect, Effect::Save(resume) if resume.resume_token == "token-1")));
    for (process, is_saved) in [(1, false), (2, true)] {
        rig.lose();
        rig.until_due();
        rig.out.clear();
        rig.register(process);
        assert_eq!(rig.has(|effect| matches!(effect, Effect::Save(_))), is_saved, "{process}");
    }
    assert!(!format!("{:?}", rig.core).contains("token-"), "it is a secret");
}

#[test]
fn a_desktop_that_is_away_is_named_and_asked_again() {
    for (code, shown) in [
        (-32010, "desktop offline"),
        (-32011, "reconnecting: the desktop lost its connection"),
        (-32023, "reconnecting: verifying the desktop"),
        (-32012, "reconnecting: verifying the desktop"),
    ] {
        let mut rig = Rig::watching();
        let ping = rig.sent().remove(1);
        rig.answer(&ping, Err(code));
        assert_eq!(rig.shown(), shown);
        assert!(rig.sent().is_empty());
        let waited = rig.until_due();
        assert!(waited <= RECONNECT.first, "{code}");
        let ping = rig.sent().remove(0);
        assert_eq!((&ping["method"], rig.shown().as_str()), (&json!("system.ping"), shown), "what is shown stays meanwhile");
        rig.answer(&ping, Ok("{}"));
        assert_eq!(rig.sent()[0]["method"], "run.chatLoad");
    }
    // A desktop that does not like to be pinged is there.
    let mut rig = Rig::watching();
    let ping = rig.sent().remove(1);
    rig.answer(&ping, Err(-32601));
    assert_eq!(rig.sent()[0]["method"], "run.chatLoad");
}

#[test]
fn a_desktop_that_is_away_for_long_is_asked_ever_more_rarely() {
    let mut rig = Rig::watching();
    let mut ping = rig.sent().remove(1);
    let start = rig.now;
    let mut pings = 0;
    while rig.now - start < Duration::from_secs(3_600) {
        rig.answer(&ping, Err(-32010));
        rig.out.clear();
        loop {
            rig.until_due();
            let sent = rig.sent();
            if let Some(next) = sent.into_iter().find(|frame| frame["method"] == "system.ping") {
                ping = next;
                pings += 1;
                break;
            }
        }
    }
    // An hour by waits of four seconds on average.
    assert!((700..1_100).contains(&pings), "{pings}");
}

#[test]
fn presence_of_the_desktop_counts_at_once() {
    let mut rig = Rig::ready();
    rig.presence(1, 2, Presence::Reconnecting);
    assert_eq!(rig.shown(), "reconnecting: the desktop lost its connection");
    rig.presence(1, 3, Presence::Disconnected);
    assert_eq!(rig.shown(), "desktop offline");
    assert!(rig.sent().is_empty());
    rig.presence(1, 4, Presence::Online);
    let ping = rig.sent().remove(0);
    assert_eq!(ping["method"], "system.ping");
    rig.answer(&ping, Ok("{}"));
    assert_eq!(rig.sent()[0]["method"], "run.chatLoad", "what was missed is loaded");
}

#[test]
fn presence_that_is_out_of_date_or_of_another_process_is_ignored() {
    let mut rig = Rig::ready();
    rig.presence(1, 2, Presence::Online);
    assert!(rig.has(|effect| matches!(effect, Effect::Publish(..))));
    rig.out.clear();
    for (process, revision) in [(2, 3), (1, 1), (1, 2)] {
        rig.presence(process, revision, Presence::Disconnected);
        assert_eq!((rig.shown().as_str(), rig.out.len()), ("ready", 0), "{process} {revision}");
    }
}

#[test]
fn a_window_that_cannot_be_loaded_is_a_state_of_its_own() {
    let mut rig = Rig::watching();
    let ping = rig.sent().remove(1);
    rig.answer(&ping, Ok("{}"));
    let load = rig.sent().remove(0);
    rig.answer(&load, Err(-32603));
    assert_eq!(rig.shown(), "connected, but history unavailable: -32603 m");
    rig.handle(Input::Reload);
    let load = rig.sent().remove(0);
    assert_eq!(load["method"], "run.chatLoad");
    rig.answer(&load, Ok("[]"));
    assert_eq!(rig.shown(), "ready");
    // The desktop went while it was asked.
    rig.handle(Input::Reload);
    let load = rig.sent().remove(0);
    rig.answer(&load, Err(-32010));
    assert_eq!(rig.shown(), "desktop offline");
    rig.handle(Input::Reload);
    assert!(rig.sent().is_empty(), "it is asked whether it is there first");
}

#[test]
fn another_session_takes_the_place_of_the_one_before() {
    let mut rig = Rig::ready();
    rig.watch(2, "t");
    let sent = rig.sent();
    assert_eq!((&sent[0], &sent[1]["method"], sent.len()), (&interest("t", true), &json!("run.chatLoad"), 2));
    rig.handle(Input::Unwatch(1));
    assert!(rig.sent().is_empty(), "the former watch has nothing to end");
    rig.watch(3, "u");
    rig.answer(&sent[1], Ok("[]"));
    assert!(!rig.has(|effect| matches!(effect, Effect::Window(..))), "the window of a session that is watched no longer");
    rig.out.clear();
    rig.handle(Input::Unwatch(3));
    assert_eq!(rig.sent(), [interest("u", false)]);
    assert_eq!(rig.shown(), "ready");
}

#[test]
fn a_client_that_does_not_verify_believes_the_relay() {
    let mut rig = Rig::new(false);
    rig.watch(1, "s");
    let mut answer = registered(1, Some(1));
    answer.target = Some(status(1, 1, Presence::Disconnected));
    rig.handle(Input::Opened(Ok(answer)));
    assert_eq!((rig.sent(), rig.shown().as_str()), (vec![interest("s", true)], "desktop offline"));
    rig.presence(1, 2, Presence::Online);
    assert_eq!(rig.sent()[0]["method"], "run.chatLoad");
}

#[test]
fn a_close_gives_the_lease_back_and_ends_every_call() {
    let mut rig = Rig::ready();
    rig.handle(Input::Start(7, Box::new(Request::new("session.list"))));
    rig.out.clear();
    rig.handle(Input::Close);
    assert!(matches!(
        &rig.out[..],
        [Effect::Send(_), Effect::Goodbye, Effect::Done(7, Err(Failure::Closed)), Effect::Show(Status::Closed)]
    ));
    assert_eq!(rig.sent(), [interest("s", false)]);
    let mut rig = Rig::new(true);
    rig.handle(Input::Close);
    assert!(matches!(&rig.out[..], [Effect::Show(Status::Closed)]));
}
