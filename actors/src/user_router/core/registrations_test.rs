//! Registration: the order of its checks, its answer, and resume sessions.

use super::testing::{EPOCH_MS, Harness, MS, connection, desktop, fresh, key, phone, register, route, row, session, token};
use crate::user_router::message::{Input, SocketId, Unavailable};
use relay_protocol::{
    close::CloseReason,
    device::{DeviceFacts, Role},
    id::{Route, UserId},
    limits,
    register::Register,
    version::Version,
};
use serde_json::json;
use uuid::Uuid;

const DESK: Route = Route::Desktop(relay_protocol::id::DeviceId(Uuid::from_u128(0xd000)));

/// What a registration and its look-up are made of. Each case spoils the good one further, so that the earlier fault must win.
struct Attempt {
    register: Register,
    required: Result<Version, Unavailable>,
    devices: Result<Vec<DeviceFacts>, Unavailable>,
}

#[test]
fn once_the_process_leaves_nobody_registers_but_who_was_being_decided() {
    let mut h = Harness::new();
    let (early, late) = (h.new_socket(), h.new_socket());
    h.begin(early, DESK, register(DESK));
    h.drain.begin(h.now.monotonic);
    let wrong_version = Register { relay_protocol_version: Some("new".into()), ..register(DESK) };
    assert_eq!(h.begin(late, DESK, wrong_version), [format!("{late} failed relayDraining")], "before any other check");
    assert_eq!(h.found(late, DESK), [""; 0]);
    assert_eq!(h.found(early, DESK)[0], format!("{early} registered"));
}

#[test]
fn checks_are_made_in_the_order_of_the_table() {
    let stranger = UserId(Uuid::from_u128(8));
    let mut attempt = Attempt { register: register(route(0, 0)), required: Ok(Version::new(1, 7)), devices: Ok(vec![]) };
    let own = row(phone(0));
    type Fault<'a> = &'a dyn Fn(&mut Attempt);
    let faults: [(&str, Fault<'_>); 13] = [
        ("invalidResume", &|attempt| {
            attempt.register.session_id = Some("no session".into());
            attempt.devices = Ok(vec![own.clone(), row(desktop(0))]);
        }),
        ("invalidTargetDesktop", &|attempt| attempt.devices = Ok(vec![own.clone()])),
        ("deviceNotEligible", &|attempt| attempt.devices = Ok(vec![DeviceFacts { relay_eligible: false, ..own.clone() }])),
        ("deviceRoleMismatch", &|attempt| {
            attempt.devices = Ok(vec![DeviceFacts { relay_eligible: false, role: Role::Desktop, ..own.clone() }]);
        }),
        ("deviceOwnershipFailed", &|attempt| {
            attempt.devices = Ok(vec![DeviceFacts { relay_eligible: false, role: Role::Desktop, user: stranger, ..own.clone() }]);
        }),
        ("deviceNotFound", &|attempt| attempt.devices = Ok(vec![])),
        ("deviceLookupUnavailable", &|attempt| attempt.devices = Err(Unavailable)),
        ("invalidTargetDesktop", &|attempt| attempt.register.target_desktop_device_id = Some("no desktop".into())),
        ("missingTargetDesktop", &|attempt| attempt.register.target_desktop_device_id = None),
        ("invalidDeviceId", &|attempt| attempt.register.device_id = "no device".into()),
        ("protocolUpdateRequired", &|attempt| attempt.register.relay_protocol_version = Some("1.6".into())),
        ("relayProtocolPolicyUnavailable", &|attempt| attempt.required = Err(Unavailable)),
        ("invalidRelayProtocolVersion", &|attempt| attempt.register.relay_protocol_version = Some("new".into())),
    ];
    for (code, fault) in faults {
        fault(&mut attempt);
        let mut h = Harness::new();
        let socket = h.new_socket();
        let failed = [format!("{socket} failed {code}")];
        let begun = h.begin(socket, route(0, 0), attempt.register.clone());
        let looked_up = h.step(Input::LookedUp { socket, required: attempt.required.clone(), devices: attempt.devices.clone() });
        if code == "invalidRelayProtocolVersion" {
            assert_eq!((begun.as_slice(), looked_up.as_slice()), (&failed[..], &[][..]), "answered without a look-up");
        } else {
            assert!(begun[0].contains("look-up"), "{begun:?}");
            assert_eq!(looked_up, failed);
        }
        assert!(h.core.is_idle(), "{code} leaves nothing behind");
        h.begin(socket, route(0, 0), register(route(0, 0)));
        assert_eq!(h.found(socket, route(0, 0))[0], format!("{socket} registered"), "the socket may try again after {code}");
    }
}

#[test]
fn the_look_up_asks_for_the_device_and_a_phones_target() {
    let mut h = Harness::new();
    let (one, two, three) = (h.new_socket(), h.new_socket(), h.new_socket());
    assert_eq!(h.begin(one, DESK, register(DESK)), [format!("{one} look-up d0")]);
    assert_eq!(h.begin(two, route(0, 1), register(route(0, 1))), [format!("{two} look-up p0 d1")]);
    let register = Box::new(Register { target_desktop_device_id: None, ..register(route(0, 0)) });
    let header_target = Some(desktop(2).to_string());
    let input = Input::Register { socket: three, role: Role::Mobile, header_target, register, fresh: fresh(three), api_key: None };
    assert_eq!(h.step(input), [format!("{three} look-up p0 d2")]);
    assert_eq!(h.found(three, route(0, 2))[0], format!("{three} registered"), "the header's target counts");
}

#[test]
fn a_look_up_that_nobody_waits_for_changes_nothing() {
    let mut h = Harness::new();
    let socket = h.new_socket();
    assert_eq!(h.found(socket, DESK), [""; 0], "never asked for");
    h.begin(socket, DESK, register(DESK));
    h.close(socket);
    assert!(h.core.is_idle());
    assert_eq!(h.found(socket, DESK), [""; 0], "closed meanwhile");
    let socket = h.desktop(0);
    assert_eq!(h.found(socket, DESK), [""; 0], "answered already");
    assert_eq!(h.core.observe().desktops, 1);
}

#[test]
fn a_second_register_of_a_socket_is_ignored_whatever_its_state() {
    let mut h = Harness::new();
    let socket = h.new_socket();
    h.begin(socket, DESK, register(DESK));
    assert_eq!(h.begin(socket, route(0, 0), register(route(0, 0))), [""; 0], "one is being decided");
    assert_eq!(h.found(socket, DESK)[0], format!("{socket} registered"), "the look-up belongs to the first");
    assert_eq!(h.begin(socket, route(0, 0), register(route(0, 0))), [""; 0], "registered");
    h.desktop(0);
    assert_eq!(h.begin(socket, DESK, register(DESK)), [""; 0], "replaced");
    assert_eq!(h.core.observe().registrations, 0);
}

#[test]
fn a_socket_may_be_retired_while_it_registers() {
    let mut h = Harness::new();
    let socket = h.new_socket();
    h.begin(socket, DESK, register(DESK));
    assert_eq!(h.retire(socket, CloseReason::Silent), [format!("{socket} close silent")]);
    assert_eq!(h.found(socket, DESK), [""; 0]);
    assert!(h.core.is_idle());
}

#[test]
fn two_sockets_that_register_one_route_replace_each_other_in_the_order_of_their_look_ups() {
    let mut h = Harness::new();
    let (one, two) = (h.new_socket(), h.new_socket());
    h.begin(one, DESK, register(DESK));
    h.begin(two, DESK, register(DESK));
    assert_eq!(h.found(two, DESK)[0], format!("{two} registered"));
    assert_eq!(h.found(one, DESK)[..2], [format!("{two} close replaced"), format!("{one} registered")]);
}

#[test]
fn the_answer_names_session_connection_and_instance() {
    let mut h = Harness::new();
    let socket = h.new_socket();
    let day_ms = 24 * 60 * 60 * 1000;
    let registered = h.answer(socket, DESK, register(DESK));
    assert_eq!(
        registered,
        json!({"type": "registered", "payload": {
            "sessionId": session(socket), "resumeToken": token(socket), "expiresAt": EPOCH_MS + day_ms, "expiresInMs": day_ms,
            "connectionId": connection(socket), "relayInstanceId": Uuid::nil(),
            "relayProtocolVersion": relay_protocol::contract::protocol_versions().0,
        }})
    );
    h.pass(MS * 3);
    let again = h.new_socket();
    let resume = Register { session_id: Some(session(socket).to_string()), resume_token: Some(token(socket)), ..register(DESK) };
    let mut expected = registered;
    expected["type"] = json!("resumed");
    expected["payload"]["expiresAt"] = json!(EPOCH_MS + day_ms + 3);
    expected["payload"]["connectionId"] = json!(connection(again));
    assert_eq!(h.answer(again, DESK, resume), expected, "same session, same token, renewed expiry, new connection");
}

fn resumes(h: &mut Harness, route: Route, of: SocketId) -> bool {
    let (socket, seen) = h.resume(route, session(of), &token(of));
    let resumed = seen.contains(&format!("{socket} resumed"));
    assert!(resumed || seen == [format!("{socket} failed invalidResume")], "{seen:?}");
    resumed
}

#[test]
fn a_session_lives_exactly_as_long_as_said() {
    for (offset, alive) in [(limits::RESUME_TTL - MS, true), (limits::RESUME_TTL, false), (limits::RESUME_TTL + MS, false)] {
        let mut h = Harness::new();
        let phone = h.phone(0, 0);
        h.close(phone);
        h.pass(offset);
        assert_eq!(resumes(&mut h, route(0, 0), phone), alive, "after {offset:?}");
    }
}

#[test]
fn rpc_and_resume_renew_a_session_and_nothing_else_does() {
    type Act = fn(&mut Harness, SocketId, SocketId);
    let acts: [(&str, Act, bool, bool); 6] = [
        ("forwarded request", |h, _, phone| h.forwarded(phone, "a"), false, true),
        ("response", |h, desk, _| drop(h.respond(desk, route(0, 0), "a", true)), true, false),
        (
            "stale frames",
            |h, desk, phone| {
                h.close(phone);
                h.close(desk);
                h.call(phone, "a");
                h.respond(desk, route(0, 0), "a", true);
            },
            false,
            false,
        ),
        (
            "resume",
            |h, desk, phone| {
                assert!(resumes(h, DESK, desk));
                assert!(resumes(h, route(0, 0), phone));
            },
            true,
            true,
        ),
        (
            "wrong token",
            |h, desk, phone| {
                h.resume(DESK, session(desk), "wrong");
                h.resume(route(0, 0), session(phone), "wrong");
            },
            false,
            false,
        ),
        ("close", |h, desk, phone| drop((h.close(desk), h.close(phone))), false, false),
    ];
    for (what, act, desk_renewed, phone_renewed) in acts {
        let mut h = Harness::new();
        let (desk, phone) = (h.desktop(0), h.phone(0, 0));
        h.pass(limits::RESUME_TTL / 2);
        act(&mut h, desk, phone);
        h.pass(limits::RESUME_TTL / 2);
        assert_eq!(resumes(&mut h, DESK, desk), desk_renewed, "{what}");
        assert_eq!(resumes(&mut h, route(0, 0), phone), phone_renewed, "{what}");
        let mut h = Harness::new();
        let (desk, phone) = (h.desktop(0), h.phone(0, 0));
        h.pass(limits::RESUME_TTL / 2);
        act(&mut h, desk, phone);
        h.pass(limits::RESUME_TTL - MS);
        assert_eq!(resumes(&mut h, DESK, desk), desk_renewed, "{what}");
        assert_eq!(resumes(&mut h, route(0, 0), phone), phone_renewed, "{what}");
    }
}

#[test]
fn a_refused_request_is_an_rpc_too() {
    let mut h = Harness::new();
    let phone = h.phone(0, 0);
    h.pass(limits::RESUME_TTL - MS);
    assert_eq!(h.call(phone, "a"), [format!("{phone} refusal a -32010")]);
    h.pass(limits::RESUME_TTL - MS);
    assert!(resumes(&mut h, route(0, 0), phone));
}

#[test]
fn a_resume_names_the_same_device_role_and_target_and_a_wrong_try_burns_nothing() {
    let mut h = Harness::new();
    let (desk, own, other) = (h.desktop(0), h.phone(0, 0), h.phone(1, 0));
    let (own_session, own_token) = (session(own), token(own));
    for (route, session, token) in [
        (route(1, 0), own_session, own_token.as_str()),
        (route(0, 1), own_session, own_token.as_str()),
        (DESK, own_session, own_token.as_str()),
        (route(0, 0), own_session, ""),
        (route(0, 0), own_session, "token"),
        (route(0, 0), own_session, "token-22"),
        (route(0, 0), session(other), own_token.as_str()),
        (route(0, 0), session(SocketId(99)), own_token.as_str()),
    ] {
        let (socket, seen) = h.resume(route, session, token);
        assert_eq!(seen, [format!("{socket} failed invalidResume")], "{route} {session}");
    }
    for half in [
        Register { session_id: Some(own_session.to_string()), ..register(route(0, 0)) },
        Register { resume_token: Some(own_token.clone()), ..register(route(0, 0)) },
    ] {
        let socket = h.new_socket();
        h.begin(socket, route(0, 0), half);
        assert_eq!(h.found(socket, route(0, 0)), [format!("{socket} failed invalidResume")]);
    }
    assert_eq!(h.core.observe(), crate::user_router::core::Observed { desktops: 1, phones: 2, sessions: 3, ..Default::default() });
    assert!(resumes(&mut h, route(0, 0), own));
    assert!(resumes(&mut h, DESK, desk));
    assert!(resumes(&mut h, route(0, 0), own), "more than once");
}

#[test]
fn the_newest_registration_without_a_token_ends_the_older_session() {
    let mut h = Harness::new();
    let (first, elsewhere) = (h.phone(0, 0), h.phone(0, 1));
    let second = h.phone(0, 0);
    assert!(!resumes(&mut h, route(0, 0), first));
    assert!(resumes(&mut h, route(0, 0), second));
    assert!(resumes(&mut h, route(0, 1), elsewhere), "another target is another session");
}

#[test]
fn a_failed_registration_leaves_the_older_session_alone() {
    let mut h = Harness::new();
    let own = h.phone(0, 0);
    let socket = h.new_socket();
    h.begin(socket, route(0, 0), register(route(0, 0)));
    assert_eq!(h.unavailable(socket), [format!("{socket} failed relayProtocolPolicyUnavailable")]);
    assert!(resumes(&mut h, route(0, 0), own));
}

/// C89, as far as the router closes.
#[test]
fn whether_a_session_survives_depends_on_the_close() {
    type Close = fn(&mut Harness, SocketId) -> Vec<String>;
    let closes: [(&str, Close, bool); 12] = [
        ("cut", |h, phone| h.close(phone), true),
        ("silent", |h, phone| h.retire(phone, CloseReason::Silent), true),
        ("saturated", |h, phone| h.retire(phone, CloseReason::Saturated), true),
        ("unfinished message", |h, phone| h.retire(phone, CloseReason::UnfinishedMessage), true),
        ("logged out", |h, _| h.close_device(phone(0), CloseReason::LoggedOut), false),
        ("forgotten", |h, _| h.close_device(phone(0), CloseReason::DeviceForgotten), false),
        ("not eligible", |h, _| h.close_device(phone(0), CloseReason::NotEligible), false),
        ("revoked", |h, _| h.close_device(phone(0), CloseReason::Revoked), false),
        ("key revoked", |h, _| h.revoke(key(0)), false),
        ("another key revoked", |h, _| h.revoke(key(1)), true),
        (
            "key revoked after a cut",
            |h, phone| {
                h.close(phone);
                h.revoke(key(0))
            },
            false,
        ),
        ("its desktop forgotten", |h, _| h.close_device(desktop(0), CloseReason::DeviceForgotten), true),
    ];
    for (what, close, survives) in closes {
        let mut h = Harness::new();
        h.api_key = Some(key(0));
        let own = h.phone(0, 0);
        h.api_key = Some(key(2));
        let other = h.phone(1, 0);
        close(&mut h, own);
        assert_eq!(resumes(&mut h, route(0, 0), own), survives, "{what}");
        assert!(resumes(&mut h, route(1, 0), other), "{what}");
    }
}

#[test]
fn a_close_ends_the_sessions_of_routes_that_have_no_socket_now() {
    let mut h = Harness::new();
    let (one, two) = (h.phone(0, 0), h.phone(0, 1));
    h.close(one);
    h.close(two);
    h.close_device(phone(0), CloseReason::LoggedOut);
    assert!(!resumes(&mut h, route(0, 0), one));
    assert!(!resumes(&mut h, route(0, 1), two));
    assert!(h.core.is_idle());
}
