//! Closes of many at once: an API key that is revoked, an account that logs out.

use super::testing::{Harness, desktop, key, phone, register, route, session, token};
use crate::user_router::message::Input;
use relay_protocol::{close::CloseReason, id::Route};

#[test]
fn revoking_a_key_ends_what_it_opened_and_nothing_else() {
    let mut h = Harness::new();
    h.api_key = Some(key(0));
    let (own_desktop, own_phone) = (h.desktop(0), h.phone(0, 1));
    h.api_key = Some(key(1));
    let (other_desktop, other_phone) = (h.desktop(1), h.phone(1, 0));
    h.api_key = None;
    let jwt_phone = h.phone(2, 0);
    h.forwarded(jwt_phone, "a");
    let told = h.revoke(key(0));
    assert_eq!(
        told,
        [
            format!("{own_desktop} close revoked"),
            format!("{jwt_phone} refusal a -32010"),
            format!("{own_phone} close revoked"),
            "write p0 disconnected loggedOut".to_owned(),
            format!("{other_phone} status d0 disconnected loggedOut 3"),
            format!("{jwt_phone} status d0 disconnected loggedOut 3"),
            "write d0 disconnected loggedOut".to_owned(),
        ]
    );
    for phone in [other_phone, jwt_phone] {
        assert_eq!(h.call(phone, "b"), [format!("{phone} refusal b -32010")], "still registered");
    }
    let (_, seen) = h.open(route(3, 1));
    assert!(seen.iter().any(|line| line.contains("registered")), "{seen:?}");
    assert_eq!(h.core.observe().desktops, 1, "{other_desktop} stays");
    assert_eq!(h.revoke(key(0)), [""; 0], "once");
    assert_eq!(h.close(own_desktop), [""; 0]);
}

/// A session belongs to the key that used it last: nobody who resumes one with a good credential loses it with an old one.
#[test]
fn a_session_is_under_the_key_that_used_it_last() {
    let own = Route::Desktop(desktop(0));
    for (begins, resumes, revoked, survives) in [
        (Some(key(0)), None, key(0), true),
        (Some(key(0)), Some(key(1)), key(0), true),
        (Some(key(0)), Some(key(1)), key(1), false),
        (None, Some(key(0)), key(0), false),
        (None, None, key(0), true),
    ] {
        let mut h = Harness::new();
        h.api_key = begins;
        let socket = h.desktop(0);
        let (begun, proof) = (session(socket), token(socket));
        h.close(socket);
        h.api_key = resumes;
        let (second, seen) = h.resume(own, begun, &proof);
        assert!(seen.contains(&format!("{second} resumed")), "{seen:?}");
        h.close(second);
        h.revoke(revoked);
        h.api_key = None;
        let (third, seen) = h.resume(own, begun, &proof);
        assert_eq!(seen.contains(&format!("{third} resumed")), survives, "{begins:?} {resumes:?} {revoked:?}: {seen:?}");
    }
}

#[test]
fn a_desktop_that_waits_under_a_revoked_key_is_disconnected_at_once() {
    let mut h = Harness::new();
    h.api_key = Some(key(0));
    let waiting = h.desktop(0);
    h.api_key = None;
    let watcher = h.phone(0, 0);
    h.close(waiting);
    assert_eq!(h.revoke(key(1)), [""; 0]);
    assert_eq!(h.revoke(key(0)), [format!("{watcher} status d0 disconnected loggedOut 3"), "write d0 disconnected loggedOut".to_owned()]);
    assert_eq!(h.grace_elapsed(0, waiting), [""; 0], "the wait is over");
}

#[test]
fn a_registration_whose_look_up_runs_when_its_key_is_revoked_does_not_get_in() {
    let mut h = Harness::new();
    h.api_key = Some(key(0));
    let (own, route) = (h.new_socket(), Route::Desktop(desktop(0)));
    h.begin(own, route, register(route));
    h.api_key = Some(key(1));
    let other = h.new_socket();
    h.begin(other, route, register(route));
    assert_eq!(h.revoke(key(0)), [format!("{own} close revoked")]);
    assert_eq!(h.found(own, route), [""; 0]);
    assert!(h.found(other, route).contains(&format!("{other} registered")));
}

#[test]
fn logging_an_account_out_ends_everything_and_leaves_nothing() {
    let mut h = Harness::new();
    let (first, to_first) = (h.desktop(0), h.phone(0, 0));
    h.api_key = Some(key(0));
    let (second, to_second) = (h.desktop(1), h.phone(1, 1));
    let gone = h.phone(2, 0);
    h.close(gone);
    h.close(second);
    let registering = h.new_socket();
    h.begin(registering, route(3, 0), register(route(3, 0)));
    h.forwarded(to_first, "a");
    let told = h.log_out();
    assert_eq!(
        told,
        [
            format!("{registering} close loggedOut"),
            format!("{first} close loggedOut"),
            format!("{to_first} refusal a -32010"),
            format!("{to_first} close loggedOut"),
            "write p0 disconnected loggedOut".to_owned(),
            format!("{to_second} close loggedOut"),
            "write p1 disconnected loggedOut".to_owned(),
            "write d0 disconnected loggedOut".to_owned(),
            "write d1 disconnected loggedOut".to_owned(),
        ]
    );
    assert!(h.core.is_idle());
    assert_eq!(h.found(registering, route(3, 0)), [""; 0]);
    for device in [Route::Desktop(desktop(0)), route(0, 0), route(2, 0)] {
        let (socket, seen) = h.resume(device, session(first), "token");
        assert_eq!(seen, [format!("{socket} failed invalidResume")]);
    }
    assert_eq!(h.log_out(), [""; 0]);
    assert_eq!(h.close_device(phone(0), CloseReason::LoggedOut), [""; 0]);
}

/// A process that has closed its sockets tells nobody of devices that go on elsewhere.
#[test]
fn a_router_lets_go_of_what_it_keeps_once_nobody_is_connected() {
    let mut h = Harness::new();
    let (desktop, phone) = (h.desktop(0), h.phone(0, 0));
    h.close(desktop);
    assert_eq!(h.step(Input::Clear), [""; 0]);
    let kept = h.core.observe();
    assert_eq!((kept.phones, kept.waiting, kept.sessions), (1, 1, 2), "a socket's end is on the way");
    h.close(phone);
    assert_eq!(h.step(Input::Clear), [""; 0]);
    assert!(h.core.is_idle() && h.core.next_timeout().is_none());
    assert_eq!(h.grace_elapsed(0, desktop), [""; 0]);
}
