//! Registration over real sockets: every row of the error table, in its order, and the answer of one that succeeds.
//!
//! A registration that fails leaves the socket as it was, so most tests ask again and again on one socket, and end by registering.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod every_error;
mod frames;
mod resume;
mod resume_after_close;
mod visibility;

use crate::support::{
    account::Account,
    data_dir::Sql,
    raw_socket::{RawOptions, RawSocket},
    relay_process::RelayProcess,
    wire,
};
use relay_actors::clock::EpochMs;
use relay_endpoints::devices::DeviceChange;
use relay_protocol::{
    device::Role,
    id::{DeviceId, UserId},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fmt::Display};
use uuid::Uuid;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// How far two readings of one machine's clock may be apart when the test is slow.
const CLOCK_TOLERANCE_MS: i64 = 60_000;

/// How a socket of this account is opened.
pub(super) fn options(account: &Account, role: Role, target: Option<DeviceId>) -> RawOptions {
    RawOptions::device_link(&account.address, &account.token, role, target)
}

pub(super) async fn open_desktop(account: &Account) -> RawSocket {
    RawSocket::open(&options(account, Role::Desktop, None)).await
}

pub(super) async fn open_phone(account: &Account, target: Option<DeviceId>) -> RawSocket {
    RawSocket::open(&options(account, Role::Mobile, target)).await
}

/// Payload of a `register` that names the device, an accepted version, and what else is given.
pub(super) fn naming(device: impl Display, more: Value) -> Value {
    let mut payload = json!({"deviceId": device.to_string(), "relayProtocolVersion": "1.7"});
    payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    payload
}

pub(super) async fn send(socket: &mut RawSocket, kind: &str, payload: &Value) {
    socket.text(&json!({"type": kind, "payload": payload}).to_string()).await;
}

/// The next frame that is not an event: its type and payload.
pub(super) async fn next_answer(socket: &mut RawSocket) -> (String, Value) {
    loop {
        let mut frame: Value = serde_json::from_str(&socket.next_text().await).unwrap();
        let kind = frame["type"].as_str().unwrap().to_owned();
        if kind != "event" {
            return (kind, frame["payload"].take());
        }
    }
}

/// The payload of the next event.
pub(super) async fn next_status(socket: &mut RawSocket) -> Value {
    loop {
        let mut frame: Value = serde_json::from_str(&socket.next_text().await).unwrap();
        if frame["type"] == "event" && frame["payload"]["eventType"] == "device-status" {
            return frame["payload"]["payload"].take();
        }
    }
}

/// The next answer, which must be an error frame: its code and `retryable`.
pub(super) async fn next_error(socket: &mut RawSocket) -> (String, bool) {
    let (kind, payload) = next_answer(socket).await;
    assert_eq!((kind.as_str(), keys(&payload)), ("error", BTreeSet::from(["code", "message", "retryable"])), "{payload}");
    assert!(payload["message"].as_str().is_some_and(|message| !message.is_empty()), "{payload}");
    (payload["code"].as_str().unwrap().to_owned(), payload["retryable"].as_bool().unwrap())
}

/// What a client stores of its answer, as it goes into the next `register`.
pub(super) fn resume_of(answer: &Value) -> Value {
    json!({"sessionId": answer["sessionId"], "resumeToken": answer["resumeToken"]})
}

/// Sends a `register` and expects this error.
pub(super) async fn refused(socket: &mut RawSocket, payload: &Value, code: &str, retryable: bool) {
    send(socket, "register", payload).await;
    assert_eq!(next_error(socket).await, (code.to_owned(), retryable), "{payload}");
}

/// Sends a `register` and expects this answer; gives its payload.
pub(super) async fn accepted(socket: &mut RawSocket, payload: &Value, kind: &str) -> Value {
    send(socket, "register", payload).await;
    let (answered, answer) = next_answer(socket).await;
    assert_eq!(answered, kind, "{payload}: {answer}");
    answer
}

/// The socket still answers, and nothing else was on its way to it.
pub(super) async fn answers(socket: &mut RawSocket) {
    send(socket, "ping", &json!({})).await;
    assert_eq!(next_answer(socket).await, ("pong".to_owned(), json!({})));
}

/// What the admin listener shows of this account.
pub(super) async fn connections(relay: &RelayProcess, user: UserId) -> Vec<Value> {
    wire::connections(relay, Some(user)).await
}

fn keys(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

async fn add_rule(database: &Sql, minimum: &str) {
    let columns = "kind, client, minimum_relay_protocol_version, created_at";
    database.run(&format!("INSERT INTO compatibility_rules ({columns}) VALUES ('minimum', 'mobile', '{minimum}', 0)")).await;
}

async fn set_eligible(account: &Account, device: DeviceId, eligible: bool) {
    let change = DeviceChange { relay_eligible: Some(eligible), ..DeviceChange::default() };
    account.devices().change(device, &change).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_register_of_the_wrong_shape_is_invalid_before_anything_else_is_looked_at() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 0).await;
    let mut socket = open_desktop(&account).await;
    let desktop = account.desktops[0];
    for payload in [
        json!({}),
        json!([]),
        json!(null),
        json!("register"),
        json!({"deviceId": null, "relayProtocolVersion": "no version"}),
        json!({"deviceId": 7, "relayProtocolVersion": "no version"}),
        naming(desktop, json!({"userId": account.user})),
        naming(desktop, json!({"DeviceId": desktop})),
        naming(desktop, json!({"relayProtocolVersion": 1.7})),
        naming(desktop, json!({"deviceName": ["desk"]})),
        naming(desktop, json!({"sessionId": 1, "resumeToken": "t"})),
        naming(desktop, json!({"sessionId": Uuid::new_v4(), "resumeToken": {}})),
        naming(desktop, json!({"targetDesktopDeviceId": false})),
    ] {
        refused(&mut socket, &payload, "invalidPayload", false).await;
    }
    for text in [
        format!(r#"{{"type":"register","payload":{{"deviceId":"{desktop}","deviceId":"{desktop}","relayProtocolVersion":"1.7"}}}}"#),
        format!(r#"{{"type":"register","payload":{{"deviceId":"{desktop}","device\u0049d":"{desktop}","relayProtocolVersion":"1.7"}}}}"#),
        format!(r#"{{"type":"register","payload":{{"deviceId":"{desktop}","deviceName":"\ud800","relayProtocolVersion":"1.7"}}}}"#),
        r#"{"type":"register"}"#.to_owned(),
    ] {
        socket.text(&text).await;
        assert_eq!(next_error(&mut socket).await, ("invalidPayload".to_owned(), false), "{text}");
    }
    accepted(&mut socket, &naming(desktop, json!({"deviceName": null})), "registered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_does_not_parse_comes_before_unreadable_rules_and_they_before_an_old_version() {
    let relay = RelayProcess::start(&["--policy-cache", "0s"]).await;
    let account = Account::new(&relay, 1, 0).await;
    let mut socket = open_desktop(&account).await;
    let database = relay.data_dir().sql().await;
    let register = naming(account.desktops[0], json!({}));
    let version = |version: &str| naming("no-uuid", json!({"relayProtocolVersion": version}));

    for break_and_mend in [
        [
            "INSERT INTO compatibility_rules (kind, client, minimum_relay_protocol_version, created_at) VALUES ('minimum', 'desktop', '1.x', 0)",
            "DELETE FROM compatibility_rules",
        ],
        ["ALTER TABLE compatibility_rules RENAME TO elsewhere", "ALTER TABLE elsewhere RENAME TO compatibility_rules"],
        // With no storage at all, the rules come first.
        [
            "ALTER TABLE compatibility_rules RENAME TO elsewhere; ALTER TABLE devices RENAME TO devices_elsewhere",
            "ALTER TABLE elsewhere RENAME TO compatibility_rules; ALTER TABLE devices_elsewhere RENAME TO devices",
        ],
    ] {
        let [away, back] = break_and_mend;
        database.run(away).await;
        for text in ["", "1.", "1..7", "v1.7", "1.7-beta", "+1.7", " 1.7", "1,7", "4294967296"] {
            refused(&mut socket, &version(text), "invalidRelayProtocolVersion", false).await;
        }
        refused(&mut socket, &version("1.0"), "relayProtocolPolicyUnavailable", true).await;
        refused(&mut socket, &register, "relayProtocolPolicyUnavailable", true).await;
        database.run(back).await;
        refused(&mut socket, &version("1.0"), "protocolUpdateRequired", false).await;
    }
    accepted(&mut socket, &register, "registered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_used_for_as_long_as_they_are_cached() {
    let relay = RelayProcess::start(&["--policy-cache", "1h"]).await;
    let account = Account::new(&relay, 1, 0).await;
    let mut socket = open_desktop(&account).await;
    let database = relay.data_dir().sql().await;
    refused(&mut socket, &naming("no-uuid", json!({})), "invalidDeviceId", false).await;
    database.run("DROP TABLE compatibility_rules").await;
    accepted(&mut socket, &naming(account.desktops[0], json!({})), "registered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_below_the_required_one_asks_for_an_update() {
    let relay = RelayProcess::start(&["--policy-cache", "0s"]).await;
    let account = Account::new(&relay, 1, 0).await;
    let mut socket = open_desktop(&account).await;
    let database = relay.data_dir().sql().await;
    let version = |version: Value| json!({"deviceId": "no-uuid", "relayProtocolVersion": version});
    let too_old = ("protocolUpdateRequired", false);
    let new_enough = ("invalidDeviceId", false);
    let mut judge = async |rule: Option<&str>, given: Value, (code, retryable): (&str, bool)| {
        if let Some(rule) = rule {
            add_rule(&database, rule).await;
        }
        refused(&mut socket, &version(given), code, retryable).await;
    };
    refused(&mut open_desktop(&account).await, &json!({"deviceId": "no-uuid"}), too_old.0, too_old.1).await;
    for given in [json!(null), json!("1.6.9"), json!("1"), json!("0.99"), json!("1.6.4294967295")] {
        judge(None, given, too_old).await;
    }
    for given in ["1.7", "1.7.0", "1.7.1", "1.10", "01.07", "2"] {
        judge(None, json!(given), new_enough).await;
    }
    // A rule below 1.7 demands nothing, and one above it counts whatever the others say.
    judge(Some("1.2"), json!("1.6.9"), too_old).await;
    judge(Some("1.10"), json!("1.9"), too_old).await;
    judge(Some("1.8"), json!("1.9.9"), too_old).await;
    judge(None, json!("1.10"), new_enough).await;
    judge(None, json!("1.11"), new_enough).await;

    send(&mut socket, "register", &version(json!("1.9"))).await;
    let (_, error) = next_answer(&mut socket).await;
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("update the app") && message.contains("1.10"), "the text that users see: {message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_and_targets_are_judged_before_storage_is_asked_and_what_it_says_in_its_order() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 2).await;
    let stranger = Account::new(&relay, 1, 1).await;
    let [desktop, other_desktop] = account.desktops[..] else { panic!("two desktops") };
    let [phone, resting_phone] = account.phones[..] else { panic!("two phones") };
    let unknown = DeviceId(Uuid::new_v4());
    let database = relay.data_dir().sql().await;
    let bogus_resume = json!({"sessionId": Uuid::new_v4(), "resumeToken": "bogus"});
    let mut without_target = open_phone(&account, None).await;
    let mut socket = open_phone(&account, Some(desktop)).await;
    let targeting = |device: DeviceId, target: &str| naming(device, json!({"targetDesktopDeviceId": target}));

    database.run("ALTER TABLE devices RENAME TO elsewhere").await;
    for text in ["", "no-uuid", "0f8fad5b-d9cb-469f-a165-7086772895", "0f8fad5b-d9cb-469f-a165-70867728950g"] {
        refused(&mut without_target, &naming(text, json!({})), "invalidDeviceId", false).await;
    }
    refused(&mut without_target, &naming(phone, json!({})), "missingTargetDesktop", false).await;
    refused(&mut without_target, &naming(phone, json!({"targetDesktopDeviceId": null})), "missingTargetDesktop", false).await;
    refused(&mut without_target, &targeting(phone, "no-uuid"), "invalidTargetDesktop", false).await;
    refused(&mut socket, &targeting(phone, &other_desktop.to_string()), "invalidTargetDesktop", false).await;
    refused(&mut socket, &targeting(phone, ""), "invalidTargetDesktop", false).await;
    refused(&mut socket, &naming(unknown, json!({})), "deviceLookupUnavailable", true).await;
    refused(&mut socket, &targeting(phone, &desktop.to_string()), "deviceLookupUnavailable", true).await;
    database.run("ALTER TABLE elsewhere RENAME TO devices").await;

    // Each device below is also wrong in every way that is judged later.
    let mut astray = open_phone(&account, Some(unknown)).await;
    set_eligible(&account, resting_phone, false).await;
    set_eligible(&account, other_desktop, false).await;
    refused(&mut astray, &naming(unknown, bogus_resume.clone()), "deviceNotFound", false).await;
    refused(&mut astray, &naming(stranger.desktops[0], bogus_resume.clone()), "deviceOwnershipFailed", false).await;
    refused(&mut astray, &naming(other_desktop, bogus_resume.clone()), "deviceRoleMismatch", false).await;
    refused(&mut astray, &naming(resting_phone, bogus_resume.clone()), "deviceNotEligible", false).await;
    refused(&mut astray, &naming(phone, bogus_resume.clone()), "invalidTargetDesktop", false).await;
    refused(&mut socket, &naming(phone, bogus_resume), "invalidResume", false).await;
    refused(&mut open_desktop(&account).await, &naming(phone, json!({})), "deviceRoleMismatch", false).await;
    refused(&mut open_desktop(&account).await, &naming(other_desktop, json!({})), "deviceNotEligible", false).await;

    let registered = accepted(&mut socket, &naming(phone, json!({})), "registered").await;
    assert_eq!(registered["target"]["deviceId"], json!(desktop), "after every failure, on the same socket");
    accepted(&mut without_target, &targeting(phone, &other_desktop.to_string()), "registered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_device_is_not_found_and_a_target_is_a_desktop_of_the_same_account() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 2, 2).await;
    let stranger = Account::new(&relay, 1, 0).await;
    let [desktop, forgotten_desktop] = account.desktops[..] else { panic!("two desktops") };
    let [phone, forgotten_phone] = account.phones[..] else { panic!("two phones") };
    account.devices().forget(forgotten_desktop).await.unwrap();
    account.devices().forget(forgotten_phone).await.unwrap();
    let mut socket = open_phone(&account, None).await;
    let targeting = |device: DeviceId, target: DeviceId| naming(device, json!({"targetDesktopDeviceId": target}));
    refused(&mut socket, &targeting(forgotten_phone, desktop), "deviceNotFound", false).await;
    refused(&mut open_desktop(&account).await, &naming(forgotten_desktop, json!({})), "deviceNotFound", false).await;
    for target in [stranger.desktops[0], phone, forgotten_desktop, DeviceId(Uuid::new_v4())] {
        refused(&mut socket, &targeting(phone, target), "invalidTargetDesktop", false).await;
    }
    accepted(&mut socket, &targeting(phone, desktop), "registered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_in_upper_case_are_the_same_ids() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 1).await;
    let upper = |id: DeviceId| id.to_string().to_uppercase();
    let (desktop, phone) = (account.desktops[0], account.phones[0]);
    let mut desktop_socket = open_desktop(&account).await;
    accepted(&mut desktop_socket, &naming(upper(desktop), json!({})), "registered").await;
    let mut with_header = options(&account, Role::Mobile, None);
    with_header.headers.push(("X-Target-Desktop-Device-ID".to_owned(), upper(desktop)));
    let mut phone_socket = RawSocket::open(&with_header).await;
    let register = naming(upper(phone), json!({"targetDesktopDeviceId": desktop}));
    let registered = accepted(&mut phone_socket, &register, "registered").await;
    assert_eq!(registered["target"]["deviceId"], json!(desktop));
    let routes: BTreeSet<String> = connections(&relay, account.user).await.iter().map(|live| live["route"].to_string()).collect();
    assert_eq!(routes, BTreeSet::from([format!("\"{desktop}\""), format!("\"{phone}::{desktop}\"")]), "lower case inside");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_says_all_that_a_client_needs() {
    let relay = RelayProcess::start(&[]).await;
    let account = Account::new(&relay, 1, 2).await;
    let desktop = account.desktops[0];
    let mut early_phone = open_phone(&account, Some(desktop)).await;
    let before = EpochMs::now().0;
    let early = accepted(&mut early_phone, &naming(account.phones[0], json!({})), "registered").await;
    let status = &early["target"];
    assert_eq!((&status["status"], &status["reason"]), (&json!("disconnected"), &json!("graceElapsed")), "never seen: {status}");

    let mut desktop_socket = open_desktop(&account).await;
    let for_desktop = accepted(&mut desktop_socket, &naming(desktop, json!({})), "registered").await;
    let broadcast = next_status(&mut early_phone).await;
    let mut late_phone = open_phone(&account, Some(desktop)).await;
    let late = accepted(&mut late_phone, &naming(account.phones[1], json!({})), "registered").await;
    assert_eq!(late["target"], broadcast, "the payload that device-status had");
    assert_eq!(keys(&broadcast), BTreeSet::from(["at", "deviceId", "reason", "relayInstanceId", "revision", "status"]));
    assert_eq!((&broadcast["status"], &broadcast["reason"]), (&json!("online"), &json!("registered")));
    assert_eq!((&broadcast["deviceId"], &broadcast["relayInstanceId"]), (&json!(desktop), &json!(relay.ready().relay_instance_id)));
    assert!((broadcast["at"].as_i64().unwrap() - before).abs() < CLOCK_TOLERANCE_MS, "epoch milliseconds: {broadcast}");
    assert!(broadcast["revision"].as_u64() > status["revision"].as_u64(), "it counts up: {status} {broadcast}");

    let common = ["connectionId", "expiresAt", "expiresInMs", "relayInstanceId", "relayProtocolVersion", "resumeToken", "sessionId"];
    let mut ids = BTreeSet::new();
    for (answer, is_phone) in [(&early, true), (&for_desktop, false), (&late, true)] {
        let expected: BTreeSet<&str> = common.into_iter().chain(is_phone.then_some("target")).collect();
        assert_eq!(keys(answer), expected);
        for id in ["sessionId", "connectionId"] {
            assert!(ids.insert(answer[id].as_str().unwrap().parse::<Uuid>().unwrap()), "each its own: {answer}");
        }
        assert!(answer["resumeToken"].as_str().unwrap().len() >= 43, "32 random bytes or more");
        assert_eq!(answer["expiresInMs"], json!(DAY_MS));
        assert!((answer["expiresAt"].as_i64().unwrap() - before - DAY_MS).abs() < CLOCK_TOLERANCE_MS, "{answer}");
        assert_eq!(answer["relayInstanceId"], json!(relay.ready().relay_instance_id));
        assert_eq!(answer["relayProtocolVersion"], json!(relay_protocol::contract::protocol_versions().0));
    }
    let tokens = BTreeSet::from([&early, &for_desktop, &late].map(|answer| answer["resumeToken"].as_str().unwrap()));
    assert_eq!(tokens.len(), 3);
    let shown: BTreeSet<String> =
        connections(&relay, account.user).await.iter().map(|live| live["connectionId"].as_str().unwrap().to_owned()).collect();
    let told = [&early, &for_desktop, &late].map(|answer| answer["connectionId"].as_str().unwrap().to_owned());
    assert_eq!(shown, BTreeSet::from(told));
}
