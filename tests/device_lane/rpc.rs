//! Calls of phones to desktops (device-lane section 4): what passes, what is refused, and how open requests end.
//!
//! Raw sockets on both ends where bytes matter or a peer misbehaves; the shipped phone and desktop where it only matters that they
//! work. That something is *not* forwarded is shown by what comes next on the same ordered way, never by waiting.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod answers;
mod bytes;
mod deadlines;
mod every_refusal;
mod lost_desktops;
mod lost_phones;
mod pending;
mod refusals;
mod round_trip;
mod traffic;
mod unanswered;

use crate::support::{
    PATIENCE,
    account::Account,
    raw_socket::{RawOptions, RawSocket},
    relay_process::RelayProcess,
    wire::registered,
};
use relay_endpoints::frame::Envelope;
use relay_protocol::device::Role;
use serde_json::{Value, value::RawValue};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::{Instant, sleep};

/// A valid `traceparent`, as JSON.
const TRACE: &str = r#""00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01""#;

/// A frame as it came: its type, and the JSON text of each field of its payload.
struct Message {
    kind: String,
    fields: BTreeMap<String, Box<RawValue>>,
}

impl Message {
    /// The field's JSON text, byte for byte.
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.fields)).get()
    }

    fn names(&self) -> Vec<&str> {
        self.fields.keys().map(String::as_str).collect()
    }

    fn value(&self, name: &str) -> Value {
        serde_json::from_str(self.field(name)).unwrap()
    }

    /// The number of the error that this response carries.
    fn code(&self) -> i64 {
        assert_eq!(self.kind, "rpc.response", "{:?}", self.fields);
        self.value("error")["code"].as_i64().unwrap()
    }

    /// Checks that this is the relay's own refusal of the request with this id.
    fn assert_refused(&self, id: &str, code: i64, retryable: bool) {
        assert_eq!((self.kind.as_str(), self.field("id")), ("rpc.response", id), "{:?}", self.fields);
        assert_eq!(self.names(), ["error", "id", "isFinal"]);
        assert_eq!(self.field("isFinal"), "true");
        let error = self.value("error");
        assert_eq!((error["code"].as_i64(), error["data"]["retryable"].as_bool()), (Some(code), Some(retryable)), "{error}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
    }

    /// Checks that this is the error frame for a frame that could not be taken.
    fn assert_invalid_payload(&self, why: &str) {
        assert_eq!((self.kind.as_str(), self.names()), ("error", vec!["code", "message", "retryable"]), "{why}: {:?}", self.fields);
        assert_eq!((self.field("code"), self.field("retryable")), ("\"invalidPayload\"", "false"), "{why}");
    }
}

/// A registered raw connection.
struct Peer {
    socket: RawSocket,
}

impl Peer {
    async fn phone(account: &Account, phone: usize, desktop: usize) -> Self {
        let options = RawOptions::device_link(&account.address, &account.token, Role::Mobile, Some(account.desktops[desktop]));
        Peer { socket: registered(&options, account.phones[phone]).await }
    }

    async fn desktop(account: &Account, desktop: usize) -> Self {
        let options = RawOptions::device_link(&account.address, &account.token, Role::Desktop, None);
        Peer { socket: registered(&options, account.desktops[desktop]).await }
    }

    /// The next frame that is no event.
    async fn next(&mut self) -> Message {
        loop {
            let text = self.socket.next_text().await;
            let envelope = Envelope::parse(&text).unwrap();
            if envelope.kind != "event" {
                return Message { kind: envelope.kind.to_string(), fields: envelope.read().unwrap() };
            }
        }
    }

    /// Sends a request; `more` is text behind the method, such as `,"params":1`.
    async fn request(&mut self, id: &str, method: &str, more: &str) {
        self.socket.text(&request(id, method, more)).await;
    }

    /// The next frame, which must be a request.
    async fn next_request(&mut self) -> Message {
        let message = self.next().await;
        assert_eq!(message.kind, "rpc.request", "{:?}", message.fields);
        message
    }

    /// Sends a response to a request; `outcome` is text such as `"result":1`.
    async fn answer(&mut self, request: &Message, outcome: &str) {
        self.respond(request.field("clientId"), request.field("id"), outcome).await;
    }

    async fn respond(&mut self, client: &str, id: &str, outcome: &str) {
        self.socket.text(&response(client, id, outcome)).await;
    }

    /// Returns once the relay has handed everything that was sent before to the account's router: it answers a ping in order.
    async fn fence(&mut self) {
        self.socket.text(r#"{"type":"ping","payload":{}}"#).await;
        let message = self.next().await;
        assert_eq!(message.kind, "pong", "nothing else comes before: {:?}", message.fields);
    }
}

/// A phone and a desktop of a fresh account, both registered.
async fn pair(relay: &RelayProcess) -> (Account, Peer, Peer) {
    let account = Account::new(relay, 1, 1).await;
    let desktop = Peer::desktop(&account, 0).await;
    let phone = Peer::phone(&account, 0, 0).await;
    (account, phone, desktop)
}

fn request(id: &str, method: &str, more: &str) -> String {
    format!(r#"{{"type":"rpc.request","payload":{{"id":{id},"traceparent":{TRACE},"method":"{method}"{more}}}}}"#)
}

fn response(client: &str, id: &str, outcome: &str) -> String {
    format!(r#"{{"type":"rpc.response","payload":{{"clientId":{client},"id":{id},{outcome}}}}}"#)
}

fn json_string(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// A call that works shows that nothing before it reached the desktop, or was left for the phone.
async fn assert_pair_works(phone: &mut Peer, desktop: &mut Peer, why: &str) {
    phone.request("\"fence\"", "system.ping", "").await;
    let request = desktop.next_request().await;
    assert_eq!(request.field("id"), "\"fence\"", "{why}: nothing else was forwarded");
    desktop.answer(&request, r#""result":"fence""#).await;
    let answer = phone.next().await;
    assert_eq!((answer.field("id"), answer.field("result")), ("\"fence\"", "\"fence\""), "{why}: nothing else was answered");
}

/// The next responses refuse these requests, each once and in any order, because the desktop is expected back.
async fn assert_all_reconnecting(phone: &mut Peer, ids: &[&str]) {
    let mut left: BTreeSet<&str> = ids.iter().copied().collect();
    while !left.is_empty() {
        let message = phone.next().await;
        assert!(left.remove(message.field("id")), "answered twice, or never asked: {:?}", message.fields);
        message.assert_refused(message.field("id"), -32011, true);
        assert_eq!(message.value("error")["message"], "Desktop is reconnecting");
    }
}

/// Waits until the relay has noticed that only this many sockets of the account are left.
async fn wait_for_connections(relay: &RelayProcess, account: &Account, count: usize) {
    let url = format!("http://{}/admin/connections?user={}", relay.ready().admin, account.user);
    let client = reqwest::Client::new();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = client.get(&url).bearer_auth(relay.admin_token()).send().await.unwrap().bytes().await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        if answer["connections"].as_array().unwrap().len() == count {
            return;
        }
        assert!(Instant::now() < deadline, "still connected: {answer}");
        sleep(std::time::Duration::from_millis(5)).await;
    }
}
