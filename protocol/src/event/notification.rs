//! `agent:notification`: a desktop has a text for the phones of its account, which comes to them as a push alert, never by socket
//! (device-lane section 8).

use super::{NOTIFICATION_RESULT, of_relay};
use crate::{
    envelope::{NotificationFields, string},
    error::FrameError,
    limits::{NOTIFICATION_BODY_CHARS_MAX, NOTIFICATION_ID_BYTES_MAX, NOTIFICATION_TITLE_CHARS_MAX, SESSION_ID_BYTES_MAX},
    text::Text,
};
use serde::Serialize;
use serde_json::value::RawValue;
use std::fmt;

/// An alert as a desktop asks for it. The texts are private, so `Debug` shows none of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Notification {
    /// Names it: sent once more under the same name within a day, it is not shown once more.
    pub id: Box<str>,
    /// 1 to 200 characters.
    pub title: Box<str>,
    /// 1 to 2,000 characters.
    pub body: Box<str>,
    /// The session that it is about, as the desktop writes it: what a phone opens when the alert is tapped.
    pub app_session_id: Option<Box<str>>,
}

impl fmt::Debug for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notification").finish_non_exhaustive()
    }
}

impl Notification {
    pub(super) fn read(payload: &RawValue) -> Result<Self, FrameError> {
        let fields: NotificationFields<'_> = serde_json::from_str(payload.get()).map_err(FrameError::unfit)?;
        let bytes = |text: &str| text.len();
        let chars = |text: &str| text.chars().count();
        let app_session_id = fields.app_session_id.filter(|raw| raw.get() != "null");
        Ok(Notification {
            id: read_text("notificationId", fields.notification_id, NOTIFICATION_ID_BYTES_MAX, "bytes", bytes)?,
            title: read_text("title", fields.title, NOTIFICATION_TITLE_CHARS_MAX, "characters", chars)?,
            body: read_text("body", fields.body, NOTIFICATION_BODY_CHARS_MAX, "characters", chars)?,
            app_session_id: app_session_id
                .map(|raw| read_text("appSessionId", Some(raw), SESSION_ID_BYTES_MAX, "bytes", bytes))
                .transpose()?,
        })
    }
}

fn read_text(name: &str, raw: Option<&RawValue>, max: usize, unit: &str, measure: impl Fn(&str) -> usize) -> Result<Box<str>, FrameError> {
    let raw = raw.ok_or_else(|| FrameError::invalid(format_args!("missing field `{name}`")))?;
    let text = string(raw).ok_or_else(|| FrameError::invalid(format_args!("`{name}` is not a string")))?;
    if (1..=max).contains(&measure(&text)) {
        Ok(text.into())
    } else {
        Err(FrameError::invalid(format_args!("`{name}` does not have 1 to {max} {unit}")))
    }
}

/// Why no alert is sent, or not one more. A closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NotSent {
    /// The same `notificationId` was accepted within a day; what it was accepted for stands.
    Duplicate,
    /// No phone of the account has a push token.
    NoDevices,
    /// The relay is not set up for the provider of any of them.
    NotConfigured,
    /// The account asks for more alerts than it may.
    RateLimited,
    /// Too many pushes wait.
    Overloaded,
    /// Storage does not say which phones there are.
    Unavailable,
}

impl NotSent {
    /// Every variant.
    pub const ALL: [NotSent; 6] =
        [NotSent::Duplicate, NotSent::NoDevices, NotSent::NotConfigured, NotSent::RateLimited, NotSent::Overloaded, NotSent::Unavailable];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            NotSent::Duplicate => "duplicate",
            NotSent::NoDevices => "noDevices",
            NotSent::NotConfigured => "notConfigured",
            NotSent::RateLimited => "rateLimited",
            NotSent::Overloaded => "overloaded",
            NotSent::Unavailable => "unavailable",
        }
    }
}

/// What the desktop is told: its alert waits for the providers, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is on its way to so many phones.
    Accepted {
        /// How many.
        devices: usize,
    },
    /// It had been accepted before, for so many phones.
    AcceptedBefore {
        /// How many.
        devices: usize,
    },
    /// It is not sent. The id is free: the desktop may ask again.
    Refused(NotSent),
}

impl Outcome {
    /// Why nothing is sent now; none where something is.
    pub fn reason(self) -> Option<NotSent> {
        match self {
            Outcome::Accepted { .. } => None,
            Outcome::AcceptedBefore { .. } => Some(NotSent::Duplicate),
            Outcome::Refused(reason) => Some(reason),
        }
    }

    /// The frame that tells it.
    pub fn to_text(self, notification_id: &str) -> Text {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Told<'a> {
            notification_id: &'a str,
            accepted: bool,
            devices: usize,
            #[serde(skip_serializing_if = "Option::is_none")]
            reason: Option<&'static str>,
        }
        let (accepted, devices) = match self {
            Outcome::Accepted { devices } | Outcome::AcceptedBefore { devices } => (true, devices),
            Outcome::Refused(_) => (false, 0),
        };
        of_relay(NOTIFICATION_RESULT, &Told { notification_id, accepted, devices, reason: self.reason().map(NotSent::as_str) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(payload: &serde_json::Value) -> Result<Notification, FrameError> {
        Notification::read(&RawValue::from_string(payload.to_string()).unwrap())
    }

    fn of(title: &str, body: &str) -> serde_json::Value {
        serde_json::json!({ "notificationId": "n1", "title": title, "body": body })
    }

    #[test]
    fn an_alert_is_read_as_it_was_written() {
        let mut payload = of("a\u{0}\"🎉", "b\nc");
        let alert = read(&payload).unwrap();
        assert_eq!((&*alert.id, &*alert.title, &*alert.body, alert.app_session_id), ("n1", "a\u{0}\"🎉", "b\nc", None));
        payload["appSessionId"] = " s::skills-agent".into();
        assert_eq!(read(&payload).unwrap().app_session_id.as_deref(), Some(" s::skills-agent"));
        payload["appSessionId"] = serde_json::Value::Null;
        assert_eq!(read(&payload).unwrap().app_session_id, None);
    }

    #[test]
    fn characters_are_counted_in_texts_and_bytes_in_ids() {
        read(&of(&"🎉".repeat(NOTIFICATION_TITLE_CHARS_MAX), &"é".repeat(NOTIFICATION_BODY_CHARS_MAX))).unwrap();
        for payload in [
            of(&"a".repeat(NOTIFICATION_TITLE_CHARS_MAX + 1), "b"),
            of("a", &"b".repeat(NOTIFICATION_BODY_CHARS_MAX + 1)),
            of("", "b"),
            of("a", ""),
        ] {
            assert!(matches!(read(&payload), Err(FrameError::InvalidPayload(_))), "{payload}");
        }
        let mut payload = of("a", "b");
        for (field, max) in [("notificationId", NOTIFICATION_ID_BYTES_MAX), ("appSessionId", SESSION_ID_BYTES_MAX)] {
            payload[field] = "é".repeat(max / 2).into();
            assert!(read(&payload).is_ok(), "{field}");
            payload[field] = "é".repeat(max / 2 + 1).into();
            let told = read(&payload).unwrap_err().message().into_owned();
            assert!(told.contains(&format!("`{field}` does not have 1 to {max} bytes")), "{told}");
            payload[field] = "s".into();
        }
    }

    #[test]
    fn a_missing_field_and_one_of_another_type_are_named() {
        for field in ["notificationId", "title", "body"] {
            let mut payload = of("a", "b");
            payload[field] = 1.into();
            let told = read(&payload).unwrap_err().message().into_owned();
            assert!(told.contains(&format!("`{field}` is not a string")), "{told}");
            payload.as_object_mut().unwrap().remove(field);
            let told = read(&payload).unwrap_err().message().into_owned();
            assert!(told.contains(&format!("missing field `{field}`")), "{told}");
        }
    }

    /// As everywhere: a misspelt field is told instead of passed over.
    #[test]
    fn a_field_that_nobody_knows_is_named() {
        let mut payload = of("a", "b");
        payload["appSessionID"] = "s".into();
        let told = read(&payload).unwrap_err().message().into_owned();
        assert!(told.contains("unknown field `appSessionID`"), "{told}");
    }

    #[test]
    fn no_text_of_an_alert_is_shown_for_debugging() {
        let shown = format!("{:?}", read(&of("secret title", "secret body")).unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn the_desktop_is_told_what_becomes_of_it() {
        let told = |outcome: Outcome| String::from_utf8(outcome.to_text("n1").to_bytes()).unwrap();
        let frame = |rest: &str| {
            format!(
                r#"{{"type":"event","payload":{{"eventType":"agent:notification-result","payload":{{"notificationId":"n1",{rest}}}}}}}"#
            )
        };
        assert_eq!(told(Outcome::Accepted { devices: 2 }), frame(r#""accepted":true,"devices":2"#));
        assert_eq!(told(Outcome::AcceptedBefore { devices: 2 }), frame(r#""accepted":true,"devices":2,"reason":"duplicate""#));
        for reason in NotSent::ALL.into_iter().filter(|reason| *reason != NotSent::Duplicate) {
            let rest = format!(r#""accepted":false,"devices":0,"reason":"{}""#, reason.as_str());
            assert_eq!(told(Outcome::Refused(reason)), frame(&rest));
        }
    }
}
