//! What the router hands over to be pushed (device-lane section 8).

use super::testing::{Harness, desktop, event};
use crate::user_router::message::{Input, SocketId};
use relay_protocol::{
    close::CloseReason,
    event::{Event, NotSent, Notification, Outcome},
    id::Route,
};

fn notification(id: &str) -> Notification {
    match event("agent:notification", &format!("{{\"notificationId\":\"{id}\",\"title\":\"t\",\"body\":\"b\"}}")) {
        Event::Notification(notification) => notification,
        other @ (Event::Interest(_) | Event::Timeline(_) | Event::Regular(_)) => panic!("{other:?}"),
    }
}

fn notify(h: &mut Harness, socket: SocketId) -> Vec<String> {
    h.step(Input::Notification { socket, notification: notification("n") })
}

fn is_pushed(seen: &[String]) -> bool {
    seen.iter().any(|line| line == "push d0 online")
}

/// Neither a replacement nor a return within the wait is news to a phone that sleeps; coming back later is, and so is a registration
/// at a relay that knows nothing yet.
#[test]
fn phones_are_told_of_a_desktop_that_had_been_gone_only() {
    let mut h = Harness::new();
    let (first, seen) = h.open(Route::Desktop(desktop(0)));
    assert!(is_pushed(&seen), "a new process knows nothing: {seen:?}");
    let (second, seen) = h.open(Route::Desktop(desktop(0)));
    assert!(!is_pushed(&seen), "it replaced {first}: {seen:?}");
    h.close(second);
    let (third, seen) = h.open(Route::Desktop(desktop(0)));
    assert!(!is_pushed(&seen), "within the wait: {seen:?}");
    h.close(third);
    h.grace_elapsed(0, third);
    let (fourth, seen) = h.open(Route::Desktop(desktop(0)));
    assert!(is_pushed(&seen), "after the wait: {seen:?}");
    h.retire(fourth, CloseReason::Silent);
    let (_, seen) = h.open(Route::Desktop(desktop(0)));
    assert!(!is_pushed(&seen), "it was silent, and is waited for: {seen:?}");
}

#[test]
fn an_alert_is_handed_over_and_no_phone_hears_of_it_by_socket() {
    let mut h = Harness::new();
    let (_, desk) = (h.phone(0, 0), h.desktop(0));
    assert_eq!(notify(&mut h, desk), [format!("{desk} push n of d0")]);
}

#[test]
fn the_answer_goes_to_the_socket_that_asked_and_to_no_later_one() {
    let mut h = Harness::new();
    let desk = h.desktop(0);
    let answer = || Outcome::Refused(NotSent::NoDevices).to_text("n");
    let seen = h.step(Input::Notified { socket: desk, answer: answer() });
    assert_eq!(seen, [format!("{desk} told n noDevices")]);
    let (_, _) = h.open(Route::Desktop(desktop(0)));
    assert!(h.step(Input::Notified { socket: desk, answer: answer() }).is_empty());
    assert_eq!(notify(&mut h, desk), ["dropped StaleSocket"]);
}
