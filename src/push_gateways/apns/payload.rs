//! What an app gets.

use super::super::shorten;
use crate::limits::PUSH_PAYLOAD_BYTES_MAX;
use relay_actors::push::{Alert, Content};
use serde_json::{Map, Value, json};

pub(super) fn of(content: &Content) -> Vec<u8> {
    match content {
        Content::DesktopOnline { desktop, at } => {
            json!({"aps": {"content-available": 1}, "type": "desktop_online", "desktopDeviceId": desktop, "at": at.0}).to_string().into()
        }
        Content::Alert(alert) => shorten::fit(&alert.body, PUSH_PAYLOAD_BYTES_MAX, |body| alert_json(alert, body)),
    }
}

fn alert_json(alert: &Alert, body: &str) -> Value {
    let mut payload = Map::new();
    payload.insert("aps".to_owned(), json!({"alert": {"title": alert.title, "body": body}, "sound": "default"}));
    payload.insert("type".to_owned(), "agent_notification".into());
    payload.insert("notificationId".to_owned(), (&*alert.notification_id).into());
    if let Some(desktop) = alert.desktop {
        payload.insert("desktopDeviceId".to_owned(), desktop.to_string().into());
    }
    if let Some(session) = &alert.app_session_id {
        payload.insert("appSessionId".to_owned(), (&**session).into());
    }
    payload.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use relay_actors::clock::EpochMs;
    use relay_protocol::{
        id::DeviceId,
        limits::{NOTIFICATION_BODY_CHARS_MAX, NOTIFICATION_ID_BYTES_MAX, NOTIFICATION_TITLE_CHARS_MAX, SESSION_ID_BYTES_MAX},
    };
    use std::sync::Arc;
    use uuid::Uuid;

    fn json(content: &Content) -> Value {
        serde_json::from_slice(&of(content)).unwrap()
    }

    #[test]
    fn apps_get_what_the_protocol_says() {
        let desktop = DeviceId(Uuid::nil());
        let silent = json(&Content::DesktopOnline { desktop, at: EpochMs(7) });
        let expected = json!({"aps": {"content-available": 1}, "type": "desktop_online", "desktopDeviceId": Uuid::nil(), "at": 7});
        assert_eq!(silent, expected);
        let mut alert = Alert {
            desktop: Some(desktop),
            notification_id: "n".into(),
            title: "t".into(),
            body: "b".into(),
            app_session_id: Some("s".into()),
        };
        let expected = json!({
            "aps": {"alert": {"title": "t", "body": "b"}, "sound": "default"},
            "type": "agent_notification", "notificationId": "n", "desktopDeviceId": Uuid::nil(), "appSessionId": "s"
        });
        assert_eq!(json(&Content::Alert(Arc::new(alert.clone()))), expected);
        (alert.desktop, alert.app_session_id) = (None, None);
        let test = json(&Content::Alert(Arc::new(alert)));
        assert!(test.get("desktopDeviceId").is_none() && test.get("appSessionId").is_none());
    }

    #[test]
    fn the_longest_alert_is_shortened_and_not_refused() {
        for unit in ["a", "🎉", "\u{1}"] {
            let alert = Alert {
                desktop: Some(DeviceId(Uuid::nil())),
                notification_id: "n".repeat(NOTIFICATION_ID_BYTES_MAX).into(),
                title: "é".repeat(NOTIFICATION_TITLE_CHARS_MAX).into(),
                body: unit.repeat(NOTIFICATION_BODY_CHARS_MAX).into(),
                app_session_id: Some("s".repeat(SESSION_ID_BYTES_MAX).into()),
            };
            let bytes = of(&Content::Alert(Arc::new(alert.clone())));
            assert!(bytes.len() <= PUSH_PAYLOAD_BYTES_MAX, "{}", bytes.len());
            let body = json(&Content::Alert(Arc::new(alert)))["aps"]["alert"]["body"].as_str().unwrap().to_owned();
            assert!(body.starts_with(unit) && (body.ends_with('…') || unit == "a"), "{body}");
        }
    }
}
