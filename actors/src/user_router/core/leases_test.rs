//! Leases and events: who is told what, and who gets which frame.

use super::{
    Effects,
    testing::{EPOCH_MS, Harness, MS, desktop, generation, interest, json, key, phone, route},
};
use crate::{
    clock::EpochMs,
    user_router::message::{Effect, Input, SocketId},
};
use relay_protocol::{close::CloseReason, id::Route, limits::TIMELINE_INTEREST_TTL};
use std::time::Duration;

/// A desktop with two phones.
fn watched() -> (Harness, SocketId, SocketId, SocketId) {
    let mut harness = Harness::new();
    let (desktop, one, other) = (harness.desktop(0), harness.phone(0, 0), harness.phone(1, 0));
    (harness, desktop, one, other)
}

#[test]
fn a_phone_gets_frames_of_the_session_that_it_watches() {
    let (mut harness, desktop, one, other) = watched();
    assert_eq!(harness.interest(one, "s", true), ["2 lease 1", "1 interest s g1 60000 r1"]);
    assert_eq!(harness.timeline(desktop, "s", 1, 5), ["2 timeline 5 from d0 under 1"]);
    assert_eq!(harness.interest(other, "s", true), ["3 lease 2"], "the deadline is the same");
    assert_eq!(harness.timeline(desktop, "s", 1, 6), ["2 timeline 6 from d0 under 1", "3 timeline 6 from d0 under 2"]);
    for (session, generation, dropped) in [("s", 2, "StaleGeneration"), ("s", 3, "StaleGeneration"), ("other", 1, "NoLease")] {
        assert_eq!(harness.timeline(desktop, session, generation, 7), [format!("dropped {dropped}")]);
    }
}

#[test]
fn a_lease_ends_its_time_after_the_last_renewal_without_a_message() {
    for (off, reaches) in [(TIMELINE_INTEREST_TTL - MS, true), (TIMELINE_INTEREST_TTL, false), (TIMELINE_INTEREST_TTL + MS, false)] {
        let (mut harness, desktop, one, _) = watched();
        harness.interest(one, "s", true);
        harness.pass(Duration::from_secs(20));
        assert_eq!(harness.interest(one, "s", true), ["2 lease 1", "1 interest s g1 60000 r2"]);
        harness.pass(off);
        let expected = if reaches { vec!["2 timeline 1 from d0 under 1"] } else { vec!["2 lease none", "dropped NoLease"] };
        assert_eq!(harness.timeline(desktop, "s", 1, 1), expected, "{off:?}");
    }
}

#[test]
fn the_timer_names_the_end_of_the_next_lease() {
    let (mut harness, _, one, other) = watched();
    harness.interest(one, "s", true);
    harness.pass(Duration::from_secs(10));
    harness.interest(other, "t", true);
    let left = |harness: &Harness| harness.core.next_timeout().map(|(at, why)| (at - harness.now.monotonic, why));
    assert_eq!(left(&harness), Some((Duration::from_secs(50), "timeline lease")));
    assert_eq!(harness.timeout_after(Duration::from_secs(50)), ["2 lease none"]);
    assert_eq!(left(&harness), Some((Duration::from_secs(10), "timeline lease")));
    assert_eq!(harness.core.observe().leases, 1);
}

#[test]
fn interest_that_begins_again_has_a_new_generation() {
    let (mut harness, desktop, one, _) = watched();
    harness.interest(one, "s", true);
    assert_eq!(harness.interest(one, "s", false), ["2 lease none", "1 interest s ended r2"]);
    assert_eq!(harness.interest(one, "s", true), ["2 lease 2", "1 interest s g3 60000 r3"]);
    assert_eq!(harness.timeline(desktop, "s", 1, 1), ["dropped StaleGeneration"]);
    harness.pass(TIMELINE_INTEREST_TTL);
    assert_eq!(harness.interest(one, "s", true), ["2 lease none", "2 lease 3", "1 interest s g4 60000 r4"]);
}

#[test]
fn a_phone_has_one_lease() {
    let (mut harness, desktop, one, _) = watched();
    harness.interest(one, "s", true);
    assert_eq!(harness.interest(one, "t", true), ["2 lease none", "1 interest s ended r2", "2 lease 2", "1 interest t g2 60000 r3"]);
    assert_eq!(harness.timeline(desktop, "s", 1, 1), ["dropped NoLease"]);
    assert_eq!(harness.interest(one, "s", false), [] as [&str; 0], "that lease is over");
    assert_eq!(harness.timeline(desktop, "t", 2, 1), ["2 timeline 1 from d0 under 2"]);
}

#[test]
fn a_phone_with_two_routes_has_a_lease_on_each() {
    let mut harness = Harness::new();
    let (d0, d1) = (harness.desktop(0), harness.desktop(1));
    let (to_d0, to_d1) = (harness.phone(0, 0), harness.phone(0, 1));
    harness.interest(to_d0, "s", true);
    assert_eq!(harness.interest(to_d1, "s", true), ["4 lease 2", "2 interest s g2 60000 r2"]);
    assert_eq!(harness.timeline(d0, "s", 1, 1), ["3 timeline 1 from d0 under 1"]);
    assert_eq!(harness.timeline(d1, "s", 2, 1), ["4 timeline 1 from d1 under 2"]);
    assert_eq!(harness.timeline(d1, "s", 1, 1), ["dropped StaleGeneration"], "the generation of another desktop's session");
}

#[test]
fn aliases_of_a_session_share_its_lease() {
    let (mut harness, desktop, one, other) = watched();
    harness.interest(one, " s::skills-agent", true);
    harness.pass(MS);
    assert_eq!(harness.interest(other, "s", true), ["3 lease 2", "1 interest s g1 60000 r2"]);
    assert_eq!(harness.timeline(desktop, "s ::skills-agent", 1, 1).len(), 2);
    assert_eq!(harness.interest(one, "s", false), ["2 lease none"]);
}

#[test]
fn interest_ends_with_the_last_phone_and_a_second_release_changes_nothing() {
    let (mut harness, desktop, one, other) = watched();
    harness.interest(one, "s", true);
    harness.interest(one, "s", true);
    harness.interest(other, "s", true);
    assert_eq!(harness.interest(one, "s", false), ["2 lease none"]);
    assert_eq!(harness.interest(one, "s", false), [] as [&str; 0]);
    assert_eq!(harness.timeline(desktop, "s", 1, 1), ["3 timeline 1 from d0 under 2"]);
    assert_eq!(harness.interest(other, "s", false), ["3 lease none", "1 interest s ended r2"]);
}

#[test]
fn the_desktop_is_told_the_latest_deadline_when_that_changes() {
    let (mut harness, _, one, other) = watched();
    harness.interest(one, "s", true);
    harness.pass(Duration::from_secs(10));
    assert_eq!(harness.interest(other, "s", true), ["3 lease 2", "1 interest s g1 60000 r2"]);
    assert_eq!(harness.interest(one, "s", false), ["2 lease none"], "the other one's is later");
    harness.interest(one, "s", true);
    harness.pass(Duration::from_secs(5));
    assert_eq!(harness.interest(other, "s", true), ["3 lease 2", "1 interest s g1 60000 r3"]);
    assert_eq!(harness.close(other)[..2], ["3 lease none", "1 interest s g1 55000 r4"], "what the first one still has");
}

#[test]
fn a_deadline_is_told_by_the_wall_and_kept_by_the_monotonic_clock() {
    let (mut harness, desktop, one, _) = watched();
    harness.interest(one, "s", true);
    harness.pass(Duration::from_secs(10));
    // An hour back.
    harness.now.wall = EpochMs(EPOCH_MS - 3_600_000);
    let mut effects = Effects::default();
    let renewal = Input::Interest { socket: one, interest: interest("s", true), generation: generation(9) };
    harness.core.handle(harness.now, renewal, &mut effects);
    let is_update = |effect: &Effect| matches!(effect, Effect::Send { socket, .. } if *socket == desktop);
    let update = std::iter::from_fn(|| effects.pop()).find(is_update);
    let Some(Effect::Send { text, .. }) = update else { panic!("{update:?}") };
    let payload = &json(&text)["payload"]["payload"];
    assert_eq!((payload["expiresAt"].as_i64(), payload["expiresInMs"].as_u64()), (Some(EPOCH_MS - 3_600_000 + 60_000), Some(60_000)));
    harness.now.wall = EpochMs(EPOCH_MS + 3_600_000);
    harness.pass(TIMELINE_INTEREST_TTL - MS);
    assert_eq!(harness.timeline(desktop, "s", 1, 1), ["2 timeline 1 from d0 under 1"]);
    harness.pass(MS);
    assert_eq!(harness.timeline(desktop, "s", 1, 1), ["2 lease none", "dropped NoLease"]);
}

#[test]
fn a_desktop_that_registers_is_told_of_every_session_with_its_generation() {
    let mut harness = Harness::new();
    let (one, other) = (harness.phone(0, 0), harness.phone(1, 0));
    assert_eq!(harness.interest(one, "s", true), ["1 lease 1"], "the desktop is away");
    harness.pass(Duration::from_secs(10));
    harness.interest(other, "t", true);
    let (first, seen) = harness.open(Route::Desktop(desktop(0)));
    assert_eq!(seen[..3], ["3 registered", "3 interest s g1 50000 r1", "3 interest t g2 60000 r2"]);
    assert_eq!(harness.timeline(first, "s", 1, 1), ["1 timeline 1 from d0 under 1"]);
    harness.close(first);
    assert_eq!(harness.interest(other, "t", false), ["2 lease none"]);
    let (again, seen) = harness.open(Route::Desktop(desktop(0)));
    assert_eq!(seen[..2], ["4 registered", "4 interest s g1 50000 r3"], "generations survive, what ended is not named");
    assert!(!seen[2].contains("interest"), "{seen:?}");
    assert_eq!(harness.timeline(again, "s", 1, 2), ["1 timeline 2 from d0 under 1"]);
    assert_eq!(harness.timeline(first, "s", 1, 2), ["dropped StaleSocket"]);
    let (replacing, seen) = harness.open(Route::Desktop(desktop(0)));
    assert_eq!(seen[..3], ["4 close replaced", "5 registered", "5 interest s g1 50000 r4"]);
    assert_eq!(harness.timeline(again, "s", 1, 3), ["dropped StaleSocket"]);
    assert_eq!(harness.timeline(replacing, "s", 1, 3), ["1 timeline 3 from d0 under 1"]);
}

#[test]
fn a_lease_ends_with_its_connection_however_that_ends() {
    let ends: [fn(&mut Harness, SocketId) -> Vec<String>; 6] = [
        |harness, one| harness.close(one),
        |harness, one| harness.retire(one, CloseReason::Saturated),
        |harness, one| harness.retire(one, CloseReason::Silent),
        |harness, _| harness.close_device(phone(0), CloseReason::DeviceForgotten),
        |harness, _| harness.revoke(key(0)),
        |harness, _| harness.open(route(0, 0)).1,
    ];
    for end in ends {
        let mut harness = Harness::new();
        let desktop = harness.desktop(0);
        harness.api_key = Some(key(0));
        let one = harness.phone(0, 0);
        harness.api_key = None;
        harness.interest(one, "s", true);
        let seen = end(&mut harness, one);
        let at = |line: &str| seen.iter().position(|seen| seen == line).unwrap_or_else(|| panic!("{line} is not in {seen:?}"));
        at("2 lease none");
        at("1 interest s ended r2");
        assert_eq!(harness.core.observe().leases, 0);
        assert_eq!(harness.timeline(desktop, "s", 1, 1), ["dropped NoLease"]);
    }
}

#[test]
fn what_a_replaced_phone_still_sends_changes_nothing() {
    let (mut harness, desktop, one, _) = watched();
    harness.interest(one, "s", true);
    let newer = harness.phone(0, 0);
    harness.interest(newer, "s", true);
    for (session, active) in [("s", true), ("s", false), ("t", true)] {
        assert_eq!(harness.interest(one, session, active), ["dropped StaleSocket"]);
    }
    assert_eq!(harness.close(one), [] as [&str; 0]);
    assert_eq!(harness.timeline(desktop, "s", 2, 1), ["4 timeline 1 from d0 under 2"]);
}

#[test]
fn a_regular_event_goes_to_the_phones_of_its_desktop() {
    let mut harness = Harness::new();
    let (d0, d1) = (harness.desktop(0), harness.desktop(1));
    let (one, _other, _elsewhere) = (harness.phone(0, 0), harness.phone(1, 0), harness.phone(0, 1));
    assert_eq!(harness.regular(d0, 1), ["3 event 1 from d0", "4 event 1 from d0"]);
    assert_eq!(harness.regular(d1, 2), ["5 event 2 from d1"]);
    harness.close(one);
    assert_eq!(harness.regular(d0, 3), ["4 event 3 from d0"]);
    harness.close(d0);
    assert_eq!(harness.regular(d0, 4), ["dropped StaleSocket"]);
}

#[test]
fn revisions_go_on_where_an_earlier_router_could_have_ended() {
    let mut harness = Harness::with(|config| config.revision_base = 1_000);
    harness.desktop(0);
    let one = harness.phone(0, 0);
    assert_eq!(harness.interest(one, "s", true), ["2 lease 1", "1 interest s g1 60000 r1001"]);
}
