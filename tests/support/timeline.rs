//! Timelines on the wire: what a phone says to watch one, what its desktop is told, and the frames between them.

use super::{raw_socket::RawSocket, wire::next_of};
use serde_json::{Value, json};

/// An `event` frame, its payload byte for byte.
pub fn event(name: &str, payload: &str) -> String {
    format!(r#"{{"type":"event","payload":{{"eventType":"{name}","payload":{payload}}}}}"#)
}

/// A phone takes, renews or gives up its lease.
pub fn interest(session: &str, active: bool) -> String {
    event("chat:timeline-interest", &json!({"appSessionId": session, "active": active}).to_string())
}

/// A timeline frame that says a number, under a key or without.
pub fn stream(session: &str, generation: &str, key: Option<&str>, number: u64) -> String {
    let mut payload = json!({"appSessionId": session, "authorizationGeneration": generation, "n": number});
    if let Some(key) = key {
        payload["timelineKey"] = key.into();
    }
    event("chat:stream", &payload.to_string())
}

/// What a desktop is told of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    pub session: String,
    /// Generation and time left; none when nobody is interested.
    pub lease: Option<(String, u64)>,
    pub revision: u64,
    pub instance: String,
}

impl Update {
    /// The generation of a session that somebody watches.
    pub fn generation(&self) -> &str {
        &self.lease.as_ref().unwrap_or_else(|| panic!("nobody watches: {self:?}")).0
    }
}

/// The next thing that a desktop is told of its sessions. No other event may come before it.
pub async fn next_update(desktop: &mut RawSocket) -> Update {
    let event: Value = serde_json::from_str(&next_of(desktop, "event").await).unwrap();
    assert_eq!(event["payload"]["eventType"], "chat:timeline-interest-updated");
    let payload = &event["payload"]["payload"];
    let text = |field: &str| payload[field].as_str().unwrap().to_owned();
    let is_active = payload["active"].as_bool().unwrap();
    for field in ["expiresAt", "expiresInMs", "authorizationGeneration"] {
        assert_eq!(payload[field].is_null(), !is_active, "{field} of {payload}");
    }
    Update {
        session: text("appSessionId"),
        lease: is_active.then(|| (text("authorizationGeneration"), payload["expiresInMs"].as_u64().unwrap())),
        revision: payload["revision"].as_u64().unwrap(),
        instance: text("relayInstanceId"),
    }
}

/// The next event that a phone receives from a desktop, as text: presence is passed over, anything else fails.
pub async fn next_event(phone: &mut RawSocket) -> String {
    loop {
        let text = next_of(phone, "event").await;
        if !text.starts_with(r#"{"type":"event","payload":{"eventType":"device-status""#) {
            return text;
        }
    }
}

/// The number that the next event from a desktop says.
pub async fn next_number(phone: &mut RawSocket) -> u64 {
    let event: Value = serde_json::from_str(&next_event(phone).await).unwrap();
    event["payload"]["payload"]["n"].as_u64().unwrap()
}
