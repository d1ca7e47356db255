//! `system.*`: the desktop itself.

use super::{
    fault::Fault,
    methods::{Methods, Shared},
    model::{Agent, ReplyStyle},
    store::desktop,
};
use crate::{
    PROTOCOL_VERSION,
    desktop::{
        Pong,
        router::{Namespace, NoParams},
    },
};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct StyleParams {
    style: ReplyStyle,
}

/// The setting with all its words: clients show them as they are (seed).
#[derive(Serialize)]
struct ReplyStyleSetting {
    label: &'static str,
    description: &'static str,
    style: ReplyStyle,
    options: [StyleOption; 2],
}

#[derive(Serialize)]
struct StyleOption {
    value: ReplyStyle,
    label: &'static str,
    description: &'static str,
}

impl ReplyStyleSetting {
    fn new(style: ReplyStyle) -> Self {
        ReplyStyleSetting {
            label: "Reply style",
            description: "How agents write their answers.",
            style,
            options: [
                StyleOption { value: ReplyStyle::Default, label: "Default", description: "Each agent writes as it likes." },
                StyleOption {
                    value: ReplyStyle::Ste,
                    label: "Simplified Technical English",
                    description: "Short sentences, one statement in each.",
                },
            ],
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DesktopInfo {
    app_name: &'static str,
    app_version: &'static str,
    platform: &'static str,
    relay_protocol_version: &'static str,
    agents: [Agent; 2],
    /// That nothing here is real.
    is_demo: bool,
}

/// A model that a session's settings may name.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Model {
    pub(super) id: &'static str,
    label: &'static str,
    pub(super) agent: Agent,
}

/// All of them.
pub(super) const MODELS: [Model; 3] = [
    Model { id: "demo-codex", label: "Demo (Codex)", agent: Agent::Codex },
    Model { id: "demo-claude", label: "Demo (Claude)", agent: Agent::Claude },
    Model { id: "demo-claude-small", label: "Demo small (Claude)", agent: Agent::Claude },
];

#[derive(Serialize)]
struct Models {
    models: [Model; 3],
}

pub(super) fn namespace(shared: &Shared) -> Namespace {
    Methods::new("system", shared)
        .on("ping", |_call, NoParams {}, _shared| async { Ok(Pong::now()) })
        .on("getDesktopInfo", |_call, NoParams {}, _shared| async {
            Ok(DesktopInfo {
                app_name: "relay demo desktop",
                app_version: env!("CARGO_PKG_VERSION"),
                platform: std::env::consts::OS,
                relay_protocol_version: PROTOCOL_VERSION,
                agents: [Agent::Codex, Agent::Claude],
                is_demo: true,
            })
        })
        .on("listModels", |_call, NoParams {}, _shared| async { Ok(Models { models: MODELS }) })
        .reads("getReplyStyle", |connection, NoParams {}| desktop::reply_style(connection).map(ReplyStyleSetting::new))
        .writes("updateReplyStyle", |transaction, StyleParams { style }, _now| -> Result<_, Fault> {
            desktop::set_reply_style(transaction, style)?;
            Ok(ReplyStyleSetting::new(style))
        })
        .finish()
}
