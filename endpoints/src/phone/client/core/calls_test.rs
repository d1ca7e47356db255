//! The open calls, in tables.

use super::{
    calls::{CallEvent, Calls, Owner},
    retry::Retries,
};
use crate::{
    backoff::Policy,
    frame::{IncomingResponse, Outcome, RpcError},
    phone::{Request, client::Failure},
};
use rand::{SeedableRng, rngs::StdRng};
use relay_protocol::contract::Platform;
use serde_json::{Value, value::RawValue};
use std::time::Duration;
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const CALL: Owner = Owner::Program(1);
/// The deadline of most methods.
const DEADLINE: Duration = Duration::from_secs(60);

/// Calls with a clock and a seed, and what came of them.
struct Rig {
    calls: Calls,
    rng: StdRng,
    start: Instant,
    out: Vec<CallEvent>,
}

impl Rig {
    fn new(retries: Retries) -> Self {
        let start = Instant::now();
        Rig { calls: Calls::new(start, retries, Platform::Other), rng: StdRng::seed_from_u64(1), start, out: Vec::new() }
    }

    fn linked(retries: Retries) -> Self {
        let mut rig = Rig::new(retries);
        rig.calls.on_registered(false, &mut rig.out);
        rig
    }

    fn start(&mut self, owner: Owner, request: Request) {
        self.calls.start(self.start, owner, request, &mut self.rng, &mut self.out);
    }

    /// The requests that were sent since the last look, none of which ended.
    fn sent(&mut self) -> Vec<Value> {
        let mut sent = Vec::new();
        for event in self.out.drain(..) {
            let CallEvent::Send(frame) = event else { panic!("{event:?}") };
            sent.push(serde_json::from_str::<Value>(&frame).unwrap()["payload"].take());
        }
        sent
    }

    fn one_sent(&mut self) -> Value {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    /// How the one call ended since the last look.
    fn ended(&mut self) -> Option<Result<Box<RawValue>, Failure>> {
        let mut ended = self.out.drain(..).map(|event| match event {
            CallEvent::Done(_, result) => result,
            CallEvent::Send(_) | CallEvent::Progress(..) => panic!("{event:?}"),
        });
        let result = ended.next();
        assert!(ended.next().is_none());
        result
    }

    fn failed(&mut self) -> Failure {
        self.ended().expect("it ended").unwrap_err()
    }

    fn answer(&mut self, after: Duration, request: &Value, outcome: Outcome) {
        let id = request["id"].as_str().unwrap().to_owned();
        self.calls.on_response(self.start + after, IncomingResponse { id, outcome, is_final: true }, &mut self.rng, &mut self.out);
    }

    fn refuse(&mut self, after: Duration, request: &Value, code: i64, retryable: bool) {
        self.answer(after, request, Outcome::Error(error(code, retryable)));
    }

    fn pass(&mut self, after: Duration) {
        self.calls.on_timeout(self.start + after, &mut self.rng, &mut self.out);
    }

    /// Until when nothing happens, from the start.
    fn due(&self) -> Option<Duration> {
        self.calls.next_timeout().map(|due| due - self.start)
    }
}

fn error(code: i64, retryable: bool) -> RpcError {
    let text = format!(r#"{{"code":{code},"message":"m","data":{{"retryable":{retryable}}}}}"#);
    RpcError::from_raw(RawValue::from_string(text).unwrap())
}

fn result() -> Outcome {
    Outcome::Result(RawValue::from_string("1".to_owned()).unwrap())
}

/// Waits of exactly one length: the jitter of one nanosecond is none.
fn retries(per_call: u32, burst: u32) -> Retries {
    Retries { per_call, burst, every: Duration::from_secs(3_600), backoff: Policy { first: Duration::ZERO, max: Duration::ZERO } }
}

#[test]
fn a_call_ends_at_its_deadline_and_says_what_it_waited_for() {
    for (method, deadline) in [("system.ping", 60), ("run.chatLoad", 115)] {
        let deadline = Duration::from_secs(deadline);
        let mut rig = Rig::linked(Retries::default());
        rig.start(CALL, Request::new(method));
        rig.one_sent();
        assert_eq!(rig.due(), Some(deadline));
        rig.pass(deadline - MS);
        assert!(rig.ended().is_none(), "{method}");
        rig.pass(deadline);
        assert!(matches!(rig.failed(), Failure::TimedOut(after) if after == deadline), "{method}");
        assert_eq!(rig.due(), None);
    }
    let mut rig = Rig::new(Retries::default());
    rig.start(CALL, Request { deadline: Some(MS), ..Request::new("system.ping") });
    rig.pass(MS);
    assert!(matches!(rig.failed(), Failure::NotSent(MS)), "there was no link");
}

#[test]
fn the_deadline_of_an_outbox_submit_is_the_platforms() {
    for (platform, deadline) in [(Platform::Ios, 20), (Platform::Android, 60), (Platform::Other, 60)] {
        let mut rig = Rig::new(Retries::default());
        rig.calls = Calls::new(rig.start, Retries::default(), platform);
        rig.start(CALL, Request::new("run.chatOutboxSubmit"));
        assert_eq!(rig.due(), Some(Duration::from_secs(deadline)), "{platform:?}");
    }
}

#[test]
fn a_call_stays_open_over_a_gap_and_is_not_sent_again_because_of_it() {
    let mut rig = Rig::linked(Retries::default());
    rig.start(CALL, Request::new("system.ping"));
    let request = rig.one_sent();
    rig.calls.on_link_ended();
    rig.calls.on_registered(false, &mut rig.out);
    rig.calls.send_held(&mut rig.out);
    assert_eq!(rig.sent(), Vec::<Value>::new());
    rig.answer(MS, &request, result());
    assert_eq!(rig.ended().unwrap().unwrap().get(), "1");
}

#[test]
fn another_process_knows_nothing_of_what_was_sent() {
    let mut rig = Rig::linked(retries(1, 1));
    for number in 1..=3 {
        rig.start(Owner::Program(number), Request::new("system.ping"));
        let request = rig.one_sent();
        if number == 2 {
            // It waits until it is sent again.
            rig.refuse(MS, &request, -32010, true);
        }
    }
    rig.calls.on_link_ended();
    rig.start(Owner::Program(4), Request::new("system.ping"));
    rig.calls.on_registered(true, &mut rig.out);
    let lost: Vec<Owner> = rig
        .out
        .drain(..)
        .map(|event| match event {
            CallEvent::Done(owner, Err(Failure::ReplyLost)) => owner,
            CallEvent::Done(..) | CallEvent::Send(_) | CallEvent::Progress(..) => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(lost, [Owner::Program(1), Owner::Program(3)]);
    rig.calls.send_held(&mut rig.out);
    assert_eq!(rig.sent().len(), 1, "what was not sent yet is sent now");
    rig.pass(MS);
    assert_eq!(rig.sent().len(), 1, "and what waited is sent again");
}

#[test]
fn a_call_waits_for_a_link_and_is_then_sent_once() {
    let mut rig = Rig::new(Retries::default());
    rig.start(CALL, Request::new("session.create"));
    assert_eq!(rig.sent(), Vec::<Value>::new());
    rig.calls.on_registered(false, &mut rig.out);
    rig.calls.send_held(&mut rig.out);
    let request = rig.one_sent();
    assert_eq!(request["method"], "session.create");
    assert!(request["idempotencyKey"].is_string() && request["traceparent"].is_string());
    rig.calls.send_held(&mut rig.out);
    assert_eq!(rig.sent(), Vec::<Value>::new());
}

#[test]
fn only_what_is_marked_is_sent_again_under_the_same_key_and_another_id() {
    let mut rig = Rig::linked(retries(9, 9));
    let params = RawValue::from_string(r#"{ "a":1.0 }"#.to_owned()).unwrap();
    rig.start(CALL, Request { params: Some(params), ..Request::new("session.create") });
    let mut requests = vec![rig.one_sent()];
    for code in [-32010, -32011, -32012, -32020, -32023, -32024, -32028, -32603] {
        rig.refuse(MS, requests.last().unwrap(), code, true);
        assert!(rig.ended().is_none(), "{code}");
        rig.pass(MS);
        requests.push(rig.one_sent());
    }
    for pair in requests.windows(2) {
        assert_ne!(pair[0]["id"], pair[1]["id"]);
        for field in ["method", "params", "idempotencyKey", "traceparent"] {
            assert_eq!(pair[0][field], pair[1][field], "{field}");
        }
    }
    // An answer to an attempt that was given up is nobody's.
    rig.answer(MS, &requests[0], result());
    assert!(rig.ended().is_none());
    rig.refuse(MS, requests.last().unwrap(), -32603, false);
    assert!(matches!(rig.failed(), Failure::Refused(error) if error.code == -32603));
}

#[test]
fn each_refusal_that_ends_a_call_is_named() {
    let refused = |code: i64, retryable: bool| {
        let mut rig = Rig::linked(Retries::NONE);
        rig.start(CALL, Request::new("system.ping"));
        let request = rig.one_sent();
        rig.refuse(MS, &request, code, retryable);
        rig.failed()
    };
    assert!(matches!(refused(-32010, true), Failure::DesktopOffline(_)));
    assert!(matches!(refused(-32011, true), Failure::DesktopReconnecting(_)));
    assert!(matches!(refused(-32012, true), Failure::RelayTimedOut(_)));
    for (code, retryable) in [(-32020, true), (-32601, false), (-32603, false), (0, false)] {
        assert!(matches!(refused(code, retryable), Failure::Refused(error) if error.code == code), "{code}");
    }
}

#[test]
fn a_request_that_runs_already_is_waited_for() {
    let mut rig = Rig::linked(retries(9, 9));
    rig.start(CALL, Request { id: Some("mine".to_owned()), ..Request::new("session.create") });
    let request = rig.one_sent();
    rig.refuse(MS, &request, -32021, false);
    assert!(rig.ended().is_none());
    rig.pass(DEADLINE - MS);
    assert!(rig.ended().is_none(), "it is neither sent again nor given up");
    rig.answer(DEADLINE - MS, &request, result());
    assert_eq!(rig.ended().unwrap().unwrap().get(), "1");
}

#[test]
fn a_call_is_tried_again_so_often_and_no_more() {
    let mut rig = Rig::linked(retries(3, 100));
    rig.start(CALL, Request::new("system.ping"));
    for _retry in 0..3 {
        let request = rig.one_sent();
        rig.refuse(MS, &request, -32010, true);
        rig.pass(MS);
    }
    let request = rig.one_sent();
    rig.refuse(MS, &request, -32010, true);
    assert!(matches!(rig.failed(), Failure::DesktopOffline(_)));
}

#[test]
fn all_calls_together_share_their_retries() {
    let mut rig = Rig::linked(retries(5, 7));
    for number in 0..64 {
        rig.start(Owner::Program(number), Request::new("system.ping"));
    }
    let (mut sent, mut ended) = (0, 0);
    while !rig.out.is_empty() {
        for event in std::mem::take(&mut rig.out) {
            match event {
                CallEvent::Send(frame) => {
                    sent += 1;
                    let request = serde_json::from_str::<Value>(&frame).unwrap()["payload"].take();
                    rig.refuse(MS, &request, -32010, true);
                }
                CallEvent::Done(_, Err(Failure::DesktopOffline(_))) => ended += 1,
                CallEvent::Done(..) | CallEvent::Progress(..) => panic!("{event:?}"),
            }
        }
        rig.pass(MS);
    }
    assert_eq!((sent, ended), (64 + 7, 64));
}

#[test]
fn the_clients_own_ping_takes_no_part_in_retries() {
    let mut rig = Rig::linked(retries(5, 5));
    rig.start(Owner::Ping, Request::new("system.ping"));
    let request = rig.one_sent();
    rig.refuse(MS, &request, -32010, true);
    assert!(matches!(rig.failed(), Failure::DesktopOffline(_)));
}

#[test]
fn a_call_is_not_sent_again_past_its_deadline() {
    // The refusal comes so late that the wait ends before, at, and behind the deadline.
    let wait = Duration::from_secs(8);
    for (after, is_sent_again) in [(wait, true), (DEADLINE - MS, true), (DEADLINE, false), (DEADLINE + MS, false)] {
        let mut rig = Rig::linked(retries(1, 1));
        rig.start(CALL, Request::new("system.ping"));
        let request = rig.one_sent();
        rig.refuse(after, &request, -32010, true);
        assert_eq!(rig.out.is_empty(), is_sent_again, "{after:?}");
        if is_sent_again {
            assert_eq!(rig.due(), Some(after));
        } else {
            assert!(matches!(rig.failed(), Failure::DesktopOffline(_)));
        }
    }
}

#[test]
fn waits_grow_with_full_jitter() {
    let policy = Policy { first: Duration::from_secs(1), max: Duration::from_secs(4) };
    let mut most = [Duration::ZERO; 4];
    for seed in 0..200 {
        let mut rig = Rig::linked(Retries { per_call: 4, backoff: policy, ..Retries::default() });
        rig.rng = StdRng::seed_from_u64(seed);
        rig.start(CALL, Request::new("system.ping"));
        let mut now = Duration::ZERO;
        for longest in &mut most {
            let request = rig.one_sent();
            rig.refuse(now, &request, -32010, true);
            let due = rig.due().unwrap();
            *longest = (*longest).max(due - now);
            // Not before it is due.
            rig.pass(due.saturating_sub(Duration::from_nanos(1)));
            if due > Duration::ZERO {
                assert!(rig.out.is_empty());
            }
            rig.pass(due);
            now = due;
        }
    }
    for (longest, cap) in most.into_iter().zip([1, 2, 4, 4].map(Duration::from_secs)) {
        assert!(longest <= cap && longest > cap.mul_f64(0.9), "{longest:?} of {cap:?}");
    }
}

#[test]
fn a_refusal_that_was_waited_out_is_what_the_deadline_tells() {
    let mut rig = Rig::linked(retries(1, 1));
    rig.start(CALL, Request::new("system.ping"));
    let request = rig.one_sent();
    rig.refuse(MS, &request, -32011, true);
    rig.calls.on_link_ended();
    rig.pass(MS);
    assert!(rig.out.is_empty(), "there is no link to send it on");
    rig.pass(DEADLINE);
    assert!(matches!(rig.failed(), Failure::DesktopReconnecting(_)));
}

#[test]
fn an_id_is_taken_while_its_call_is_open() {
    let mut rig = Rig::linked(retries(1, 1));
    let mine = || Request { id: Some("mine".to_owned()), ..Request::new("system.ping") };
    rig.start(CALL, mine());
    let request = rig.one_sent();
    rig.start(Owner::Program(2), mine());
    assert!(matches!(rig.failed(), Failure::DuplicateId));
    // Also while it waits to be sent again.
    rig.refuse(MS, &request, -32010, true);
    rig.start(Owner::Program(2), mine());
    assert!(matches!(rig.failed(), Failure::DuplicateId));
    rig.pass(MS);
    assert_eq!(rig.one_sent()["id"], "mine", "an id that was given is kept");
    rig.calls.forget(CALL);
    rig.start(Owner::Program(2), mine());
    rig.one_sent();
}

#[test]
fn progress_leaves_a_call_open_and_a_forgotten_one_is_nobodys() {
    let mut rig = Rig::linked(Retries::default());
    rig.start(CALL, Request::new("system.ping"));
    let request = rig.one_sent();
    let id = request["id"].as_str().unwrap().to_owned();
    // Even an error that would end it, as long as it says that it is not the last.
    for outcome in [result(), Outcome::Error(error(-32010, true)), Outcome::Error(error(-32021, false))] {
        let response = IncomingResponse { id: id.clone(), outcome, is_final: false };
        rig.calls.on_response(rig.start, response, &mut rig.rng, &mut rig.out);
        assert!(matches!(rig.out.drain(..).collect::<Vec<_>>()[..], [CallEvent::Progress(CALL, _)]));
    }
    rig.calls.forget(CALL);
    rig.answer(MS, &request, result());
    assert!(rig.out.is_empty() && rig.due().is_none());
}

#[test]
fn the_end_of_a_client_ends_every_call() {
    let mut rig = Rig::linked(Retries::default());
    rig.start(CALL, Request::new("system.ping"));
    rig.one_sent();
    rig.calls.end(&Failure::Closed, &mut rig.out);
    assert!(matches!(rig.failed(), Failure::Closed));
    assert_eq!(rig.due(), None);
}
