//! C89: whether a session may be resumed depends on how the connection before ended, as the table of closes in the protocol page says.

use super::{accepted, naming, next_answer, open_desktop, open_phone, refused, resume_of, send};
use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{Frame, RawSocket, opcode},
    relay_process::RelayProcess,
    wire::{KIB, connection_of, eventually, request_of},
};
use relay_endpoints::devices::{DeviceChange, NewDevice};
use relay_protocol::{close::CloseReason, device::Role, id::DeviceId};
use serde_json::{Value, json};

const ROLES: [Role; 2] = [Role::Desktop, Role::Mobile];

fn device(account: &Account, role: Role) -> DeviceId {
    match role {
        Role::Desktop => account.desktops[0],
        Role::Mobile => account.phones[0],
    }
}

async fn open(account: &Account, role: Role) -> RawSocket {
    match role {
        Role::Desktop => open_desktop(account).await,
        Role::Mobile => open_phone(account, Some(account.desktops[0])).await,
    }
}

async fn register(account: &Account, role: Role, more: Value, kind: &str) -> (RawSocket, Value) {
    let mut socket = open(account, role).await;
    let answer = accepted(&mut socket, &naming(device(account, role), more), kind).await;
    (socket, answer)
}

/// The session goes on for whoever has its token, also after somebody tried without.
async fn resumes(account: &Account, role: Role, before: &Value, why: &str) {
    let mut socket = open(account, role).await;
    let wrong = json!({"sessionId": before["sessionId"], "resumeToken": "wrong"});
    refused(&mut socket, &naming(device(account, role), wrong), "invalidResume", false).await;
    let after = accepted(&mut socket, &naming(device(account, role), resume_of(before)), "resumed").await;
    assert_eq!(resume_of(&after), resume_of(before), "{why}");
}

/// The session is gone, however often it is tried; the error says to begin anew, and that works on the same socket.
async fn starts_anew(account: &Account, role: Role, before: &Value, why: &str) {
    let mut socket = open(account, role).await;
    let named = device(account, role);
    for _ in 0..2 {
        send(&mut socket, "register", &naming(named, resume_of(before))).await;
        let (kind, error) = next_answer(&mut socket).await;
        assert_eq!((kind.as_str(), &error["code"], &error["retryable"]), ("error", &json!("invalidResume"), &json!(false)), "{why}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("register without sessionId and resumeToken"), "{why}: {message}");
    }
    let after = accepted(&mut socket, &naming(named, json!({})), "registered").await;
    assert_ne!(after["sessionId"], before["sessionId"], "{why}");
}

fn close(reason: CloseReason) -> Option<(u16, String)> {
    Some((reason.code(), reason.text().to_owned()))
}

/// Each reason has its case in this file, or a reason why not.
#[test]
fn every_close_reason_has_a_case() {
    for reason in CloseReason::ALL {
        let (resumable, told_by) = match reason {
            CloseReason::ProtocolViolation
            | CloseReason::Binary
            | CloseReason::NotUtf8
            | CloseReason::TooLarge
            | CloseReason::Replaced
            | CloseReason::RegistrationTimeout
            | CloseReason::Silent
            | CloseReason::Saturated => (true, "below"),
            CloseReason::DeviceForgotten | CloseReason::NotEligible => (false, "below"),
            CloseReason::RelayDraining => (true, "below: the new process does not know the session"),
            CloseReason::ClosedByOperator => (true, "the tests of the admin calls"),
            CloseReason::LoggedOut | CloseReason::Revoked => (false, "the tests of logout and of API keys"),
            CloseReason::UnfinishedMessage => (true, "the router's own test: it takes half a minute to provoke"),
            CloseReason::RouterFailed => (true, "no input makes a router fail"),
        };
        assert_eq!(reason.allows_resume(), resumable, "{reason:?}: {told_by}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_of_the_client_or_of_the_network_leaves_the_session() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let faults = [
        (Frame::close(1000, ""), Some((1000, String::new()))),
        (Frame { mask: None, ..Frame::text("{}") }, close(CloseReason::ProtocolViolation)),
        (Frame::new(opcode::BINARY, "x"), close(CloseReason::Binary)),
        (Frame::new(opcode::TEXT, [0xff]), close(CloseReason::NotUtf8)),
        (Frame::header_only(opcode::TEXT, 64 << 20), close(CloseReason::TooLarge)),
    ];
    for role in ROLES {
        for (fault, expected) in &faults {
            let (mut socket, before) = register(&account, role, json!({}), "registered").await;
            socket.frame(fault).await;
            assert_eq!(socket.closed(PATIENCE).await, *expected);
            resumes(&account, role, &before, &format!("{role} {expected:?}")).await;
        }
        let (socket, before) = register(&account, role, json!({}), "registered").await;
        socket.reset();
        resumes(&account, role, &before, "a cut").await;

        let (mut socket, before) = register(&account, role, json!({}), "registered").await;
        socket.finish_writing().await;
        socket.closed(PATIENCE).await;
        resumes(&account, role, &before, "a half-closed connection").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_by_the_session_itself_leaves_it_and_one_by_a_new_session_ends_it() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    for role in ROLES {
        let (mut first, before) = register(&account, role, json!({}), "registered").await;
        let (mut second, _) = register(&account, role, resume_of(&before), "resumed").await;
        assert_eq!(first.closed(PATIENCE).await, close(CloseReason::Replaced));
        resumes(&account, role, &before, "resumed elsewhere").await;
        assert_eq!(second.closed(PATIENCE).await, close(CloseReason::Replaced));

        let (mut old, before) = register(&account, role, json!({}), "registered").await;
        let (_new, _) = register(&account, role, json!({}), "registered").await;
        assert_eq!(old.closed(PATIENCE).await, close(CloseReason::Replaced));
        starts_anew(&account, role, &before, "one session per route").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_fails_to_register_in_time_burns_no_session() {
    let relay = RelayProcess::start(&["--register-timeout", "1s"]).await;
    let account = Account::new(&relay, 1, 1).await;
    for role in ROLES {
        let (socket, before) = register(&account, role, json!({}), "registered").await;
        socket.reset();
        let mut failing = open(&account, role).await;
        let wrong = json!({"sessionId": before["sessionId"], "resumeToken": "wrong"});
        refused(&mut failing, &naming(device(&account, role), wrong), "invalidResume", false).await;
        assert_eq!(failing.closed(PATIENCE).await, close(CloseReason::RegistrationTimeout));
        resumes(&account, role, &before, "another socket's timeout").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_over_its_rate_keeps_its_session() {
    let relay = RelayProcess::start(&["--rate-burst", "3", "--rate-per-second", "1"]).await;
    let account = Account::new(&relay, 1, 1).await;
    let (mut socket, before) = register(&account, Role::Mobile, json!({}), "registered").await;
    for _ in 0..10 {
        send(&mut socket, "ping", &json!({})).await;
    }
    socket.reset();
    resumes(&account, Role::Mobile, &before, "over the rate").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_client_may_come_back() {
    let relay = RelayProcess::start(&["--heartbeat-interval", "200ms", "--silence-timeout", "1s"]).await;
    let account = Account::new(&relay, 1, 1).await;
    for role in ROLES {
        let (mut socket, before) = register(&account, role, json!({}), "registered").await;
        assert_eq!(socket.closed(PATIENCE).await, close(CloseReason::Silent));
        resumes(&account, role, &before, "silence").await;
    }
}

/// It reads nothing, so it does not see the close either.
#[tokio::test(flavor = "multi_thread")]
async fn a_saturated_client_may_come_back() {
    const MESSAGE_BYTES: usize = 240 * KIB;
    let relay = RelayProcess::start(&["--max-message", "256KiB", "--outbound-limit", "1MiB"]).await;
    let account = Account::new(&relay, 1, 1).await;
    let (_frozen, before) = register(&account, Role::Desktop, json!({}), "registered").await;
    let (mut phone, _) = register(&account, Role::Mobile, json!({}), "registered").await;
    for index in 0..48 {
        phone.text(&request_of(&format!("open-{index}"), MESSAGE_BYTES)).await;
    }
    eventually("the desktop is retired", async || connection_of(&relay, account.user, account.desktops[0]).await.is_none()).await;
    resumes(&account, Role::Desktop, &before, "saturation").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_process_knows_no_session_however_the_old_one_ended() {
    for orderly in [true, false] {
        let mut relay = RelayProcess::start(&[]).await;
        let account = Account::new(&relay, 1, 1).await;
        let mut before = Vec::new();
        for role in ROLES {
            before.push(register(&account, role, json!({}), "registered").await);
        }
        if orderly {
            relay.signal("TERM");
            for (socket, _) in &mut before {
                assert_eq!(socket.closed(PATIENCE).await, close(CloseReason::RelayDraining));
            }
            assert!(relay.exited().await.success());
        } else {
            relay.kill();
        }
        let successor = RelayProcess::start_on(relay.data_dir(), &[]).await;
        let account = Account { address: successor.address(), ..account };
        for (role, (_, answer)) in ROLES.into_iter().zip(&before) {
            starts_anew(&account, role, answer, "a new process").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_was_forgotten_or_lost_its_eligibility_starts_anew() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    for role in ROLES {
        let id = device(&account, role);
        let eligible = async |relay_eligible: bool| {
            let change = DeviceChange { relay_eligible: Some(relay_eligible), ..DeviceChange::default() };
            account.devices().change(id, &change).await.unwrap();
        };
        let (mut socket, before) = register(&account, role, json!({}), "registered").await;
        eligible(false).await;
        assert_eq!(socket.closed(PATIENCE).await, close(CloseReason::NotEligible));
        eligible(true).await;
        starts_anew(&account, role, &before, "eligible again").await;

        let (mut socket, before) = register(&account, role, json!({}), "registered").await;
        account.devices().forget(id).await.unwrap();
        assert_eq!(socket.closed(PATIENCE).await, close(CloseReason::DeviceForgotten));
        let [device_name, platform, app_version] = ["back", "linux", "1"].map(str::to_owned);
        let back = NewDevice { device_id: Some(id), role, device_name, platform, app_version, relay_eligible: None };
        account.devices().register(&back).await.unwrap();
        starts_anew(&account, role, &before, "registered again").await;
    }
}
