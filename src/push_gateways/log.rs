//! `--push-log`: pushes are logged instead of sent, for development without keys.

use async_trait::async_trait;
use relay_actors::push::{Content, Gateway, Outgoing, Verdict};

/// Takes every push. Neither token nor texts are logged.
pub struct Logged;

#[async_trait]
impl Gateway for Logged {
    async fn send(&self, push: &Outgoing) -> Verdict {
        let provider = push.address.provider;
        match &push.content {
            Content::DesktopOnline { desktop, .. } => tracing::info!(%provider, %desktop, "push: desktop_online"),
            Content::Alert(alert) => {
                let chars = alert.body.chars().count();
                tracing::info!(%provider, notification = ?alert.notification_id, body_chars = chars, "push: alert");
            }
        }
        Verdict::Sent { id: None }
    }
}
