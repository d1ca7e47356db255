//! Spans: one for each sampled request, whichever way it ends, from when it was taken to its end.

use super::{
    Effects,
    testing::{Harness, MS, call, call_traced, describe, desktop, response, route, user},
};
use crate::{
    counters::{Reply, Unanswered},
    drain::Phase,
    spans::{self, Outcome, Span},
    user_router::message::{Effect, Input, SocketId, Whose},
};
use relay_protocol::{close::CloseReason, limits, rpc::RequestId};
use std::{sync::Arc, time::Duration};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn traced() -> Harness {
    Harness::with(|config| config.spans = Some(spans::queue(Arc::default()).0))
}

/// What ends a request, by its desktop's socket.
type End = fn(SocketId) -> Input;

/// The spans of what came, and the rest as lines.
fn step(h: &mut Harness, input: Input) -> (Vec<Span>, Vec<String>) {
    let (mut effects, mut recorded, mut others) = (Effects::default(), Vec::new(), Vec::new());
    h.core.handle(h.now, input, &mut effects);
    while let Some(effect) = effects.pop() {
        if let Effect::Record(span) = effect { recorded.push(*span) } else { others.push(describe(effect)) }
    }
    (recorded, others)
}

fn answered(h: &mut Harness, desk: SocketId, id: &str, is_final: bool) -> Vec<Span> {
    step(h, Input::Response { socket: desk, response: response(&route(0, 0).to_string(), id, 1, is_final) }).0
}

fn refused(refusal: &'static str, code: i32, how: Unanswered) -> Outcome {
    Outcome::Unanswered { how, refusal, code }
}

#[test]
fn a_span_goes_from_when_its_request_is_taken_to_its_final_response() {
    let mut h = traced();
    let (desk, phone) = (h.desktop(0), h.phone(0, 0));
    let began = h.now.monotonic;
    h.forwarded(phone, "a");
    h.pass(3 * MS);
    assert_eq!(answered(&mut h, desk, "a", false), [], "a partial response ends nothing");
    h.pass(4 * MS);
    let [span] = answered(&mut h, desk, "a", true)[..] else { panic!("one span") };
    assert_eq!((span.began, span.ended), (began, began + 7 * MS));
    let trace = (span.trace.trace.to_string(), span.trace.parent.to_string(), span.trace.flags);
    assert_eq!(trace, ("4bf92f3577b34da6a3ce929d0e0e4736".to_owned(), "00f067aa0ba902b7".to_owned(), 1));
    assert_eq!((span.method.name, span.user, span.client), ("system.ping", user(), Some(route(0, 0))));
    assert_eq!((span.outcome, span.delivered), (Outcome::Answered(Reply::Result), true));
    assert_eq!(answered(&mut h, desk, "a", true), [], "a second answer has no request");
}

#[test]
fn each_way_to_end_without_an_answer_has_its_span() {
    let reconnecting = refused("desktopReconnecting", -32011, Unanswered::DesktopLost);
    let offline = refused("desktopOffline", -32010, Unanswered::DesktopLost);
    let close_all = |reason| Input::CloseAllOf { whose: Whose::Device(desktop(0)), reason };
    let ends: [(&str, End, Duration, Outcome); 4] = [
        ("closed", |desk| Input::SocketClosed { socket: desk }, MS, reconnecting),
        ("retired", |desk| Input::Retire { socket: desk, reason: CloseReason::Silent }, MS, reconnecting),
        (
            "no room",
            |desk| Input::NotForwarded { socket: desk, id: RequestId::new("a") },
            Duration::ZERO,
            refused("desktopMoved", -32023, Unanswered::NotTaken),
        ),
        ("expired", |_| Input::Timeout, limits::PENDING_DEFAULT, refused("expired", -32012, Unanswered::Expired)),
    ];
    for (name, end, after, outcome) in ends {
        let mut h = traced();
        let (desk, phone) = (h.desktop(0), h.phone(0, 0));
        let began = h.now.monotonic;
        h.forwarded(phone, "a");
        h.pass(after);
        let (spans, _) = step(&mut h, end(desk));
        let told: Vec<_> = spans.iter().map(|span| (span.began, span.ended, span.outcome, span.delivered)).collect();
        assert_eq!(told, [(began, began + after, outcome, true)], "{name}");
    }
    let mut h = traced();
    let phone = (h.desktop(0), h.phone(0, 0)).1;
    h.forwarded(phone, "a");
    let (spans, _) = step(&mut h, close_all(CloseReason::DeviceForgotten));
    assert_eq!(spans.iter().map(|span| span.outcome).collect::<Vec<_>>(), [offline]);
}

#[test]
fn a_request_that_is_not_forwarded_has_a_span_of_no_length() {
    let mut h = traced();
    let phone = h.phone(0, 0);
    let take = |h: &mut Harness, socket, id: &str, params| {
        let (spans, others) = step(h, Input::Call { socket, call: call(id, "system.ping", params) });
        let [span] = spans[..] else { panic!("{spans:?} {others:?}") };
        assert_eq!((span.began, span.ended, span.delivered), (h.now.monotonic, h.now.monotonic, true));
        (span.outcome, span.client)
    };
    let refused = |refusal, code| refused(refusal, code, Unanswered::Refused);
    assert_eq!(take(&mut h, phone, "a", 1), (refused("desktopOffline", -32010), Some(route(0, 0))));
    h.desktop(0);
    h.forwarded(phone, "a");
    assert_eq!(take(&mut h, phone, "a", 1), (refused("duplicateRequest", -32021), Some(route(0, 0))));
    assert_eq!(take(&mut h, phone, "a", 2), (refused("conflictingRequest", -32022), Some(route(0, 0))));
    h.phone(0, 0);
    assert_eq!(take(&mut h, phone, "b", 1), (refused("authorityChanging", -32024), None), "its connection has been replaced");
    let phone = h.phone(1, 0);
    h.drain.begin(h.now.monotonic);
    assert_eq!(take(&mut h, phone, "c", 1), (refused("authorityChanging", -32024), Some(route(1, 0))));
}

#[test]
fn an_answer_that_nobody_can_take_is_not_delivered() {
    let mut h = traced();
    let (desk, phone) = (h.desktop(0), h.phone(0, 0));
    for id in ["a", "b"] {
        h.forwarded(phone, id);
    }
    h.close(phone);
    let delivered = |spans: Vec<Span>| spans.iter().map(|span| (span.outcome.name(), span.delivered)).collect::<Vec<_>>();
    assert_eq!(delivered(answered(&mut h, desk, "a", true)), [("result", false)]);
    assert_eq!(delivered(step(&mut h, Input::SocketClosed { socket: desk }).0), [("desktopLost", false)]);

    // While the process closes its sockets, the end of a desktop may come before that of a phone that was closed first.
    let mut h = traced();
    let (desk, phone) = (h.desktop(0), h.phone(0, 0));
    h.forwarded(phone, "a");
    h.drain.begin(h.now.monotonic);
    h.drain.enter(Phase::Closing, h.now.monotonic);
    assert_eq!(delivered(step(&mut h, Input::SocketClosed { socket: desk }).0), [("desktopLost", false)]);
}

#[test]
fn without_the_flag_or_without_an_exporter_there_is_no_span() {
    for (mut h, flags, count) in
        [(traced(), "01", 1), (traced(), "ff", 1), (traced(), "00", 0), (traced(), "fe", 0), (Harness::new(), "01", 0)]
    {
        let (desk, phone) = (h.desktop(0), h.phone(0, 0));
        let trace = format!("{}{flags}", &TRACE[..TRACE.len() - 2]);
        let (spans, others) = step(&mut h, Input::Call { socket: phone, call: call_traced("a", "system.ping", 1, &trace) });
        assert_eq!((spans.len(), others.len()), (0, 1));
        assert_eq!(answered(&mut h, desk, "a", true).len(), count, "{flags}");
        h.close(desk);
        let (spans, _) = step(&mut h, Input::Call { socket: phone, call: call_traced("b", "system.ping", 1, &trace) });
        assert_eq!(spans.len(), count, "{flags}: refused");
    }
}
