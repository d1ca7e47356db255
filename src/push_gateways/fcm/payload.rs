//! What Google is asked to send. An app gets the same fields as from Apple; values of `data` are texts.

use super::super::shorten;
use crate::limits::PUSH_PAYLOAD_BYTES_MAX;
use relay_actors::push::{Alert, Content, Outgoing};
use serde_json::{Map, Value, json};

/// What stands around texts and data in the request and does not count for the message, or not much.
const AROUND_BYTES: usize = 512;

pub(super) fn of(push: &Outgoing) -> Vec<u8> {
    let Outgoing { address, content, collapse_key, keep_for } = push;
    let ttl = format!("{}s", keep_for.as_secs());
    match content {
        Content::DesktopOnline { desktop, at } => json!({"message": {
            "token": address.token.expose(),
            "data": {"type": "desktop_online", "desktopDeviceId": desktop, "at": at.0.to_string()},
            "android": {"priority": "NORMAL", "collapse_key": **collapse_key, "ttl": ttl},
        }})
        .to_string()
        .into(),
        Content::Alert(alert) => {
            let bytes_max = PUSH_PAYLOAD_BYTES_MAX - AROUND_BYTES;
            let fitting = shorten::fit(&alert.body, bytes_max, |body| json!({"title": alert.title, "body": body, "data": data(alert)}));
            // What fits has its body shortened; only that is taken from it.
            let body = serde_json::from_slice::<Value>(&fitting).ok().and_then(|mut fitted| Some(fitted.get_mut("body")?.take()));
            json!({"message": {
                "token": address.token.expose(),
                "notification": {"title": alert.title, "body": body},
                "data": data(alert),
                // A tag replaces what is shown under it, so that one that is sent twice is seen once.
                "android": {"priority": "HIGH", "ttl": ttl, "notification": {"tag": **collapse_key}},
            }})
            .to_string()
            .into()
        }
    }
}

fn data(alert: &Alert) -> Value {
    let mut data = Map::new();
    data.insert("type".to_owned(), "agent_notification".into());
    data.insert("notificationId".to_owned(), (&*alert.notification_id).into());
    if let Some(desktop) = alert.desktop {
        data.insert("desktopDeviceId".to_owned(), desktop.to_string().into());
    }
    if let Some(session) = &alert.app_session_id {
        data.insert("appSessionId".to_owned(), (&**session).into());
    }
    data.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use relay_actors::clock::EpochMs;
    use relay_protocol::{
        id::DeviceId,
        limits::{NOTIFICATION_BODY_CHARS_MAX, NOTIFICATION_TITLE_CHARS_MAX, SESSION_ID_BYTES_MAX},
        push::{Environment, Provider, PushAddress},
    };
    use std::{sync::Arc, time::Duration};
    use uuid::Uuid;

    fn json(content: Content) -> Value {
        let token = "token".parse().unwrap();
        let address = PushAddress { provider: Provider::Fcm, token, environment: Environment::Production, app_id: None };
        let push = Outgoing { address, content, collapse_key: "key".into(), keep_for: Duration::from_secs(60) };
        serde_json::from_slice(&of(&push)).unwrap()
    }

    #[test]
    fn apps_get_what_the_protocol_says() {
        let desktop = DeviceId(Uuid::nil());
        let expected = json!({"message": {
            "token": "token", "data": {"type": "desktop_online", "desktopDeviceId": Uuid::nil(), "at": "7"},
            "android": {"priority": "NORMAL", "collapse_key": "key", "ttl": "60s"}
        }});
        assert_eq!(json(Content::DesktopOnline { desktop, at: EpochMs(7) }), expected);
        let alert = Alert {
            desktop: Some(desktop),
            notification_id: "n".into(),
            title: "t".into(),
            body: "b".into(),
            app_session_id: Some("s".into()),
        };
        let expected = json!({"message": {
            "token": "token", "notification": {"title": "t", "body": "b"},
            "data": {"type": "agent_notification", "notificationId": "n", "desktopDeviceId": Uuid::nil(), "appSessionId": "s"},
            "android": {"priority": "HIGH", "ttl": "60s", "notification": {"tag": "key"}}
        }});
        assert_eq!(json(Content::Alert(Arc::new(alert))), expected);
    }

    #[test]
    fn the_longest_alert_is_shortened_and_not_refused() {
        for unit in ["a", "🎉", "\u{1}"] {
            let alert = Alert {
                desktop: None,
                notification_id: "n".into(),
                title: "é".repeat(NOTIFICATION_TITLE_CHARS_MAX).into(),
                body: unit.repeat(NOTIFICATION_BODY_CHARS_MAX).into(),
                app_session_id: Some("s".repeat(SESSION_ID_BYTES_MAX).into()),
            };
            let message = json(Content::Alert(Arc::new(alert)));
            let bytes = message.to_string().len();
            assert!(bytes <= PUSH_PAYLOAD_BYTES_MAX, "{bytes}");
            let body = message["message"]["notification"]["body"].as_str().unwrap();
            assert!(body.starts_with(unit) && body.chars().count() > 100);
        }
    }
}
