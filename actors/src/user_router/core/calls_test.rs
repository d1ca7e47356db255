//! Requests and responses: each rule at its edge.

use super::{
    ProcessPending,
    testing::{Harness, MS, call, describe, desktop, json, response, route},
};
use crate::user_router::{
    core::Effects,
    message::{Effect, Input, SocketId},
};
use relay_protocol::{close::CloseReason, id::Route, limits, rpc::RequestId};
use std::time::Duration;

#[test]
fn a_request_goes_to_the_desktop_and_its_reply_back() {
    let mut h = Harness::new();
    let (desk, phone) = (h.desktop(0), h.phone(0, 0));
    assert_eq!(h.call(phone, " a"), [format!("{desk} request a from p0::d0")]);
    assert_eq!(h.respond(desk, route(0, 0), "a ", true), [format!("{phone} reply  a 1")], "the phone gets its own id text");
    assert_eq!(h.core.observe().pending, 0);
    assert_eq!(h.core.next_timeout().map(|(_, why)| why), Some("resume session expiry"));
}

#[test]
fn each_class_of_record_ends_exactly_at_its_deadline() {
    for (method, life) in [
        ("system.ping", limits::PENDING_DEFAULT),
        ("run.chatLoadPageBefore", limits::PENDING_DEFAULT),
        ("run.chatLoad", limits::PENDING_LOAD),
        ("run.chatLoadThread", limits::PENDING_LOAD),
        ("run.chatOutboxSubmit", limits::PENDING_OUTBOX),
    ] {
        for (offset, is_open) in [(life - MS, true), (life, false), (life + MS, false)] {
            let mut h = Harness::new();
            let (desk, phone) = (h.desktop(0), h.phone(0, 0));
            h.step(Input::Call { socket: phone, call: call("a", method, 1) });
            assert_eq!(h.core.next_timeout(), Some((h.now.monotonic + life, "request deadline")), "{method}");
            let expired = if is_open { vec![] } else { vec![format!("{phone} refusal a -32012")] };
            assert_eq!(h.timeout_after(offset), expired, "{method} after {offset:?}");
            let late = if is_open { format!("{phone} reply a 1") } else { "dropped NoPendingRecord".into() };
            assert_eq!(h.respond(desk, route(0, 0), "a", true), [late], "{method} after {offset:?}");
            assert_eq!(h.core.observe().pending, 0);
        }
    }
}

#[test]
fn a_late_timer_does_not_lengthen_a_deadline() {
    for (offset, outcome) in [
        (limits::PENDING_DEFAULT - MS, vec!["2 reply a 1"]),
        (limits::PENDING_DEFAULT, vec!["2 refusal a -32012", "dropped NoPendingRecord"]),
    ] {
        let mut h = Harness::new();
        let (desk, phone) = (h.desktop(0), h.phone(0, 0));
        h.forwarded(phone, "a");
        h.pass(offset);
        assert_eq!(h.respond(desk, route(0, 0), "a", true), outcome);
    }
}

#[test]
fn records_of_one_instant_expire_in_their_order() {
    let mut h = Harness::new();
    h.desktop(0);
    let phone = h.phone(0, 0);
    for id in ["b", "c", "a"] {
        h.forwarded(phone, id);
    }
    let expected: Vec<_> = ["b", "c", "a"].iter().map(|id| format!("{phone} refusal {id} -32012")).collect();
    assert_eq!(h.timeout_after(limits::PENDING_DEFAULT), expected);
    assert!(h.timeout_after(limits::PENDING_DEFAULT).is_empty(), "once each");
}

#[test]
fn an_expiry_reaches_the_socket_that_the_phone_has_by_then() {
    let mut h = Harness::new();
    h.desktop(0);
    let old = h.phone(0, 0);
    h.forwarded(old, "a");
    let new = h.phone(0, 0);
    assert_eq!(h.timeout_after(limits::PENDING_DEFAULT), [format!("{new} refusal a -32012")]);
    h.forwarded(new, "b");
    h.close(new);
    assert_eq!(h.timeout_after(limits::PENDING_DEFAULT), ["dropped PhoneGone"]);
}

#[test]
fn a_desktop_that_is_not_there_is_reconnecting_or_offline() {
    let mut h = Harness::new();
    let phone = h.phone(0, 0);
    assert_eq!(h.call(phone, "a"), [format!("{phone} refusal a -32010")], "never seen");
    let desk = h.desktop(0);
    h.close(desk);
    assert_eq!(h.call(phone, "a"), [format!("{phone} refusal a -32011")], "within the wait");
    h.grace_elapsed(0, desk);
    assert_eq!(h.call(phone, "a"), [format!("{phone} refusal a -32010")], "after the wait");
    let desk = h.desktop(0);
    assert_eq!(h.call(phone, "a"), [format!("{desk} request a from p0::d0")], "back");
    assert_eq!(h.core.observe().pending, 1, "nothing was queued while it was away");
}

/// C02.
#[test]
fn an_id_in_flight_is_refused_and_the_first_request_keeps_its_answer() {
    let mut h = Harness::new();
    let (desk, phone, other) = (h.desktop(0), h.phone(0, 0), h.phone(1, 0));
    h.forwarded(phone, "x");
    assert_eq!(h.call(phone, "x"), [format!("{phone} refusal x -32021")]);
    assert_eq!(h.call(phone, " x"), [format!("{phone} refusal  x -32021")], "blanks around an id tell nothing apart");
    assert_eq!(h.step(Input::Call { socket: phone, call: call("x", "session.list", 1) }), [format!("{phone} refusal x -32022")]);
    assert_eq!(h.step(Input::Call { socket: phone, call: call("x", "system.ping", 2) }), [format!("{phone} refusal x -32022")]);
    assert_eq!(h.call(other, "x"), [format!("{other} refusal x -32022")], "two phones share the ids of one desktop");
    assert_eq!(h.respond(desk, route(0, 0), "x", true), [format!("{phone} reply x 1")]);
    h.forwarded(other, "x");
}

#[test]
fn two_desktops_do_not_share_ids() {
    let mut h = Harness::new();
    h.desktop(0);
    h.desktop(1);
    let (one, two) = (h.phone(0, 0), h.phone(0, 1));
    h.forwarded(one, "x");
    h.forwarded(two, "x");
}

/// C07; a device of another account has another router and cannot get here.
#[test]
fn only_the_desktop_that_was_asked_answers_and_once() {
    let mut h = Harness::new();
    let (asked, stranger) = (h.desktop(0), h.desktop(1));
    let (phone, other) = (h.phone(0, 0), h.phone(1, 0));
    h.forwarded(phone, "a");
    let dropped = ["dropped NoPendingRecord"];
    assert_eq!(h.respond(stranger, route(0, 0), "a", true), dropped, "another desktop");
    assert_eq!(h.respond(phone, route(0, 0), "a", true), dropped, "a phone");
    assert_eq!(h.respond(asked, route(1, 0), "a", true), dropped, "to a phone that did not ask");
    assert_eq!(h.respond(asked, route(0, 1), "a", true), dropped, "to another route of the phone");
    assert_eq!(h.respond(asked, Route::Desktop(desktop(0)), "a", true), dropped, "to itself");
    assert_eq!(h.step(Input::Response { socket: asked, response: response("nobody", "a", 1, true) }), dropped, "to no route");
    assert_eq!(h.respond(asked, route(0, 0), "b", true), dropped, "another id");
    assert_eq!(h.respond(asked, route(0, 0), "a", true), [format!("{phone} reply a 1")]);
    assert_eq!(h.respond(asked, route(0, 0), "a", true), dropped, "a second time");
    assert!(h.call(other, "a")[0].contains("request"), "the id is free again");
}

#[test]
fn a_reply_in_parts_keeps_its_record_until_the_final_one() {
    let mut h = Harness::new();
    let (desk, phone) = (h.desktop(0), h.phone(0, 0));
    h.forwarded(phone, "a");
    for _ in 0..3 {
        assert_eq!(h.respond(desk, route(0, 0), "a", false), [format!("{phone} reply a 1 more")]);
    }
    h.pass(limits::PENDING_DEFAULT - MS);
    assert_eq!(h.respond(desk, route(0, 0), "a", false), [format!("{phone} reply a 1 more")]);
    assert_eq!(h.timeout_after(MS), [format!("{phone} refusal a -32012")], "a part does not renew the deadline");
}

#[test]
fn a_reply_to_a_phone_that_is_away_is_dropped_and_a_final_one_ends_the_record() {
    let mut h = Harness::new();
    let (desk, phone) = (h.desktop(0), h.phone(0, 0));
    h.forwarded(phone, "a");
    h.forwarded(phone, "b");
    h.close(phone);
    assert_eq!(h.core.observe().pending, 2, "a phone's close leaves its requests");
    assert_eq!(h.respond(desk, route(0, 0), "a", false), ["dropped PhoneGone"]);
    assert_eq!(h.respond(desk, route(0, 0), "b", true), ["dropped PhoneGone"]);
    let back = h.phone(0, 0);
    assert_eq!(h.respond(desk, route(0, 0), "a", true), [format!("{back} reply a 1")]);
    assert_eq!(h.respond(desk, route(0, 0), "b", true), ["dropped NoPendingRecord"]);
}

#[test]
fn a_reply_does_not_go_to_another_route_of_the_same_phone() {
    let mut h = Harness::new();
    let (desk, phone) = (h.desktop(0), h.phone(0, 0));
    h.phone(0, 1);
    h.forwarded(phone, "a");
    h.close(phone);
    assert_eq!(h.respond(desk, route(0, 0), "a", true), ["dropped PhoneGone"]);
}

#[test]
fn a_replaced_phone_is_refused_and_its_requests_answer_the_new_socket() {
    let mut h = Harness::new();
    let (desk, old) = (h.desktop(0), h.phone(0, 0));
    h.forwarded(old, "a");
    let (new, seen) = h.open(route(0, 0));
    assert_eq!(seen, [format!("{old} close replaced"), format!("{new} registered")], "its requests stay, its presence too");
    assert_eq!(h.call(old, "b"), [format!("{old} refusal b -32024")], "never forwarded");
    assert_eq!(h.respond(desk, route(0, 0), "a", true), [format!("{new} reply a 1")]);
    assert!(h.close(old).is_empty());
    assert_eq!(h.call(old, "b"), ["dropped StaleSocket"], "closed meanwhile");
    assert_eq!(h.core.observe().replaced, 0);
    h.forwarded(new, "b");
}

#[test]
fn a_replaced_desktop_answers_nothing_any_more() {
    let mut h = Harness::new();
    let (old, phone) = (h.desktop(0), h.phone(0, 0));
    h.forwarded(phone, "a");
    let new = h.desktop(0);
    h.forwarded(phone, "a");
    assert_eq!(h.respond(old, route(0, 0), "a", true), ["dropped StaleSocket"]);
    assert!(h.not_forwarded(old, "a").is_empty(), "an old lane's failure is not about the new request");
    assert_eq!(h.respond(new, route(0, 0), "a", true), [format!("{phone} reply a 1")]);
}

#[test]
fn frames_of_sockets_without_a_route_are_dropped() {
    let mut h = Harness::new();
    let (desk, phone, never) = (h.desktop(0), h.phone(0, 0), h.new_socket());
    assert_eq!(h.call(never, "a"), ["dropped StaleSocket"]);
    assert_eq!(h.respond(never, route(0, 0), "a", true), ["dropped StaleSocket"]);
    assert_eq!(h.call(desk, "a"), ["dropped StaleSocket"], "desktops send no requests");
    h.retire(phone, CloseReason::Saturated);
    assert_eq!(h.call(phone, "a"), ["dropped StaleSocket"]);
    h.close_device(desktop(0), CloseReason::LoggedOut);
    assert_eq!(h.respond(desk, route(0, 0), "a", true), ["dropped StaleSocket"]);
}

#[test]
fn a_request_that_was_not_handed_over_is_refused_once() {
    let mut h = Harness::new();
    let (desk, phone) = (h.desktop(0), h.phone(0, 0));
    h.forwarded(phone, "a");
    h.forwarded(phone, "b");
    assert_eq!(h.not_forwarded(desk, "a"), [format!("{phone} refusal a -32023")]);
    assert!(h.not_forwarded(desk, "a").is_empty(), "late");
    assert!(h.not_forwarded(phone, "b").is_empty(), "a phone's socket takes no requests");
    assert_eq!(h.core.observe().pending, 1);
    h.forwarded(phone, "a");
}

/// Opens `count` requests of one phone to one desktop.
fn fill(h: &mut Harness, phone_number: usize, desktop_number: usize, count: usize) {
    let socket = h.phone(phone_number, desktop_number);
    for index in 0..count {
        h.forwarded(socket, &format!("{phone_number}-{index}"));
    }
}

/// The refusal's data, or none if the request was forwarded.
fn refused(h: &mut Harness, phone_number: usize, desktop_number: usize, id: &str) -> Option<String> {
    let socket = h.phone(phone_number, desktop_number);
    let mut effects = Effects::default();
    h.core.handle(h.now, Input::Call { socket, call: call(id, "system.ping", 1) }, &mut effects);
    let effect = effects.pop().unwrap();
    if matches!(effect, Effect::Forward { .. }) {
        return None;
    }
    let Effect::Send { text, .. } = effect else { panic!("{}", describe(effect)) };
    let error = &json(&text)["payload"]["error"];
    let data = &error["data"];
    assert_eq!((&error["code"], &data["retryable"]), (&(-32020).into(), &true.into()));
    Some(format!("{} {} {}", data["scope"].as_str().unwrap(), data["limit"], data["current"]))
}

#[test]
fn a_phone_has_64_open_requests_to_a_desktop() {
    for (open, outcome) in [(63, None), (64, Some("client 64 64"))] {
        let mut h = Harness::new();
        let desk = h.desktop(0);
        h.desktop(1);
        fill(&mut h, 0, 0, open);
        assert_eq!(refused(&mut h, 0, 0, "more").as_deref(), outcome);
        assert_eq!(h.core.observe().pending, 64);
        assert_eq!(refused(&mut h, 0, 0, "65th").as_deref(), Some("client 64 64"));
        assert_eq!(refused(&mut h, 1, 0, "other phone"), None);
        assert_eq!(refused(&mut h, 0, 1, "other desktop"), None, "the bound is a route's");
        h.respond(desk, route(0, 0), "0-0", true);
        assert_eq!(refused(&mut h, 0, 0, "again"), None, "an answer makes room");
    }
}

#[test]
fn a_desktop_has_128_open_requests() {
    for (open, outcome) in [(63, None), (64, Some("desktop 128 128"))] {
        let mut h = Harness::new();
        h.desktop(0);
        h.desktop(1);
        fill(&mut h, 0, 0, 64);
        fill(&mut h, 1, 0, open);
        assert_eq!(refused(&mut h, 2, 0, "more").as_deref(), outcome);
        assert_eq!(refused(&mut h, 2, 0, "129th").as_deref(), Some("desktop 128 128"));
        assert_eq!(refused(&mut h, 0, 0, "client too").as_deref(), Some("desktop 128 128"), "the wider bound is named");
        assert_eq!(refused(&mut h, 2, 1, "other desktop"), None);
    }
}

#[test]
fn an_account_has_512_open_requests() {
    for (open, outcome) in [(63, None), (64, Some("user 512 512"))] {
        let mut h = Harness::new();
        for desktop_number in 0..5 {
            h.desktop(desktop_number);
        }
        for route_number in 0..7 {
            fill(&mut h, route_number, route_number / 2, 64);
        }
        fill(&mut h, 7, 3, open);
        assert_eq!(refused(&mut h, 8, 4, "more").as_deref(), outcome);
        assert_eq!(refused(&mut h, 8, 4, "513th").as_deref(), Some("user 512 512"));
        assert_eq!(refused(&mut h, 0, 0, "all three").as_deref(), Some("user 512 512"), "the widest bound is named");
    }
}

/// Two accounts of one process, which may have as many open requests as given.
fn two_accounts(limit: usize) -> (Harness, Harness) {
    let process = ProcessPending::new(limit);
    let account = || Harness::with(|config| config.process = process.clone());
    (account(), account())
}

#[test]
fn a_process_has_4096_open_requests_of_all_accounts() {
    assert_eq!(Harness::new().process.limit(), 4_096);
    for (open, outcome) in [(63, None), (64, Some("process 128 128"))] {
        let (mut one, mut other) = two_accounts(128);
        for h in [&mut one, &mut other] {
            h.desktop(0);
        }
        fill(&mut one, 0, 0, 64);
        fill(&mut other, 0, 0, open);
        assert_eq!(refused(&mut other, 1, 0, "more").as_deref(), outcome);
        assert_eq!(refused(&mut one, 1, 0, "129th").as_deref(), Some("process 128 128"));
        assert_eq!(refused(&mut one, 0, 0, "client too").as_deref(), Some("process 128 128"), "the widest bound is named");
        let phone = one.phone(0, 0);
        assert_eq!(one.call(phone, "0-0"), [format!("{phone} refusal 0-0 -32021")], "an id in flight is named before it");
        assert_eq!(one.process.open(), 128);
    }
}

#[test]
fn whatever_ends_a_request_gives_its_place_in_the_process_back() {
    type End = fn(&mut Harness, SocketId, SocketId);
    let ends: [(&str, End); 8] = [
        ("final answer", |h, desk, _| drop(h.respond(desk, route(0, 0), "a", true))),
        ("deadline", |h, _, _| drop(h.timeout_after(limits::PENDING_DEFAULT))),
        ("no room", |h, desk, _| drop(h.not_forwarded(desk, "a"))),
        ("desktop closed", |h, desk, _| drop(h.close(desk))),
        ("desktop replaced", |h, _, _| {
            h.desktop(0);
        }),
        ("desktop retired", |h, desk, _| drop(h.retire(desk, CloseReason::Silent))),
        ("desktop forgotten", |h, _, _| drop(h.close_device(desktop(0), CloseReason::DeviceForgotten))),
        ("phone gone", |h, desk, phone| {
            h.close(phone);
            assert_eq!(h.process.open(), 1, "a phone's close leaves its requests");
            h.respond(desk, route(0, 0), "a", true);
        }),
    ];
    for (what, end) in ends {
        let (mut h, mut other) = two_accounts(1);
        let (desk, phone) = (h.desktop(0), h.phone(0, 0));
        other.desktop(0);
        h.forwarded(phone, "a");
        h.respond(desk, route(0, 0), "a", false);
        assert_eq!(refused(&mut other, 0, 0, "b").as_deref(), Some("process 1 1"), "{what}");
        end(&mut h, desk, phone);
        assert_eq!(h.process.open(), 0, "{what}");
        assert_eq!(refused(&mut other, 0, 0, "b"), None, "{what}");
    }
}

#[test]
fn a_narrower_bound_takes_no_place_of_the_process() {
    let mut h = Harness::with(|config| config.per_client = 1);
    h.desktop(0);
    fill(&mut h, 0, 0, 1);
    assert_eq!(refused(&mut h, 0, 0, "more").as_deref(), Some("client 1 1"));
    assert_eq!(h.process.open(), 1);
}

#[test]
fn once_the_process_leaves_nothing_is_forwarded_and_what_is_open_goes_on() {
    let mut h = Harness::new();
    let (desk, phone, alone) = (h.desktop(0), h.phone(0, 0), h.phone(0, 1));
    h.forwarded(phone, "a");
    h.drain.begin(h.now.monotonic);
    assert_eq!(h.call(phone, "b"), [format!("{phone} refusal b -32024")]);
    assert_eq!(h.call(phone, "a"), [format!("{phone} refusal a -32024")], "before an id in flight is named");
    assert_eq!(h.call(alone, "b"), [format!("{alone} refusal b -32024")], "and before the desktop's state");
    assert_eq!(h.respond(desk, route(0, 0), "a", true), [format!("{phone} reply a 1")]);
}

#[test]
fn an_id_in_flight_is_named_before_a_bound() {
    let mut h = Harness::with(|config| (config.per_client, config.per_desktop, config.per_user) = (1, 1, 1));
    h.desktop(0);
    let phone = h.phone(0, 0);
    h.forwarded(phone, "a");
    assert_eq!(h.call(phone, "a"), [format!("{phone} refusal a -32021")]);
    assert_eq!(h.step(Input::Call { socket: phone, call: call("a", "system.ping", 2) }), [format!("{phone} refusal a -32022")]);
    assert_eq!(h.call(phone, "b"), [format!("{phone} refusal b -32020")]);
    let desk = h.desktop(0);
    h.close(desk);
    assert_eq!(h.call(phone, "b"), [format!("{phone} refusal b -32011")], "the desktop's state comes before both");
}

/// C03, in small: every request gets one answer and leaves nothing behind.
#[test]
fn unanswered_requests_leave_nothing_behind() {
    for end in ["deadline", "phone", "desktop"] {
        let mut h = Harness::new();
        let (desk, phone) = (h.desktop(0), h.phone(0, 0));
        for wave in 0..20 {
            for index in 0..64 {
                h.forwarded(phone, &format!("{wave}-{index}"));
            }
            h.pass(limits::PENDING_DEFAULT);
            assert_eq!(h.step(Input::Timeout), (0..64).map(|index| format!("{phone} refusal {wave}-{index} -32012")).collect::<Vec<_>>());
        }
        for index in 0..64 {
            h.forwarded(phone, &format!("last-{index}"));
        }
        match end {
            "deadline" => assert_eq!(h.timeout_after(limits::PENDING_DEFAULT).len(), 64),
            "phone" => {
                h.close(phone);
                assert_eq!(h.timeout_after(limits::PENDING_DEFAULT), vec!["dropped PhoneGone"; 64]);
            }
            _ => assert_eq!(h.close(desk).iter().filter(|line| line.ends_with("-32011")).count(), 64),
        }
        assert_eq!(h.core.observe().pending, 0);
        assert!(h.core.pending.per_client.is_empty() && h.core.pending.deadlines.is_empty());
    }
}

#[test]
fn a_forwarded_request_names_the_lane_and_the_key() {
    let mut h = Harness::new();
    let (desk, socket) = (h.desktop(0), h.phone(0, 0));
    let mut effects = Effects::default();
    h.core.handle(h.now, Input::Call { socket, call: call(" a", "system.ping", 1) }, &mut effects);
    let Some(Effect::Forward { socket, id, .. }) = effects.pop() else { panic!("not forwarded") };
    assert_eq!((socket, id), (desk, RequestId::new("a")));
    assert!(effects.pop().is_none());
}

#[test]
fn a_wait_that_no_clock_can_express_ends_all_the_same() {
    let mut h = Harness::with(|config| (config.pending_default, config.resume_ttl) = (Duration::MAX, Duration::MAX));
    h.desktop(0);
    let phone = h.phone(0, 0);
    h.forwarded(phone, "a");
    let (at, _) = h.core.next_timeout().unwrap();
    assert_eq!(h.timeout_after(at - h.now.monotonic), [format!("{phone} refusal a -32012")]);
}
