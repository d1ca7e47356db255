//! How sockets end: code and reason of each close, what other phones are told, what a resume gets afterwards, and that the TCP
//! connection and the relay's memory of it really go.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod drain;

use super::registration::{
    accepted, answers, connections, naming, next_answer, next_status, open_desktop, open_phone, refused, resume_of, send,
};
use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawSocket, Received, opcode},
    relay_process::RelayProcess,
};
use relay_endpoints::devices::{DeviceChange, NewDevice};
use relay_protocol::{
    device::Role,
    id::{DeviceId, UserId},
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// After a close frame the TCP connection ends within this time, though the client does nothing.
const TCP_ENDS_WITHIN: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Expects this close, then the end of TCP, without a word from this side.
pub(super) async fn ends(socket: &mut RawSocket, code: u16, reason: &str) {
    assert_eq!(socket.closed(PATIENCE).await, Some((code, reason.to_owned())));
    assert_eq!(socket.read(TCP_ENDS_WITHIN).await, Received::End, "{code} {reason}");
}

/// Waits until the admin listener shows exactly these connections of the account.
async fn left(relay: &RelayProcess, user: UserId, expected: &[&Value]) {
    let mut expected: Vec<&str> = expected.iter().map(|answer| answer["connectionId"].as_str().unwrap()).collect();
    expected.sort_unstable();
    let mut shown = Vec::new();
    let emptied = timeout(TCP_ENDS_WITHIN, async {
        loop {
            shown = connections(relay, user).await.iter().map(|live| live["connectionId"].as_str().unwrap().to_owned()).collect();
            shown.sort_unstable();
            if shown == expected {
                return;
            }
            sleep(POLL_INTERVAL).await;
        }
    });
    assert!(emptied.await.is_ok(), "shown: {shown:?}, expected: {expected:?}");
}

/// Opens and registers a desktop of the account.
pub(super) async fn desktop(account: &Account, index: usize) -> (RawSocket, Value) {
    let mut socket = open_desktop(account).await;
    let answer = accepted(&mut socket, &naming(account.desktops[index], json!({})), "registered").await;
    (socket, answer)
}

/// Opens and registers a phone of the account, bound to one of its desktops.
pub(super) async fn phone(account: &Account, index: usize, target: usize) -> (RawSocket, Value) {
    let mut socket = open_phone(account, Some(account.desktops[target])).await;
    let answer = accepted(&mut socket, &naming(account.phones[index], json!({})), "registered").await;
    (socket, answer)
}

/// The next status that a phone is told must be this one.
pub(super) async fn told(phone: &mut RawSocket, device: DeviceId, status: &str, reason: &str) -> u64 {
    let event = next_status(phone).await;
    assert_eq!((&event["deviceId"], &event["status"], &event["reason"]), (&json!(device), &json!(status), &json!(reason)), "{event}");
    event["revision"].as_u64().unwrap()
}

/// Pings until the relay closes: code and reason.
async fn pings_until_closed(socket: &mut RawSocket, kind: &str, payload: &Value, answer: &str) -> (u16, String) {
    let mut pace = interval(Duration::from_millis(50));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pace.tick().await;
        send(socket, kind, payload).await;
        let received = socket.read(PATIENCE).await;
        if let Some(close) = received.close() {
            return close;
        }
        assert!(received.text().is_some_and(|text| text.contains(answer)), "{received:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_does_not_register_is_closed_whatever_else_it_does() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let relay = RelayProcess::start(&["--register-timeout", "1s"]).await;
    let account = Account::new(&relay, 1, 0).await;
    let started = Instant::now();
    let (mut idle, mut pinging, mut failing) = (open_desktop(&account).await, open_desktop(&account).await, open_desktop(&account).await);
    let (mut registered, answer) = desktop(&account, 0).await;
    let close = (4001, "registrationTimeout".to_owned());
    tokio::join!(
        async {
            ends(&mut idle, close.0, &close.1).await;
            assert!(started.elapsed() >= TIMEOUT, "not early");
        },
        async {
            assert_eq!(pings_until_closed(&mut pinging, "ping", &json!({}), "pong").await, close);
            assert!(started.elapsed() >= TIMEOUT, "not early");
            assert_eq!(pinging.read(TCP_ENDS_WITHIN).await, Received::End);
        },
        async {
            let wrong = naming("no-uuid", json!({}));
            assert_eq!(pings_until_closed(&mut failing, "register", &wrong, "invalidDeviceId").await, close);
            assert!(started.elapsed() >= TIMEOUT, "not early");
            assert_eq!(failing.read(TCP_ENDS_WITHIN).await, Received::End);
        },
    );
    answers(&mut registered).await;
    left(&relay, account.user, &[&answer]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_older_socket_of_a_route_is_replaced_and_nobody_sees_a_gap() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 2).await;
    let (mut watcher, watching) = phone(&account, 1, 1).await;
    let (mut old, _) = desktop(&account, 0).await;
    let first = told(&mut watcher, account.desktops[0], "online", "registered").await;
    let (mut new, answer) = desktop(&account, 0).await;
    ends(&mut old, 4002, "replaced").await;
    assert!(told(&mut watcher, account.desktops[0], "online", "registered").await > first);
    left(&relay, account.user, &[&watching, &answer]).await;

    // A phone's two routes do not replace each other; each is replaced by its own.
    let (mut to_first, _) = phone(&account, 0, 0).await;
    let (mut to_second, second) = phone(&account, 0, 1).await;
    answers(&mut to_first).await;
    let (mut to_first_again, again) = phone(&account, 0, 0).await;
    ends(&mut to_first, 4002, "replaced").await;
    left(&relay, account.user, &[&watching, &answer, &second, &again]).await;
    for socket in [&mut new, &mut to_second, &mut to_first_again] {
        answers(socket).await;
    }
    // The next that the watcher hears is about a real end: the replaced sockets' ends told it nothing.
    new.frame(&Frame::close(1000, "")).await;
    told(&mut watcher, account.desktops[0], "reconnecting", "socketClosed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_socket_is_closed_and_one_that_answers_pings_or_sends_any_byte_stays() {
    const SILENCE: Duration = Duration::from_secs(1);
    let relay = RelayProcess::start(&["--heartbeat-interval", "200ms", "--silence-timeout", "1s"]).await;
    let account = Account::new(&relay, 2, 2).await;
    let (mut watcher, watching) = phone(&account, 1, 1).await;
    let started = Instant::now();
    let (mut silent, before) = desktop(&account, 0).await;
    told(&mut watcher, account.desktops[0], "online", "registered").await;
    let (mut dribbling, dribbled) = phone(&account, 0, 0).await;
    let stays_until = started + 3 * SILENCE;
    tokio::join!(
        async {
            ends(&mut silent, 4004, "silent").await;
            assert!(started.elapsed() >= SILENCE, "not early");
        },
        async {
            // Reading answers the pings.
            told(&mut watcher, account.desktops[0], "reconnecting", "silent").await;
            while Instant::now() < stays_until {
                let received = watcher.read(PATIENCE).await;
                let Received::Frame { opcode: opcode::PING, payload, .. } = &received else { panic!("{received:?}") };
                watcher.frame(&Frame::new(opcode::PONG, payload.clone())).await;
            }
        },
        async {
            // One byte at a time of a message that is not whole when silence has passed three times.
            let mut pace = interval(SILENCE / 5);
            for byte in Frame::text(r#"{"type":"ping","payload":{}}"#).encode() {
                if Instant::now() < stays_until {
                    pace.tick().await;
                }
                dribbling.write(&[byte]).await;
            }
            assert_eq!(next_answer(&mut dribbling).await, ("pong".to_owned(), json!({})));
        },
    );
    answers(&mut watcher).await;
    left(&relay, account.user, &[&watching, &dribbled]).await;
    let mut again = open_desktop(&account).await;
    accepted(&mut again, &naming(account.desktops[0], resume_of(&before)), "resumed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binary_message_ends_the_socket_and_a_client_may_resume() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let ping = r#"{"type":"ping","payload":{}}"#;
    let first_fragment = Frame { fin: false, ..Frame::new(opcode::BINARY, ping) };
    for frame in [Frame::new(opcode::BINARY, ping), Frame::new(opcode::BINARY, ""), first_fragment] {
        let mut unregistered = open_desktop(&account).await;
        unregistered.frame(&frame).await;
        ends(&mut unregistered, 1003, "binary").await;
        let (mut registered, answer) = desktop(&account, 0).await;
        registered.frame(&frame).await;
        ends(&mut registered, 1003, "binary").await;
        left(&relay, account.user, &[]).await;
        let mut again = open_desktop(&account).await;
        accepted(&mut again, &naming(account.desktops[0], resume_of(&answer)), "resumed").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forgetting_a_device_closes_its_sockets_and_ends_its_sessions() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 2).await;
    let (mut watcher, watching) = phone(&account, 1, 1).await;
    let (mut socket, answer) = desktop(&account, 0).await;
    told(&mut watcher, account.desktops[0], "online", "registered").await;
    let (mut to_first, _) = phone(&account, 0, 0).await;
    let (mut to_second, phones_session) = phone(&account, 0, 1).await;

    account.devices().forget(account.desktops[0]).await.unwrap();
    ends(&mut socket, 1008, "deviceForgotten").await;
    told(&mut watcher, account.desktops[0], "disconnected", "deviceForgotten").await;
    account.devices().forget(account.phones[0]).await.unwrap();
    ends(&mut to_first, 1008, "deviceForgotten").await;
    ends(&mut to_second, 1008, "deviceForgotten").await;
    left(&relay, account.user, &[&watching]).await;

    let mut desktop_again = open_desktop(&account).await;
    let mut phone_again = open_phone(&account, Some(account.desktops[1])).await;
    let resume_desktop = naming(account.desktops[0], resume_of(&answer));
    let resume_phone = naming(account.phones[0], resume_of(&phones_session));
    refused(&mut desktop_again, &resume_desktop, "deviceNotFound", false).await;
    refused(&mut phone_again, &resume_phone, "deviceNotFound", false).await;
    for (device_id, role) in [(account.desktops[0], Role::Desktop), (account.phones[0], Role::Mobile)] {
        let device_name = "back".to_owned();
        let (platform, app_version) = ("linux".to_owned(), "1.0.0".to_owned());
        let device = NewDevice { device_id: Some(device_id), role, device_name, platform, app_version, relay_eligible: None };
        account.devices().register(&device).await.unwrap();
    }
    refused(&mut desktop_again, &resume_desktop, "invalidResume", false).await;
    refused(&mut phone_again, &resume_phone, "invalidResume", false).await;
    accepted(&mut desktop_again, &naming(account.desktops[0], json!({})), "registered").await;
    told(&mut watcher, account.desktops[0], "online", "registered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_no_longer_eligible_loses_sockets_and_sessions() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 1).await;
    let (mut watcher, watching) = phone(&account, 0, 1).await;
    let (mut socket, answer) = desktop(&account, 0).await;
    told(&mut watcher, account.desktops[0], "online", "registered").await;
    let change = async |change: DeviceChange| account.devices().change(account.desktops[0], &change).await.unwrap();

    change(DeviceChange { device_name: Some("renamed".to_owned()), relay_eligible: Some(true) }).await;
    answers(&mut socket).await;
    change(DeviceChange { relay_eligible: Some(false), ..DeviceChange::default() }).await;
    ends(&mut socket, 1008, "notEligible").await;
    told(&mut watcher, account.desktops[0], "disconnected", "notEligible").await;
    left(&relay, account.user, &[&watching]).await;

    let mut again = open_desktop(&account).await;
    let resume = naming(account.desktops[0], resume_of(&answer));
    refused(&mut again, &resume, "deviceNotEligible", false).await;
    change(DeviceChange { relay_eligible: Some(true), ..DeviceChange::default() }).await;
    refused(&mut again, &resume, "invalidResume", false).await;
    accepted(&mut again, &naming(account.desktops[0], json!({})), "registered").await;
    told(&mut watcher, account.desktops[0], "online", "registered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clients_own_close_is_answered_with_its_code() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 1).await;
    let (mut watcher, watching) = phone(&account, 0, 1).await;
    let empty = Frame::new(opcode::CLOSE, "");
    for (close, code) in [
        (Frame::close(1000, "bye"), 1000),
        (Frame::close(1001, ""), 1001),
        (Frame::close(3001, "x"), 3001),
        (Frame::close(4999, ""), 4999),
        (empty, 1005),
    ] {
        let (mut socket, answer) = desktop(&account, 0).await;
        told(&mut watcher, account.desktops[0], "online", "registered").await;
        socket.frame(&close).await;
        ends(&mut socket, code, "").await;
        told(&mut watcher, account.desktops[0], "reconnecting", "socketClosed").await;
        left(&relay, account.user, &[&watching]).await;
        let mut again = open_desktop(&account).await;
        accepted(&mut again, &naming(account.desktops[0], resume_of(&answer)), "resumed").await;
        told(&mut watcher, account.desktops[0], "online", "registered").await;
        again.reset();
        told(&mut watcher, account.desktops[0], "reconnecting", "socketClosed").await;
    }
    let mut unregistered = open_desktop(&account).await;
    unregistered.frame(&Frame::close(1000, "")).await;
    ends(&mut unregistered, 1000, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_a_clients_close_frame_is_ignored() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 0).await;
    let (mut registered, answer) = desktop(&account, 0).await;
    let mut leaving = open_desktop(&account).await;
    let register = json!({"type": "register", "payload": naming(account.desktops[0], json!({}))});
    let frames = [Frame::close(1000, ""), Frame::text(&register.to_string()), Frame::new(opcode::BINARY, "x"), Frame::close(1001, "")];
    leaving.write(&frames.iter().flat_map(Frame::encode).collect::<Vec<u8>>()).await;
    assert_eq!(leaving.read(PATIENCE).await.close(), Some((1000, String::new())), "the first frame that comes");
    assert!(matches!(leaving.read(TCP_ENDS_WITHIN).await, Received::End | Received::Reset), "and the last");
    answers(&mut registered).await;
    left(&relay, account.user, &[&answer]).await;
}
