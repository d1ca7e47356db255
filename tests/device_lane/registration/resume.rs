//! Resume sessions: what brings one back, what does not, and what a failed attempt leaves alone.

use super::{accepted, answers, naming, open_desktop, open_phone, refused, resume_of};
use crate::support::{PATIENCE, account::Account, raw_socket::RawSocket, relay_process::RelayProcess};
use relay_actors::clock::EpochMs;
use relay_protocol::id::DeviceId;
use serde_json::{Value, json};
use std::time::Duration;
use uuid::Uuid;

/// Registers on a fresh socket of this desktop.
async fn register_desktop(account: &Account, more: Value, kind: &str) -> (RawSocket, Value) {
    let mut socket = open_desktop(account).await;
    let answer = accepted(&mut socket, &naming(account.desktops[0], more), kind).await;
    (socket, answer)
}

fn assert_resumed(before: &Value, after: &Value) {
    assert_eq!(resume_of(before), resume_of(after), "the session goes on, and its token is kept");
    assert_ne!(before["connectionId"], after["connectionId"], "a generation is never used again");
    assert_eq!(after["expiresInMs"], before["expiresInMs"]);
    assert!(after["expiresAt"].as_i64() >= before["expiresAt"].as_i64());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_resumed_after_a_cut_and_after_a_replacement_as_often_as_wanted() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let (socket, first) = register_desktop(&account, json!({}), "registered").await;
    socket.reset();
    let (mut second_socket, second) = register_desktop(&account, resume_of(&first), "resumed").await;
    assert_resumed(&first, &second);
    let (mut third_socket, third) = register_desktop(&account, resume_of(&first), "resumed").await;
    assert_resumed(&second, &third);
    assert_eq!(second_socket.closed(PATIENCE).await, Some((4002, "replaced".to_owned())));
    let (_fourth_socket, fourth) = register_desktop(&account, resume_of(&first), "resumed").await;
    assert_resumed(&third, &fourth);
    assert_eq!(third_socket.closed(PATIENCE).await, Some((4002, "replaced".to_owned())));

    let phone = account.phones[0];
    let mut socket = open_phone(&account, Some(account.desktops[0])).await;
    let before = accepted(&mut socket, &naming(phone, json!({})), "registered").await;
    socket.reset();
    // The target may be named in the other place.
    let mut socket = open_phone(&account, None).await;
    let mut more = resume_of(&before);
    more["targetDesktopDeviceId"] = json!(account.desktops[0]);
    let after = accepted(&mut socket, &naming(phone, more), "resumed").await;
    assert_resumed(&before, &after);
    assert_eq!(after["target"], before["target"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_this_devices_live_session_is_not_resumed_and_burns_nothing() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 2).await;
    let stranger = Account::new(&relay, 1, 0).await;
    let (desktop, other_desktop) = (account.desktops[0], account.desktops[1]);
    let (mut live, own) = register_desktop(&account, json!({}), "registered").await;
    let mut neighbour = open_desktop(&account).await;
    let other = accepted(&mut neighbour, &naming(other_desktop, json!({})), "registered").await;
    let foreign = accepted(&mut open_desktop(&stranger).await, &naming(stranger.desktops[0], json!({})), "registered").await;

    let mut socket = open_desktop(&account).await;
    let token = own["resumeToken"].as_str().unwrap();
    let wrong_end = format!("{}{}", &token[..token.len() - 1], if token.ends_with('A') { 'E' } else { 'A' });
    for more in [
        json!({"sessionId": Uuid::new_v4(), "resumeToken": token}),
        json!({"sessionId": Uuid::new_v4(), "resumeToken": ""}),
        json!({"sessionId": "no-uuid", "resumeToken": token}),
        json!({"sessionId": own["sessionId"]}),
        json!({"sessionId": own["sessionId"], "resumeToken": null}),
        json!({"resumeToken": token}),
        json!({"sessionId": own["sessionId"], "resumeToken": ""}),
        json!({"sessionId": own["sessionId"], "resumeToken": wrong_end}),
        json!({"sessionId": own["sessionId"], "resumeToken": format!("{token} ")}),
        json!({"sessionId": own["sessionId"], "resumeToken": other["resumeToken"]}),
        resume_of(&other),
        resume_of(&foreign),
    ] {
        refused(&mut socket, &naming(desktop, more), "invalidResume", false).await;
    }
    answers(&mut live).await;
    let resumed = accepted(&mut socket, &naming(desktop, resume_of(&own)), "resumed").await;
    assert_resumed(&own, &resumed);
    answers(&mut neighbour).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_bound_to_phone_and_target() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 2).await;
    let (phone, target) = (account.phones[0], account.desktops[0]);
    let register = async |phone: DeviceId, target: DeviceId, more: Value| {
        let mut socket = open_phone(&account, Some(target)).await;
        let answer = accepted(&mut socket, &naming(phone, more.clone()), if more == json!({}) { "registered" } else { "resumed" }).await;
        (socket, answer)
    };
    let (mut first, own) = register(phone, target, json!({})).await;
    let (mut second, other) = register(phone, account.desktops[1], json!({})).await;
    for (phone, target, session) in [
        (phone, account.desktops[1], &own),
        (phone, target, &other),
        (account.phones[1], target, &own),
        (account.phones[1], account.desktops[1], &other),
    ] {
        let mut socket = open_phone(&account, Some(target)).await;
        refused(&mut socket, &naming(phone, resume_of(session)), "invalidResume", false).await;
    }
    answers(&mut first).await;
    answers(&mut second).await;
    let (_resumed, again) = register(phone, target, resume_of(&own)).await;
    assert_resumed(&own, &again);
    answers(&mut second).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_without_token_ends_the_session_before_it() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 0).await;
    let (_first_socket, first) = register_desktop(&account, json!({}), "registered").await;
    let (_second_socket, second) = register_desktop(&account, json!({}), "registered").await;
    assert_ne!(first["sessionId"], second["sessionId"]);
    let mut socket = open_desktop(&account).await;
    refused(&mut socket, &naming(account.desktops[0], resume_of(&first)), "invalidResume", false).await;
    let resumed = accepted(&mut socket, &naming(account.desktops[0], resume_of(&second)), "resumed").await;
    assert_resumed(&second, &resumed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_its_time_after_the_last_request() {
    let relay = RelayProcess::start(&["--resume-ttl", "3s"]).await;
    let account = Account::new(&relay, 1, 0).await;
    let (socket, first) = register_desktop(&account, json!({}), "registered").await;
    assert_eq!(first["expiresInMs"], json!(3_000));
    socket.reset();
    let (socket, resumed) = register_desktop(&account, resume_of(&first), "resumed").await;
    socket.reset();
    let mut socket = open_desktop(&account).await;
    // Its end is what this waits for; nothing announces it.
    let left_ms = resumed["expiresAt"].as_i64().unwrap() - EpochMs::now().0;
    tokio::time::sleep(Duration::from_millis(u64::try_from(left_ms + 100).unwrap_or(0))).await;
    refused(&mut socket, &naming(account.desktops[0], resume_of(&first)), "invalidResume", false).await;
    accepted(&mut socket, &naming(account.desktops[0], json!({})), "registered").await;
}
