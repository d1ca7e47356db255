//! Presence, replacement, and every way in which a connection ends.

use super::{
    presence::DISCONNECTED_MAX,
    testing::{EPOCH_MS, Harness, MS, call, describe, desktop, fresh, phone, register, route, row, session, token},
};
use crate::user_router::{
    core::Effects,
    message::{Effect, Input, SocketId},
};
use relay_protocol::{
    close::CloseReason,
    device::{Presence, Role},
    id::Route,
    limits,
    text::Text,
    version::Version,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};

fn desk_presence(h: &Harness) -> Option<Presence> {
    h.core.presence().get(&desktop(0)).copied()
}

#[test]
fn a_desktop_goes_online_reconnecting_disconnected() {
    let mut h = Harness::new();
    let watcher = h.phone(0, 0);
    let (desk, seen) = h.open(Route::Desktop(desktop(0)));
    assert_eq!(
        seen,
        [
            format!("{desk} registered"),
            format!("{watcher} status d0 online registered 1"),
            "write d0 online registered".into(),
            "push d0 online".into()
        ]
    );
    assert_eq!(
        h.close(desk),
        [format!("{watcher} status d0 reconnecting socketClosed 2"), "write d0 reconnecting socketClosed".into(), format!("arm d0 {desk}")]
    );
    assert_eq!(desk_presence(&h), Some(Presence::Reconnecting));
    assert_eq!(
        h.grace_elapsed(0, desk),
        [format!("{watcher} status d0 disconnected graceElapsed 3"), "write d0 disconnected graceElapsed".into()]
    );
    assert_eq!(desk_presence(&h), None);
    assert!(h.grace_elapsed(0, desk).is_empty(), "told twice");
}

#[test]
fn a_return_within_the_wait_goes_straight_online_and_its_timer_is_stale() {
    let mut h = Harness::new();
    let watcher = h.phone(0, 0);
    let first = h.desktop(0);
    h.close(first);
    let (second, seen) = h.open(Route::Desktop(desktop(0)));
    assert_eq!(
        seen,
        [format!("{second} registered"), format!("{watcher} status d0 online registered 3"), "write d0 online registered".into()]
    );
    assert!(h.grace_elapsed(0, first).is_empty(), "it is online");
    h.close(second);
    assert!(h.grace_elapsed(0, first).is_empty(), "another wait is running");
    assert!(h.grace_elapsed(1, second).is_empty(), "another desktop's");
    assert_eq!(desk_presence(&h), Some(Presence::Reconnecting));
    assert_eq!(h.grace_elapsed(0, second).len(), 2);
}

#[test]
fn the_wait_ends_when_the_supervisor_says_so_and_by_no_other_clock() {
    let mut h = Harness::new();
    let desk = h.desktop(0);
    h.close(desk);
    h.timeout_after(limits::RECONNECT_GRACE * 10);
    assert_eq!(desk_presence(&h), Some(Presence::Reconnecting));
    assert_eq!(h.grace_elapsed(0, desk), ["write d0 disconnected graceElapsed"]);
}

/// The frame that phones get, whole.
#[test]
fn a_status_event_is_the_same_text_for_every_phone_socket() {
    let mut h = Harness::new();
    let watchers = [h.phone(0, 0), h.phone(0, 1), h.phone(1, 1)];
    let socket = h.new_socket();
    let route = Route::Desktop(desktop(0));
    h.begin(socket, route, register(route));
    h.pass(MS * 5);
    let mut effects = Effects::default();
    let devices = Ok(vec![row(desktop(0))]);
    h.core.handle(h.now, Input::LookedUp { socket, required: Ok(Version::new(1, 7)), devices }, &mut effects);
    let events: Vec<(SocketId, Text)> = std::iter::from_fn(|| effects.pop())
        .filter_map(|effect| if let Effect::Send { socket, text } = effect { Some((socket, text)) } else { None })
        .collect();
    assert_eq!(events.iter().map(|(socket, _)| *socket).collect::<Vec<_>>(), watchers);
    assert!(events.windows(2).all(|pair| pair[0].1 == pair[1].1));
    assert_eq!(
        String::from_utf8(events[0].1.to_bytes()).unwrap(),
        format!(
            "{{\"type\":\"event\",\"payload\":{{\"eventType\":\"device-status\",\"payload\":{{\"deviceId\":\"{}\",\"status\":\"online\",\
             \"reason\":\"registered\",\"at\":{},\"revision\":1,\"relayInstanceId\":\"00000000-0000-0000-0000-000000000000\"}}}}}}",
            desktop(0),
            EPOCH_MS + 5
        )
    );
}

#[test]
fn the_revision_counts_changes_that_no_phone_saw() {
    let mut h = Harness::new();
    let desk = h.desktop(0);
    h.close(desk);
    h.desktop(1);
    let watcher = h.phone(0, 0);
    assert_eq!(h.grace_elapsed(0, desk)[0], format!("{watcher} status d0 disconnected graceElapsed 4"));
}

#[test]
fn a_routers_revisions_go_on_above_those_of_the_router_before() {
    let mut h = Harness::with(|config| config.revision_base = 1_000);
    let watcher = h.phone(0, 0);
    assert_eq!(h.open(Route::Desktop(desktop(0))).1[1], format!("{watcher} status d0 online registered 1001"));
}

/// What a phone's registration answer says of its desktop.
fn target(h: &mut Harness, desktop_number: usize) -> Value {
    let socket = h.new_socket();
    let route = route(0, desktop_number);
    let mut target = h.answer(socket, route, register(route))["payload"]["target"].take();
    assert_eq!(target["deviceId"], route.desktop().to_string());
    target.as_object_mut().unwrap().retain(|key, _| key != "deviceId" && key != "relayInstanceId");
    target
}

#[test]
fn a_phone_learns_its_desktops_state_with_the_answer() {
    let mut h = Harness::new();
    h.pass(MS);
    assert_eq!(
        target(&mut h, 0),
        json!({"status": "disconnected", "reason": "graceElapsed", "at": EPOCH_MS + 1, "revision": 0}),
        "never seen: as of now"
    );
    let desk = h.desktop(0);
    h.pass(MS);
    assert_eq!(target(&mut h, 0), json!({"status": "online", "reason": "registered", "at": EPOCH_MS + 1, "revision": 1}));
    h.retire(desk, CloseReason::Silent);
    h.desktop(1);
    h.pass(MS);
    assert_eq!(
        target(&mut h, 0),
        json!({"status": "reconnecting", "reason": "silent", "at": EPOCH_MS + 2, "revision": 3}),
        "the account's revision, the desktop's own time"
    );
    h.grace_elapsed(0, desk);
    h.pass(MS);
    assert_eq!(target(&mut h, 0), json!({"status": "disconnected", "reason": "graceElapsed", "at": EPOCH_MS + 3, "revision": 4}));
}

#[test]
fn only_so_many_disconnected_desktops_are_remembered() {
    let mut h = Harness::new();
    for number in 0..=DISCONNECTED_MAX {
        h.desktop(number);
        h.pass(MS);
        h.close_device(desktop(number), CloseReason::DeviceForgotten);
        h.pass(MS);
    }
    assert_eq!(target(&mut h, 0)["reason"], "graceElapsed", "the oldest went");
    assert_eq!(target(&mut h, 1)["reason"], "deviceForgotten");
    assert_eq!(target(&mut h, DISCONNECTED_MAX)["reason"], "deviceForgotten");
}

/// C14: a watcher sees no offline at all.
#[test]
fn an_old_sockets_close_changes_nothing_once_the_new_one_is_live() {
    let ends: [fn(&mut Harness, SocketId) -> Vec<String>; 4] = [
        |h, old| h.close(old),
        |h, old| h.retire(old, CloseReason::Silent),
        |h, old| h.retire(old, CloseReason::Saturated),
        |h, old| h.grace_elapsed(0, old),
    ];
    for end in ends {
        let mut h = Harness::new();
        let (old, watcher) = (h.desktop(0), h.phone(0, 0));
        let (new, seen) = h.open(Route::Desktop(desktop(0)));
        assert_eq!(
            seen,
            [format!("{old} close replaced"), format!("{new} registered"), format!("{watcher} status d0 online registered 2")],
            "online stays online, so there is nothing to store"
        );
        assert_eq!(end(&mut h, old), [""; 0]);
        assert_eq!(desk_presence(&h), Some(Presence::Online));
        assert_eq!(h.call(watcher, "a"), [format!("{new} request a from p0::d0")]);
        assert_eq!(h.respond(new, route(0, 0), "a", true), [format!("{watcher} reply a 1")]);
    }
}

#[test]
fn replacing_a_desktop_answers_its_open_requests_before_it_is_registered() {
    let mut h = Harness::new();
    let (old, one, two) = (h.desktop(0), h.phone(0, 0), h.phone(1, 0));
    h.desktop(1);
    let elsewhere = h.phone(0, 1);
    h.forwarded(one, "a");
    h.forwarded(two, "b");
    h.forwarded(one, "c");
    h.forwarded(elsewhere, "d");
    h.close(two);
    let (new, seen) = h.open(Route::Desktop(desktop(0)));
    assert_eq!(
        seen,
        [
            format!("{old} close replaced"),
            format!("{one} refusal a -32011"),
            "dropped PhoneGone".into(),
            format!("{one} refusal c -32011"),
            format!("{new} registered"),
            format!("{one} status d0 online registered 3"),
            format!("{elsewhere} status d0 online registered 3"),
        ]
    );
    assert_eq!(h.core.observe().pending, 1, "another desktop's requests stay");
}

/// C16.
#[test]
fn each_devices_state_is_its_own_and_a_phone_goes_with_its_last_route() {
    let mut h = Harness::new();
    let desk = h.desktop(0);
    let (one, seen) = h.open(route(0, 0));
    assert_eq!(seen, [format!("{one} registered"), "write p0 online registered".into()]);
    let (two, seen) = h.open(route(0, 1));
    assert_eq!(seen, [format!("{two} registered")], "online already");
    let other = h.phone(1, 0);
    let presence = |h: &Harness| h.core.presence();
    let all = BTreeMap::from([(desktop(0), Presence::Online), (phone(0), Presence::Online), (phone(1), Presence::Online)]);
    assert_eq!(presence(&h), all);
    assert_eq!(h.close(one), [""; 0]);
    assert_eq!(presence(&h), all);
    assert_eq!(h.close(two), ["write p0 disconnected socketClosed"]);
    assert_eq!(h.close(other), ["write p1 disconnected socketClosed"]);
    assert_eq!(presence(&h), BTreeMap::from([(desktop(0), Presence::Online)]));
    assert_eq!(h.close(desk), ["write d0 reconnecting socketClosed".to_owned(), format!("arm d0 {desk}")]);
}

/// C17.
#[test]
fn ends_that_come_twice_count_once() {
    type End = fn(&mut Harness, SocketId, usize) -> Vec<String>;
    let ends: [End; 4] = [
        |h, socket, _| h.close(socket),
        |h, socket, _| h.retire(socket, CloseReason::Silent),
        |h, socket, _| h.retire(socket, CloseReason::Saturated),
        |h, _, device| h.close_device(if device == 0 { desktop(0) } else { phone(device) }, CloseReason::LoggedOut),
    ];
    for first in ends {
        for second in ends {
            let mut h = Harness::new();
            let (desk, one, two) = (h.desktop(0), h.phone(1, 0), h.phone(2, 0));
            for (socket, device) in [(one, 1), (desk, 0)] {
                assert!(!first(&mut h, socket, device).is_empty());
                let before = (h.core.observe(), h.core.presence());
                let again = second(&mut h, socket, device);
                assert!(again.iter().all(|line| !line.contains("close")), "{again:?}");
                h.close(socket);
                assert_eq!(before.0.phones, h.core.observe().phones);
                assert_eq!(before.0.desktops, h.core.observe().desktops);
            }
            let observed = h.core.observe();
            assert_eq!((observed.desktops, observed.phones, observed.pending), (0, 1, 0));
            assert_eq!(h.core.presence().get(&phone(2)), Some(&Presence::Online));
            h.close(two);
            assert_eq!(h.core.observe().phones, 0);
        }
    }
}

#[test]
fn a_retired_socket_is_closed_first_and_the_reason_is_told() {
    for (reason, word) in [(CloseReason::Silent, "silent"), (CloseReason::Saturated, "saturated")] {
        let mut h = Harness::new();
        let (desk, watcher) = (h.desktop(0), h.phone(0, 0));
        h.forwarded(watcher, "a");
        assert_eq!(
            h.retire(desk, reason),
            [
                format!("{desk} close {word}"),
                format!("{watcher} refusal a -32011"),
                format!("{watcher} status d0 reconnecting {word} 2"),
                format!("write d0 reconnecting {word}"),
                format!("arm d0 {desk}"),
            ]
        );
        assert_eq!(h.call(watcher, "a"), [format!("{watcher} refusal a -32011")]);
        assert_eq!(h.retire(watcher, reason), [format!("{watcher} close {word}"), format!("write p0 disconnected {word}")]);
        assert!(h.resume(route(0, 0), session(watcher), &token(watcher)).1[0].contains("resumed"), "may come back");
    }
}

#[test]
fn a_closed_device_is_disconnected_at_once_from_any_state() {
    for (reason, word) in [
        (CloseReason::LoggedOut, "loggedOut"),
        (CloseReason::Revoked, "loggedOut"),
        (CloseReason::DeviceForgotten, "deviceForgotten"),
        (CloseReason::NotEligible, "notEligible"),
    ] {
        let close = reason.text();
        let mut h = Harness::new();
        let (desk, watcher) = (h.desktop(0), h.phone(0, 0));
        h.forwarded(watcher, "a");
        assert_eq!(
            h.close_device(desktop(0), reason),
            [
                format!("{desk} close {close}"),
                format!("{watcher} refusal a -32010"),
                format!("{watcher} status d0 disconnected {word} 2"),
                format!("write d0 disconnected {word}"),
            ],
            "online"
        );
        assert_eq!(h.call(watcher, "a"), [format!("{watcher} refusal a -32010")]);
        assert_eq!(h.close_device(desktop(0), reason), [""; 0], "disconnected already");
        assert_eq!(h.close(desk), [""; 0]);
        let desk = h.desktop(0);
        h.close(desk);
        assert_eq!(
            h.close_device(desktop(0), reason),
            [format!("{watcher} status d0 disconnected {word} 5"), format!("write d0 disconnected {word}")],
            "reconnecting: the wait ends"
        );
        assert!(h.grace_elapsed(0, desk).is_empty());
    }
}

#[test]
fn a_closed_phone_loses_all_its_routes_and_its_requests_stay() {
    let mut h = Harness::new();
    let (desk, one, two, other) = (h.desktop(0), h.phone(0, 0), h.phone(0, 1), h.phone(1, 0));
    h.forwarded(one, "a");
    assert_eq!(
        h.close_device(phone(0), CloseReason::DeviceForgotten),
        [format!("{one} close deviceForgotten"), format!("{two} close deviceForgotten"), "write p0 disconnected deviceForgotten".into()]
    );
    assert_eq!(h.core.presence().get(&phone(1)), Some(&Presence::Online));
    assert_eq!(h.respond(desk, route(0, 0), "a", true), ["dropped PhoneGone"]);
    h.forwarded(other, "b");
}

#[test]
fn a_device_that_is_closed_while_it_registers_does_not_get_in() {
    let mut h = Harness::new();
    let (own, other) = (h.new_socket(), h.new_socket());
    h.begin(own, route(0, 0), register(route(0, 0)));
    h.begin(other, route(1, 0), register(route(1, 0)));
    assert_eq!(h.close_device(phone(0), CloseReason::DeviceForgotten), [format!("{own} close deviceForgotten")]);
    assert_eq!(h.found(own, route(0, 0)), [""; 0], "its rows were read before it was forgotten");
    assert_eq!(h.found(other, route(1, 0))[0], format!("{other} registered"));
}

#[test]
fn a_router_is_idle_when_nothing_would_be_lost() {
    let mut h = Harness::new();
    assert!(h.core.is_idle());
    let socket = h.new_socket();
    let own = Route::Desktop(desktop(0));
    h.begin(socket, own, register(own));
    assert!(!h.core.is_idle(), "registering");
    h.unavailable(socket);
    assert!(h.core.is_idle());
    let desk = h.desktop(0);
    assert!(!h.core.is_idle(), "connected");
    h.close_device(desktop(0), CloseReason::LoggedOut);
    assert!(h.core.is_idle(), "no wait, no session");
    assert_eq!(h.core.next_timeout(), None);
    h.close(desk);
    let desk = h.desktop(0);
    h.timeout_after(limits::RESUME_TTL);
    assert!(!h.core.is_idle(), "connected without a session");
    h.close(desk);
    assert!(!h.core.is_idle(), "waiting");
    h.grace_elapsed(0, desk);
    assert!(h.core.is_idle());
    let phone = h.phone(0, 0);
    h.close(phone);
    assert!(!h.core.is_idle(), "a session");
    let (at, _) = h.core.next_timeout().unwrap();
    h.timeout_after(at - h.now.monotonic);
    assert!(h.core.is_idle());
    assert_eq!(h.core.next_timeout(), None);
}

/// C05: never silence, never queued, never both an error and a delivery.
#[test]
fn a_request_in_the_gap_is_answered_at_once_and_its_retry_delivered_once() {
    let mut h = Harness::new();
    let (desk, phone) = (h.desktop(0), h.phone(0, 0));
    h.close(desk);
    h.pass(Duration::from_secs(1));
    let approve = || call("approve", "run.chatResolveApproval", 1);
    assert_eq!(h.step(Input::Call { socket: phone, call: approve() }), [format!("{phone} refusal approve -32011")]);
    let (back, seen) = h.resume(Route::Desktop(desktop(0)), session(desk), &token(desk));
    assert!(seen.iter().all(|line| !line.contains("request")), "{seen:?}");
    assert_eq!(h.step(Input::Call { socket: phone, call: approve() }), [format!("{back} request approve from p0::d0")]);
    assert_eq!(h.respond(back, route(0, 0), "approve", true), [format!("{phone} reply approve 1")]);
}

/// C08: what the shell sends after the answer finds the route.
#[test]
fn routing_knows_a_desktop_before_its_answer_leaves() {
    for returns in [false, true] {
        let mut h = Harness::new();
        let phone = h.phone(0, 0);
        if returns {
            let before = h.desktop(0);
            h.close(before);
        }
        let socket = h.new_socket();
        let own = Route::Desktop(desktop(0));
        let input = Input::Register {
            socket,
            role: Role::Desktop,
            header_target: None,
            register: Box::new(register(own)),
            fresh: fresh(socket),
            api_key: None,
        };
        let mut effects = Effects::default();
        h.core.handle(h.now, input, &mut effects);
        h.core.handle(
            h.now,
            Input::LookedUp { socket, required: Ok(Version::new(1, 7)), devices: Ok(vec![row(desktop(0))]) },
            &mut effects,
        );
        h.core.handle(h.now, Input::Call { socket: phone, call: call("a", "system.ping", 1) }, &mut effects);
        let lines: Vec<_> = std::iter::from_fn(|| effects.pop()).map(describe).collect();
        let at = |line: &str| lines.iter().position(|seen| *seen == line).unwrap();
        assert!(at(&format!("{socket} registered")) < at(&format!("{socket} request a from p0::d0")));
    }
}
