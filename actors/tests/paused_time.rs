//! The reconnect wait, the deadlines of requests, and replacement: actors driven directly, in paused time.

mod support;

use relay_actors::{persistence::PersistenceState, user_router::message::DropReason};
use relay_protocol::{
    close::CloseReason,
    device::{Presence, Role},
    id::DeviceId,
    limits::{PENDING_DEFAULT, PENDING_LOAD, PENDING_OUTBOX, RECONNECT_GRACE},
};
use serde_json::json;
use std::{sync::atomic::Ordering::Relaxed, time::Duration};
use support::{Peer, Rig, advance, settle};

const MILLISECOND: Duration = Duration::from_millis(1);
/// The runtime's timers fire up to a millisecond late; the cores' own tables test their edges to the millisecond.
const TICK: Duration = Duration::from_millis(2);

/// A desktop and its phone, both registered, in paused time.
struct Pair {
    rig: Rig,
    desktop_id: DeviceId,
    phone_id: DeviceId,
    desktop: Peer,
    phone: Peer,
}

impl Pair {
    async fn connected() -> Self {
        tokio::time::pause();
        let rig = Rig::start();
        let (desktop_id, phone_id) = (rig.device(Role::Desktop), rig.device(Role::Mobile));
        let desktop = rig.desktop(desktop_id).await;
        let phone = rig.phone(phone_id, desktop_id).await;
        Pair { rig, desktop_id, phone_id, desktop, phone }
    }
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.into(), reason.into())
}

#[actix::test]
async fn a_request_goes_to_the_desktop_and_its_answer_comes_back() {
    let Pair { rig, desktop_id, phone_id, desktop, phone } = Pair::connected().await;

    phone.request("request-1", "system.ping").await;
    let request = desktop.next();
    assert_eq!(request["payload"]["clientId"], format!("{phone_id}::{desktop_id}"));
    assert_eq!(request["payload"]["userId"], rig.user.to_string());
    desktop.answer(&request, json!({"ok": true})).await;
    assert_eq!(phone.next(), json!({"type": "rpc.response", "payload": {"id": "request-1", "result": {"ok": true}, "isFinal": true}}));

    // A second answer finds no record: it is dropped, and counted.
    assert_eq!(rig.counters.dropped.get(DropReason::NoPendingRecord.name()), 0);
    desktop.answer(&request, json!({"ok": false})).await;
    assert_eq!(phone.frames(), Vec::<serde_json::Value>::new());
    assert_eq!(rig.counters.dropped.get(DropReason::NoPendingRecord.name()), 1);
}

#[actix::test]
async fn the_reconnect_wait_ends_at_its_time() {
    let Pair { rig, desktop_id, mut desktop, phone, .. } = Pair::connected().await;

    desktop.close().await;
    assert_eq!(phone.status(), pair("reconnecting", "socketClosed"));
    phone.request("a", "system.ping").await;
    assert_eq!(phone.refusal(), -32011);

    advance(RECONNECT_GRACE - MILLISECOND).await;
    assert_eq!(phone.frames(), Vec::<serde_json::Value>::new());
    phone.request("b", "system.ping").await;
    assert_eq!(phone.refusal(), -32011);
    assert_eq!(rig.stored(desktop_id), Some(Presence::Reconnecting));

    advance(TICK).await;
    assert_eq!(phone.status(), pair("disconnected", "graceElapsed"));
    phone.request("c", "system.ping").await;
    assert_eq!(phone.refusal(), -32010);
    assert_eq!(rig.stored(desktop_id), Some(Presence::Disconnected));
}

#[actix::test]
async fn a_return_within_the_wait_leaves_its_end_without_effect() {
    let Pair { rig, desktop_id, mut desktop, phone, .. } = Pair::connected().await;

    desktop.close().await;
    assert_eq!(phone.status(), pair("reconnecting", "socketClosed"));
    advance(RECONNECT_GRACE - MILLISECOND).await;
    let _back = rig.desktop(desktop_id).await;
    assert_eq!(phone.status(), pair("online", "registered"));
    phone.hear();
    advance(3 * RECONNECT_GRACE / 2).await;
    assert_eq!(phone.frames(), Vec::<serde_json::Value>::new(), "the first wait's end changed something");
    assert_eq!(rig.stored(desktop_id), Some(Presence::Online));
}

#[actix::test]
async fn a_second_close_starts_a_whole_wait() {
    let Pair { rig, desktop_id, mut desktop, phone, .. } = Pair::connected().await;
    desktop.close().await;
    advance(RECONNECT_GRACE / 2).await;
    let mut desktop = rig.desktop(desktop_id).await;
    desktop.close().await;
    phone.frames();
    advance(RECONNECT_GRACE - MILLISECOND).await;
    assert_eq!(phone.frames(), Vec::<serde_json::Value>::new());
    advance(TICK).await;
    assert_eq!(phone.status(), pair("disconnected", "graceElapsed"));
}

#[actix::test]
async fn each_class_of_request_has_its_own_deadline() {
    let Pair { rig: _rig, desktop, phone, .. } = Pair::connected().await;
    for (method, deadline) in [("system.ping", PENDING_DEFAULT), ("run.chatLoad", PENDING_LOAD), ("run.chatOutboxSubmit", PENDING_OUTBOX)] {
        phone.request(method, method).await;
        let request = desktop.next();
        // The sweep would take a link that hears nothing for a silent one.
        let mut left = deadline - MILLISECOND;
        while left > Duration::ZERO {
            let step = left.min(Duration::from_secs(100));
            advance(step).await;
            left -= step;
            for peer in [&desktop, &phone] {
                peer.link()
                    .activity
                    .on_input(relay_actors::clock::now(), relay_actors::device_socket::MessageProgress { unfinished: false, grew: false });
            }
        }
        assert_eq!(phone.frames(), Vec::<serde_json::Value>::new(), "{method}");
        advance(TICK).await;
        assert_eq!(phone.refusal(), -32012, "{method}");
        desktop.answer(&request, json!(1)).await;
        assert_eq!(phone.frames(), Vec::<serde_json::Value>::new(), "{method}: a late answer finds no route");
    }
}

#[actix::test]
async fn a_route_that_registers_again_replaces_its_socket() {
    let Pair { rig, desktop_id, phone_id, desktop: mut old, mut phone } = Pair::connected().await;
    phone.request("a", "system.ping").await;
    assert_eq!(old.next()["payload"]["id"], "a");

    let new = rig.desktop(desktop_id).await;
    assert_eq!(old.next(), json!({"close": 4002, "reason": "replaced"}));
    let frames = phone.frames();
    assert_eq!(frames[0]["payload"]["error"]["code"], -32011, "{frames:?}");
    assert_eq!(frames[1]["payload"]["payload"]["status"], "online", "{frames:?}");
    assert_eq!(frames.len(), 2, "no moment offline: {frames:?}");

    // The late end of the old socket changes nothing.
    old.close().await;
    advance(2 * RECONNECT_GRACE / 3).await;
    phone.request("b", "system.ping").await;
    let request = new.next();

    // A phone that comes back gets the answer to what its old socket asked.
    phone.close().await;
    let phone = rig.phone(phone_id, desktop_id).await;
    new.answer(&request, json!("late")).await;
    assert_eq!(phone.next()["payload"]["result"], "late");
}

#[actix::test]
async fn a_router_goes_with_its_last_state_and_comes_back_when_needed() {
    tokio::time::pause();
    let rig = Rig::start();
    let device = rig.device(Role::Desktop);
    let mut peer = rig.open(Role::Desktop);
    peer.register_with(&rig, &json!({"deviceId": "nonsense", "relayProtocolVersion": "1.7"})).await;
    assert_eq!(peer.next()["payload"]["code"], "invalidDeviceId");
    assert_eq!(rig.directory.len(), 0, "a failed registration leaves nothing behind");

    peer.register(&rig, device, None).await;
    assert_eq!(peer.next()["type"], "registered");
    assert_eq!(rig.directory.len(), 1);
    peer.close().await;
    advance(RECONNECT_GRACE + TICK).await;
    assert_eq!(rig.directory.len(), 1, "its resume session is live state");
    advance(relay_protocol::limits::RESUME_TTL).await;
    assert_eq!(rig.directory.len(), 0);
    let _again = rig.desktop(device).await;
    assert_eq!(rig.directory.len(), 1);
}

/// Its end may overtake its registration while the router's mailbox is full; nobody would end what began then.
#[actix::test]
async fn a_registration_that_comes_after_its_sockets_end_takes_no_effect() {
    tokio::time::pause();
    let rig = Rig::start();
    let device = rig.device(Role::Desktop);
    let mut peer = rig.open(Role::Desktop);
    peer.link().set_ended();
    peer.register(&rig, device, None).await;
    assert_eq!(rig.directory.len(), 0);
    assert_eq!(rig.stored(device), None);
}

/// What barred the socket was handled by the router, or met none, before the registration came.
#[actix::test]
async fn a_registration_that_comes_after_its_socket_was_barred_takes_no_effect() {
    tokio::time::pause();
    let rig = Rig::start();
    let device = rig.device(Role::Desktop);
    let mut peer = rig.open(Role::Desktop);
    let barred = rig.sockets.bar(|identity| identity.user == rig.user, CloseReason::Revoked);
    assert_eq!(barred.len(), 1);
    peer.register(&rig, device, None).await;
    assert_eq!(peer.next(), json!({"close": 1008, "reason": "revoked"}));
    assert_eq!((rig.directory.len(), rig.stored(device)), (0, None));
    let mut later = rig.open(Role::Desktop);
    later.register(&rig, device, None).await;
    assert_eq!(later.next()["type"], "registered", "only what was open is barred");
}

#[actix::test]
async fn a_silent_socket_is_retired_and_its_desktop_reconnecting() {
    let Pair { rig, desktop, phone, .. } = Pair::connected().await;
    advance(Duration::from_secs(100)).await;
    phone
        .link()
        .activity
        .on_input(relay_actors::clock::now(), relay_actors::device_socket::MessageProgress { unfinished: false, grew: false });
    advance(Duration::from_secs(79)).await;
    assert_eq!(desktop.frames(), Vec::<serde_json::Value>::new());
    for _ in 0..8 {
        advance(Duration::from_millis(250)).await;
    }
    assert_eq!(desktop.next(), json!({"close": 4004, "reason": "silent"}));
    assert_eq!(phone.status(), pair("reconnecting", "silent"));
    assert_eq!(rig.counters.retired.get("silent"), 1);
}

/// The text is shared, so what is counted here costs no memory.
#[actix::test]
async fn past_the_total_of_all_lanes_the_largest_holder_is_retired_at_once_and_its_phones_are_told() {
    const MIB: usize = 1024 * 1024;
    let Pair { rig, desktop, phone, .. } = Pair::connected().await;
    let text = relay_protocol::text::Text::from("x".repeat(31 * MIB));
    let fill = |peer: &Peer, count: usize| (0..count).for_each(|_| peer.link().lane.push(text.clone()).unwrap());
    let mut others = Vec::new();
    for _ in 0..15 {
        let device = rig.device(Role::Desktop);
        others.push(rig.desktop(device).await);
    }
    let _told = phone.frames();
    others.iter().for_each(|other| fill(other, 2));
    fill(&desktop, 3);
    settle().await;
    assert_eq!(rig.sockets.outbound().held(), 33 * 31 * MIB + 33 * (10 + 96), "a mebibyte below the total");
    assert_eq!(phone.frames(), Vec::<serde_json::Value>::new());

    others[0].link().lane.push(relay_protocol::text::Text::from("x".repeat(MIB))).unwrap();
    settle().await;
    assert_eq!(
        rig.sockets.outbound().held(),
        others.iter().map(|other| other.link().lane.queued_bytes()).sum::<usize>() + phone.link().lane.queued_bytes()
    );
    assert_eq!(desktop.next(), json!({"close": 4003, "reason": "saturated"}));
    assert_eq!(phone.status(), pair("reconnecting", "saturated"));
    assert!(others.iter().all(|other| !other.link().lane.is_closing()));
    assert_eq!(rig.counters.retired.get("saturated"), 1);
    let sockets = rig.sockets.clone();
    drop((rig, desktop, phone, others));
    settle().await;
    assert_eq!(sockets.inbound().held(), 0);
}

#[actix::test]
async fn a_reply_that_takes_a_lane_far_over_its_bound_retires_its_connection() {
    let Pair { rig, desktop, phone, .. } = Pair::connected().await;
    phone.request("over", "system.ping").await;
    let request = desktop.next();
    // 64 MiB may wait, and one maximal message more.
    let text = relay_protocol::text::Text::from("x".repeat(24 * 1024 * 1024));
    (0..4).for_each(|_| phone.link().lane.push(text.clone()).unwrap());
    desktop.answer(&request, json!("x".repeat(1024 * 1024))).await;
    assert!(phone.link().lane.is_closing());
    assert_eq!((rig.counters.retired.get("saturated"), rig.sockets.outbound().held()), (1, phone.link().lane.queued_bytes()));
    assert_eq!(phone.next(), json!({"close": 4003, "reason": "saturated"}));
}

#[actix::test]
async fn stale_rows_are_ended_one_reconnect_wait_after_the_start() {
    tokio::time::pause();
    let rig = Rig::start();
    advance(RECONNECT_GRACE - MILLISECOND).await;
    assert!(!rig.store.stale_ended.load(Relaxed));
    advance(TICK).await;
    assert!(rig.store.stale_ended.load(Relaxed));
}

#[actix::test]
async fn a_persistence_actor_that_panics_is_started_anew() {
    tokio::time::pause();
    let rig = Rig::start();
    let device = rig.device(Role::Desktop);
    rig.store.panics.store(true, Relaxed);
    let mut peer = rig.open(Role::Desktop);
    peer.register(&rig, device, None).await;
    for _ in 0..50 {
        advance(Duration::from_millis(100)).await;
    }
    assert_eq!(rig.counters.persistence_restarted.get(), 1);
    let answer = peer.next();
    assert_eq!(answer["payload"]["retryable"], true, "{answer}");
    peer.register(&rig, device, None).await;
    settle().await;
    assert_eq!(peer.next()["type"], "registered");
}

#[actix::test]
async fn statuses_outlive_the_persistence_actor_that_could_not_write_them() {
    let Pair { rig, desktop_id, phone_id, mut desktop, phone: _phone } = Pair::connected().await;
    let (returning_id, other) = (rig.device(Role::Desktop), rig.device(Role::Desktop));
    let mut returning = rig.desktop(returning_id).await;
    let stored = || [desktop_id, phone_id, returning_id].map(|device| rig.stored(device).unwrap());
    assert_eq!(stored(), [Presence::Online; 3]);
    rig.store.away.store(true, Relaxed);
    desktop.close().await;
    returning.close().await;
    let _returned = rig.desktop(returning_id).await;
    advance(Duration::from_secs(1)).await;
    rig.store.panics.store(true, Relaxed);
    rig.open(Role::Desktop).register(&rig, other, None).await;
    rig.store.away.store(false, Relaxed);
    for _ in 0..50 {
        advance(Duration::from_millis(100)).await;
    }
    assert_eq!(rig.counters.persistence_restarted.get(), 1);
    assert_eq!(stored(), [Presence::Reconnecting, Presence::Online, Presence::Online], "the newest of each");
    let rewritten = rig.store.statuses.lock().unwrap().iter().filter(|write| write.device == returning_id).count();
    assert_eq!(rewritten, 2, "what was only in between is not stored");
    assert_eq!(rig.directory.services().persistence_state(), PersistenceState::default(), "nothing is left to write");
    // What is stored is not kept for the next one.
    let statements = rig.store.statuses.lock().unwrap().len();
    rig.store.panics.store(true, Relaxed);
    rig.open(Role::Desktop).register(&rig, other, None).await;
    for _ in 0..50 {
        advance(Duration::from_millis(100)).await;
    }
    assert_eq!((rig.counters.persistence_restarted.get(), rig.store.statuses.lock().unwrap().len()), (2, statements));
}
