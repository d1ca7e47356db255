//! C87: somebody with an account of their own who knows every id of another account. What they ask for is answered as if it did not
//! exist, in every form of the ids, and the other account sees nothing and loses nothing.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::support::{
    account::Account,
    raw_socket::{RawOptions, RawSocket},
    relay_process::RelayProcess,
    timeline::{interest, next_update, stream},
    wire::{next_of, payload_field, registered, request, response, round_trip},
};
use relay_protocol::{device::Role, id::DeviceId};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use uuid::Uuid;

type Form = fn(&str) -> String;

/// Ways to write an id: as it is, another spelling of the same, and what only looks like it.
const FORMS: [(&str, Form); 9] = [
    ("as it is", str::to_owned),
    ("upper case", str::to_uppercase),
    ("a blank behind it", |id| format!("{id} ")),
    ("a blank before it", |id| format!(" {id}")),
    ("a NUL behind it", |id| format!("{id}\0")),
    // Every random UUID has this digit.
    ("a full-width digit", |id| id.replacen('4', "\u{ff14}", 1)),
    ("a combining mark behind it", |id| format!("{id}\u{301}")),
    ("without hyphens", |id| id.replace('-', "")),
    ("as a URN", |id| format!("urn:uuid:{id}")),
];

/// The first forms of [`FORMS`] name the device; the others name nothing.
const FORMS_OF_THE_ID: usize = 2;

/// The other account's desktop and phone, connected, and the account that knows about them.
struct Case {
    relay: RelayProcess,
    owner: Account,
    stranger: Account,
    desktop: RawSocket,
    phone: RawSocket,
    /// The answer to the desktop's registration.
    session: Value,
    /// What the owner's list shows.
    list: Value,
}

impl Case {
    async fn start() -> Self {
        let relay = RelayProcess::start(&[]).await;
        let (owner, stranger) = (Account::new(&relay, 1, 1).await, Account::new(&relay, 1, 1).await);
        let mut desktop = RawSocket::open(&owner.raw_desktop()).await;
        let session = desktop.register(owner.desktops[0]).await;
        let mut phone = registered(&owner.raw_phone(), owner.phones[0]).await;
        round_trip(&mut phone, &mut desktop, "before").await;
        let list = listed(&owner).await;
        Case { relay, owner, stranger, desktop, phone, session, list }
    }

    /// The owner has noticed nothing, and has everything.
    async fn unharmed(&mut self) {
        // A frame, or an event, that came of what the stranger did would come first.
        let fence = request("fence", r#"{"n":1}"#);
        self.phone.text(&fence).await;
        let received = self.desktop.next_text().await;
        assert_eq!(payload_field(&received, "id"), "\"fence\"", "{received}");
        self.desktop.text(&response(&received, "1")).await;
        let answer = self.phone.next_text().await;
        assert_eq!((payload_field(&answer, "id"), payload_field(&answer, "result")), ("\"fence\"", "1"), "{answer}");
        assert_eq!(listed(&self.owner).await, self.list);
    }
}

async fn listed(account: &Account) -> Value {
    let (_, _, body) = call(account, Method::GET, "/api/devices", None).await;
    let mut list: Value = serde_json::from_str(&body).unwrap();
    // Statuses are stored a moment after they are told.
    for device in list["devices"].as_array_mut().unwrap() {
        for late in ["status", "statusAt", "updatedAt"] {
            device[late] = Value::Null;
        }
    }
    list
}

/// Status, headers but the date, and body of a call with this account's token.
async fn call(account: &Account, method: Method, path: &str, body: Option<&Value>) -> (StatusCode, BTreeSet<String>, String) {
    let client = Client::builder().no_proxy().build().unwrap();
    let mut request = client.request(method, account.address.http(path)).bearer_auth(&account.token);
    if let Some(body) = body {
        request = request.json(body);
    }
    let answer = request.send().await.unwrap();
    let headers = answer.headers().iter().filter(|(name, _)| *name != "date");
    // They come in any order.
    let headers = headers.map(|(name, value)| format!("{name}: {value:?}")).collect();
    (answer.status(), headers, answer.text().await.unwrap())
}

/// As it goes into a path.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn nobodys() -> String {
    Uuid::new_v4().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_on_another_accounts_device_are_answered_as_if_there_were_none() {
    let mut case = Case::start().await;
    let changes = [json!({"deviceName": "mine now"}), json!({"relayEligible": false}), json!({})];
    for id in [case.owner.desktops[0], case.owner.phones[0]].map(|id| id.to_string()) {
        for (name, form) in FORMS {
            let nobodys_id = nobodys();
            let [theirs, nobodys] = [&id, &nobodys_id].map(|id| format!("/api/devices/{}", escaped(&form(id))));
            let deletes =
                [call(&case.stranger, Method::DELETE, &theirs, None).await, call(&case.stranger, Method::DELETE, &nobodys, None).await];
            assert_eq!(deletes[0], deletes[1], "DELETE, {name}");
            assert!(deletes[0].0.is_client_error(), "{name}: {:?}", deletes[0]);
            let histories = [&theirs, &nobodys].map(|path| format!("{path}/presence"));
            let theirs_history = call(&case.stranger, Method::GET, &histories[0], None).await;
            assert_eq!(theirs_history, call(&case.stranger, Method::GET, &histories[1], None).await, "presence, {name}");
            assert!(theirs_history.0.is_client_error(), "{name}: {theirs_history:?}");
            let log_outs = [&id, &nobodys_id].map(|id| json!({"deviceId": form(id)}));
            let theirs_log_out = call(&case.stranger, Method::POST, "/api/auth/logout", Some(&log_outs[0])).await;
            assert_eq!(theirs_log_out, call(&case.stranger, Method::POST, "/api/auth/logout", Some(&log_outs[1])).await, "log-out, {name}");
            assert!(theirs_log_out.0.is_client_error(), "{name}: {theirs_log_out:?}");
            for change in &changes {
                let theirs = call(&case.stranger, Method::PATCH, &theirs, Some(change)).await;
                let nobodys = call(&case.stranger, Method::PATCH, &nobodys, Some(change)).await;
                assert_eq!(theirs, nobodys, "PATCH {change}, {name}");
                assert!(theirs.0.is_client_error(), "{name}: {theirs:?}");
            }
        }
    }
    let own = listed(&case.stranger).await;
    let shown: Vec<&Value> = own["devices"].as_array().unwrap().iter().map(|device| &device["deviceId"]).collect();
    assert_eq!(shown, [&json!(case.stranger.desktops[0]), &json!(case.stranger.phones[0])], "a list is of one's own");
    case.unharmed().await;
}

/// The one call that tells: an id that is taken cannot be had.
#[tokio::test(flavor = "multi_thread")]
async fn another_accounts_device_cannot_be_registered_in_any_form() {
    let mut case = Case::start().await;
    for (id, role) in [(case.owner.desktops[0], "desktop"), (case.owner.phones[0], "mobile"), (case.owner.desktops[0], "mobile")] {
        for (number, (name, form)) in FORMS.into_iter().enumerate() {
            let device = |id: &str| json!({"deviceId": form(id), "role": role, "deviceName": "mine", "platform": "x", "appVersion": "1"});
            let theirs = call(&case.stranger, Method::POST, "/api/devices", Some(&device(&id.to_string()))).await;
            if number < FORMS_OF_THE_ID {
                assert!(theirs.0 == StatusCode::CONFLICT && theirs.2.contains("\"deviceOwnershipFailed\""), "{name}: {theirs:?}");
            } else {
                let nobodys = call(&case.stranger, Method::POST, "/api/devices", Some(&device(&nobodys()))).await;
                assert_eq!(theirs, nobodys, "{name}");
                assert_eq!(theirs.0, StatusCode::BAD_REQUEST, "{name}: it is another id to nobody");
            }
        }
    }
    case.unharmed().await;
}

/// What a `register` of this account is told: the whole error frame.
async fn refusal(account: &Account, role: Role, target: Option<DeviceId>, payload: Value) -> Value {
    let mut socket = RawSocket::open(&RawOptions::device_link(&account.address, &account.token, role, target)).await;
    socket.text(&json!({"type": "register", "payload": payload}).to_string()).await;
    let answer: Value = serde_json::from_str(&socket.next_text().await).unwrap();
    assert_eq!(answer["type"], "error", "{answer}");
    answer["payload"].clone()
}

fn naming(device: impl ToString, more: &Value) -> Value {
    let mut payload = json!({"deviceId": device.to_string(), "relayProtocolVersion": "1.7"});
    payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    payload
}

#[tokio::test(flavor = "multi_thread")]
async fn another_accounts_ids_and_session_open_nothing() {
    let mut case = Case::start().await;
    let (owner, stranger) = (&case.owner, &case.stranger);
    let (own_desktop, own_phone) = (stranger.desktops[0], stranger.phones[0]);
    let none = json!({});
    for (number, (name, form)) in FORMS.into_iter().enumerate() {
        // As a device of theirs.
        let code = if number < FORMS_OF_THE_ID { "deviceOwnershipFailed" } else { "invalidDeviceId" };
        let (desktop, phone) = (form(&owner.desktops[0].to_string()), form(&owner.phones[0].to_string()));
        assert_eq!(refusal(stranger, Role::Desktop, None, naming(&desktop, &none)).await["code"], code, "{name}");
        assert_eq!(refusal(stranger, Role::Mobile, Some(own_desktop), naming(&phone, &none)).await["code"], code, "{name}");
        // As the target of a phone.
        let target = |id: &str| naming(own_phone, &json!({"targetDesktopDeviceId": form(id)}));
        let theirs = refusal(stranger, Role::Mobile, None, target(&owner.desktops[0].to_string())).await;
        assert_eq!(theirs, refusal(stranger, Role::Mobile, None, target(&nobodys())).await, "{name}");
        assert_eq!(theirs["code"], "invalidTargetDesktop", "{name}");
    }
    let by_header = refusal(stranger, Role::Mobile, Some(owner.desktops[0]), naming(own_phone, &none)).await;
    assert_eq!(by_header["code"], "invalidTargetDesktop");
    // A session, with its right token, and one that does not exist.
    let token = case.session["resumeToken"].clone();
    let session = |id: &Value| json!({"sessionId": id, "resumeToken": token});
    let theirs = refusal(stranger, Role::Desktop, None, naming(own_desktop, &session(&case.session["sessionId"]))).await;
    assert_eq!(theirs, refusal(stranger, Role::Desktop, None, naming(own_desktop, &session(&json!(Uuid::new_v4())))).await);
    assert_eq!(theirs["code"], "invalidResume");
    case.unharmed().await;
    // It was not used up by being tried.
    let mut again = RawSocket::open(&case.owner.raw_desktop()).await;
    let resume = session(&case.session["sessionId"]);
    again.text(&json!({"type": "register", "payload": naming(case.owner.desktops[0], &resume)}).to_string()).await;
    assert!(again.next_text().await.starts_with(r#"{"type":"resumed""#));
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_reach_nothing_of_another_account() {
    let mut case = Case::start().await;
    let mut own_desktop = registered(&case.stranger.raw_desktop(), case.stranger.desktops[0]).await;
    let mut own_phone = registered(&case.stranger.raw_phone(), case.stranger.phones[0]).await;
    case.phone.text(&request("open", "1")).await;
    let open = next_of(&mut case.desktop, "rpc.request").await;
    let route = payload_field(&open, "clientId").trim_matches('"').to_owned();

    // Answers to the open request, from whom it was not sent to, under every form of the phone's route.
    for (_, form) in FORMS {
        for outcome in [r#""result":"injected""#, r#""result":"injected","isFinal":false"#, r#""error":{"code":-1,"message":"injected"}"#] {
            let client = serde_json::to_string(&form(&route)).unwrap();
            let answer = format!(r#"{{"type":"rpc.response","payload":{{"clientId":{client},"id":"open",{outcome}}}}}"#);
            own_desktop.text(&answer).await;
        }
    }
    // The same id is another request here, and goes to the stranger's own desktop only.
    round_trip(&mut own_phone, &mut own_desktop, "open").await;
    // A request cannot say where it goes, or for whom.
    for field in ["clientId", "userId", "targetDesktopDeviceId"] {
        let value = if field == "userId" { case.owner.user.to_string() } else { case.owner.desktops[0].to_string() };
        own_phone.text(&request("astray", "1").replace(r#""params":1"#, &format!(r#""{field}":"{value}""#))).await;
        assert_eq!(payload_field(&next_of(&mut own_phone, "error").await, "code"), "\"invalidPayload\"");
    }
    for sender in [&mut own_phone, &mut own_desktop] {
        let event = json!({"type": "event", "payload": {"eventType": "device-status",
            "payload": {"deviceId": case.owner.desktops[0], "status": "disconnected"}}});
        sender.text(&event.to_string()).await;
        let error = next_of(sender, "error").await;
        assert_eq!(payload_field(&error, "code"), "\"invalidEvent\"", "no client tells another one's presence");
    }
    case.desktop.text(&response(&open, r#""its own""#)).await;
    let answer = case.phone.next_text().await;
    assert_eq!((payload_field(&answer, "id"), payload_field(&answer, "result")), ("\"open\"", "\"its own\""));
    case.unharmed().await;
    round_trip(&mut own_phone, &mut own_desktop, "afterwards").await;
    assert!(case.relay.alive());
}

/// A timeline session is named by its desktop, so two accounts may have the same name for theirs.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_another_accounts_session_is_a_lease_of_ones_own() {
    let mut case = Case::start().await;
    let mut own_desktop = registered(&case.stranger.raw_desktop(), case.stranger.desktops[0]).await;
    let mut own_phone = registered(&case.stranger.raw_phone(), case.stranger.phones[0]).await;
    case.phone.text(&interest("shared", true)).await;
    let theirs = next_update(&mut case.desktop).await.generation().to_owned();
    // Taken, renewed and given up; the owner's desktop hears of none of it.
    for active in [true, true, false, true] {
        own_phone.text(&interest("shared", active)).await;
    }
    let mut updates = Vec::new();
    for _ in 0..4 {
        updates.push(next_update(&mut own_desktop).await.lease.map(|(generation, _)| generation));
    }
    let [Some(first), Some(renewed), None, Some(own)] = &updates[..] else { panic!("{updates:?}") };
    assert!(first == renewed && own != first && ![first, own].contains(&&theirs), "{updates:?}, theirs {theirs}");
    // Frames under the generation of the other account go nowhere, and one's own to one's own phone.
    own_desktop.text(&stream("shared", &theirs, None, 1)).await;
    own_desktop.text(&stream("shared", own, None, 2)).await;
    assert_eq!(number_of(&next_of(&mut own_phone, "event").await), 2);
    case.desktop.text(&stream("shared", &theirs, None, 3)).await;
    assert_eq!(number_of(&next_of(&mut case.phone, "event").await), 3, "the lease is still there");
    case.unharmed().await;
}

/// The number of a timeline frame as a phone gets it.
fn number_of(frame: &str) -> u64 {
    let frame: Value = serde_json::from_str(frame).unwrap();
    frame["payload"]["payload"]["n"].as_u64().unwrap_or_else(|| panic!("no timeline frame: {frame}"))
}
