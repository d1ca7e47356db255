//! Events as clients send and understand them (device-lane section 6). Their names are in [`relay_protocol::event`].

use relay_protocol::id::RelayInstanceId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Payload of `event` as a client sends it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutgoingEvent<'a, P> {
    /// 1 to 128 of `a-z 0-9 : . _ -`, none of the reserved names.
    pub event_type: &'a str,
    /// An object.
    pub payload: P,
}

/// Payload of `chat:timeline-interest`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineInterest<'a> {
    /// The session to watch.
    pub app_session_id: &'a str,
    /// False gives the lease back.
    pub active: bool,
}

/// Payload of `chat:timeline-interest-updated`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "UpdatePayload")]
pub struct InterestUpdate {
    /// The base session.
    pub session: String,
    /// What may be sent, and for how long; `None` if nobody watches any longer.
    pub authorization: Option<Authorization>,
    /// Grows with every update of one relay process.
    pub revision: u64,
    /// The process that says so.
    pub relay_instance_id: RelayInstanceId,
}

/// What a desktop needs to send timeline frames of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// `authorizationGeneration`, given back unread with each frame.
    pub generation: String,
    /// Until the last lease ends, counted from when the update was sent. `expiresAt` is not read: this clock may be wrong.
    pub expires_in: Duration,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdatePayload {
    app_session_id: String,
    active: bool,
    #[serde(default)]
    expires_in_ms: Option<u64>,
    #[serde(default)]
    authorization_generation: Option<String>,
    revision: u64,
    relay_instance_id: RelayInstanceId,
}

impl TryFrom<UpdatePayload> for InterestUpdate {
    type Error = &'static str;

    fn try_from(payload: UpdatePayload) -> Result<Self, Self::Error> {
        let authorization = match (payload.active, payload.authorization_generation, payload.expires_in_ms) {
            (false, _, _) => None,
            (true, Some(generation), Some(milliseconds)) => {
                Some(Authorization { generation, expires_in: Duration::from_millis(milliseconds) })
            }
            (true, _, _) => return Err("an active interest has a generation and an expiry"),
        };
        let UpdatePayload { app_session_id: session, revision, relay_instance_id, .. } = payload;
        Ok(InterestUpdate { session, authorization, revision, relay_instance_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{encode, kind};
    use relay_protocol::event::INTEREST;

    const INSTANCE: &str = "a2d1c7f4-3b6e-4d0a-9c55-6e1f7b8d9e12";

    fn read(fields: &str) -> Result<InterestUpdate, serde_json::Error> {
        serde_json::from_str(&format!(r#"{{"appSessionId":"s","revision":7,"relayInstanceId":"{INSTANCE}",{fields}}}"#))
    }

    #[test]
    fn an_interest_is_sent_as_the_wire_has_it() {
        let payload = TimelineInterest { app_session_id: "s \"1\"", active: true };
        let text = encode(kind::EVENT, &OutgoingEvent { event_type: INTEREST, payload });
        let expected =
            r#"{"type":"event","payload":{"eventType":"chat:timeline-interest","payload":{"appSessionId":"s \"1\"","active":true}}}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn an_update_is_active_with_both_or_ended_with_neither() {
        let active = read(r#""active":true,"expiresAt":-1,"expiresInMs":60000,"authorizationGeneration":"g""#).unwrap();
        let authorization = Authorization { generation: "g".to_owned(), expires_in: Duration::from_secs(60) };
        assert_eq!((active.revision, active.authorization), (7, Some(authorization)));
        let ended = read(r#""active":false,"expiresAt":null,"expiresInMs":null,"authorizationGeneration":null"#).unwrap();
        assert_eq!((ended.session.as_str(), ended.authorization), ("s", None));
        for half in [r#""active":true,"expiresInMs":1"#, r#""active":true,"authorizationGeneration":"g","expiresInMs":null"#] {
            assert!(read(half).is_err(), "{half}");
        }
    }
}
