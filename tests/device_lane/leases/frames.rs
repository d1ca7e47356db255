//! What a frame is on the way, which frames wait for each other, and which are no events of clients.

use super::{SESSION, reaches, watch};
use crate::support::{
    raw_socket::{Frame, RawSocket},
    timeline::{event, interest, next_event, next_number, next_update, stream},
    wire::{Rig, next_of, payload_field, round_trip},
};

/// Long enough for everything that a test sends meanwhile, so that it is one flush.
const SLOW_FLUSH: [&str; 2] = ["--flush-interval", "2s"];

#[tokio::test]
async fn a_frame_passes_byte_for_byte_but_for_its_generation() {
    let rig = Rig::start(&[], 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let update = watch(&mut phone, &mut desktop, &format!("  {SESSION}::skills-agent ")).await;
    assert_eq!(update.session, SESSION, "aliases have the session's own name");
    let generation = update.generation();
    let source = rig.account.desktops[0];
    for (sent, arrives) in [
        (
            format!(r#"{{ "appSessionId" : "{SESSION}" , "authorizationGeneration":"{generation}","n":[1.0,1E400,-0,"\ud800\/"] }}"#),
            format!(r#"{{ "appSessionId" : "{SESSION}" , "n":[1.0,1E400,-0,"\ud800\/"] }}"#),
        ),
        (
            format!(r#"{{"appSessionId":"{SESSION}::skills-agent","b":1,"b":2,"authorizationGeneration":"{generation}"}}"#),
            format!(r#"{{"appSessionId":"{SESSION}::skills-agent","b":1,"b":2}}"#),
        ),
        (
            format!(r#"{{"authorizationGeneration":"{generation}","appSessionId":"{SESSION}","big":"{}"}}"#, "x".repeat(600_000)),
            format!(r#"{{"appSessionId":"{SESSION}","big":"{}"}}"#, "x".repeat(600_000)),
        ),
    ] {
        desktop.text(&event("chat:stream", &sent)).await;
        let expected =
            format!(r#"{{"type":"event","payload":{{"eventType":"chat:stream","sourceDeviceId":"{source}","payload":{arrives}}}}}"#);
        assert_eq!(next_event(&mut phone).await, expected);
    }
    desktop.text(&event("files:changed", r#"{ "authorizationGeneration":1.0 }"#)).await;
    let expected = format!(
        r#"{{"type":"event","payload":{{"eventType":"files:changed","sourceDeviceId":"{source}","payload":{{ "authorizationGeneration":1.0 }}}}}}"#
    );
    assert_eq!(next_event(&mut phone).await, expected, "only timeline frames have a generation");
}

#[tokio::test]
async fn of_frames_with_one_key_that_wait_the_newest_arrives_behind_what_came_before_it() {
    let rig = Rig::start(&SLOW_FLUSH, 1).await;
    let (mut desktop, mut phone) = (rig.desktop().await, rig.phone(0).await);
    let update = watch(&mut phone, &mut desktop, SESSION).await;
    let frame = |key, number| Frame::text(&stream(SESSION, update.generation(), key, number)).encode();
    let sent = [frame(Some("k"), 1), frame(Some("l"), 2), frame(None, 3), frame(Some("k"), 4), frame(None, 5), frame(Some("k"), 6)];
    desktop.write(&sent.concat()).await;
    for number in [2, 3, 5, 6] {
        assert_eq!(next_number(&mut phone).await, number);
    }
}

/// Replies do not wait behind frames; frames of a lease that is over while they wait are not written, also when another one has begun.
#[tokio::test]
async fn frames_that_wait_go_with_their_lease_and_hold_up_no_reply() {
    let rig = Rig::start(&SLOW_FLUSH, 2).await;
    let (mut desktop, mut phone, mut other) = (rig.desktop().await, rig.phone(0).await, rig.phone(1).await);
    let update = watch(&mut phone, &mut desktop, SESSION).await;
    watch(&mut other, &mut desktop, SESSION).await;
    desktop.text(&stream(SESSION, update.generation(), None, 1)).await;
    phone.text(&crate::support::wire::request("urgent", "1")).await;
    let request = next_of(&mut desktop, "rpc.request").await;
    desktop.text(&crate::support::wire::response(&request, "2")).await;
    assert!(phone.next_text().await.starts_with(r#"{"type":"rpc.response""#), "a reply overtakes frames that wait");
    phone.text(&interest(SESSION, false)).await;
    phone.text(&interest(SESSION, true)).await;
    // The other phone's lease goes on, so the generation does; the new lease is another one all the same.
    round_trip(&mut phone, &mut desktop, "behind").await;
    reaches(&mut desktop, update.generation(), 2, &mut [&mut phone]).await;
    assert_eq!((next_number(&mut other).await, next_number(&mut other).await), (1, 2));
}

#[tokio::test]
async fn what_is_no_event_of_its_sender_is_answered_and_changes_nothing() {
    let rig = Rig::start(&[], 1).await;
    let (unregistered, registered_phone, registered_desktop) = (0, 1, 2);
    let mut sockets = [RawSocket::open(&rig.account.raw_phone()).await, rig.phone(0).await, rig.desktop().await];
    let good = r#"{"appSessionId":"s","active":true}"#;
    let bad = r#"{"appSessionId":" ::skills-agent","active":true}"#;
    for (sender, name, payload, code) in [
        (unregistered, "chat:timeline-interest", good, "notRegistered"),
        (registered_phone, "chat:stream", r#"{"appSessionId":"s"}"#, "wrongRole"),
        (registered_phone, "files:changed", "{}", "wrongRole"),
        (registered_phone, "chat:timeline-interest", bad, "invalidPayload"),
        (registered_phone, "chat:timeline-interest", r#"{"appSessionId":"s","active":1}"#, "invalidPayload"),
        (registered_phone, "device-status", "{}", "invalidEvent"),
        (registered_desktop, "chat:timeline-interest", good, "wrongRole"),
        (registered_desktop, "chat:timeline-interest-updated", good, "invalidEvent"),
        (registered_desktop, "relay:anything", "{}", "invalidEvent"),
        (registered_desktop, "Files", "{}", "invalidEvent"),
        (registered_desktop, "agent:notification", "{}", "invalidPayload"),
        (registered_desktop, "chat:stream", "{}", "invalidPayload"),
        (registered_desktop, "files:changed", "[]", "invalidPayload"),
    ] {
        sockets[sender].text(&event(name, payload)).await;
        let error = next_of(&mut sockets[sender], "error").await;
        assert_eq!(payload_field(&error, "code"), format!("\"{code}\""), "{name} {payload}");
    }
    let [_, mut phone, mut desktop] = sockets;
    phone.text(&interest("s", true)).await;
    assert_eq!(next_update(&mut desktop).await.session, "s");
    round_trip(&mut phone, &mut desktop, "after").await;
}
