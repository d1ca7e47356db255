//! What a demo desktop tells of its things, as phones read it. Times are epoch milliseconds.

use super::id::{AppSessionId, ConversationId, EntryId, OperationId, ProjectId, QueueId, RunId, TurnId};
use rusqlite::{
    ToSql,
    types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef},
};
use serde::{Deserialize, Serialize};

/// Enums whose word is the same on the wire and in a column.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub(super) enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)*
        }

        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(match self {
                    $($name::$variant => $word,)*
                }.into())
            }
        }

        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                match value.as_str()? {
                    $($word => Ok($name::$variant),)*
                    _ => Err(FromSqlError::InvalidType),
                }
            }
        }
    )*};
}

words! {
    /// Who works in a session.
    Agent {
        Codex = "codex",
        Claude = "claude",
    }
    /// How the timeline of an agent is kept (manifest: `timelineStorageFormat.byAgent`).
    StorageFormat {
        Indexed = "indexed",
        Native = "native",
    }
    /// What an entry of a timeline is.
    EntryKind {
        /// What the user said.
        UserMessage = "userMessage",
        /// What the agent answered.
        AgentMessage = "agentMessage",
        /// What happened to the session.
        Notice = "notice",
    }
    /// How far a run is.
    RunState {
        Running = "running",
        Completed = "completed",
        Cancelled = "cancelled",
    }
    /// How agents answer.
    ReplyStyle {
        /// Simplified Technical English: short sentences.
        Ste = "ste",
        /// As the agent likes.
        Default = "default",
    }
    /// How fast an agent is to be.
    SpeedMode {
        Standard = "standard",
        Fast = "fast",
    }
    /// What an agent may touch.
    AccessMode {
        ReadOnly = "readOnly",
        Workspace = "workspace",
        Full = "full",
    }
}

impl Agent {
    pub(super) fn storage_format(self) -> StorageFormat {
        match self {
            Agent::Codex => StorageFormat::Indexed,
            Agent::Claude => StorageFormat::Native,
        }
    }

    /// What a new session works with.
    pub(super) fn default_model(self) -> &'static str {
        match self {
            Agent::Codex => "demo-codex",
            Agent::Claude => "demo-claude",
        }
    }
}

/// A project of the list.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Project {
    pub(super) project_id: ProjectId,
    pub(super) name: String,
    /// Those that are archived count, too.
    pub(super) sessions: i64,
    pub(super) created_at: i64,
}

/// A session without its timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Session {
    pub(super) session_id: AppSessionId,
    pub(super) project_id: ProjectId,
    pub(super) agent: Agent,
    /// `threadId` of its runs.
    pub(super) conversation_id: ConversationId,
    pub(super) title: String,
    pub(super) is_archived: bool,
    pub(super) is_running: bool,
    /// `sequence` of the newest entry; 0 while there is none.
    pub(super) latest_sequence: i64,
    pub(super) read_through_sequence: i64,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
}

/// What a session's agent works with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChatSettings {
    pub(super) model: String,
    pub(super) speed_mode: SpeedMode,
    pub(super) access_mode: AccessMode,
}

/// A piece of a timeline. Entries of a session are numbered from 1 without a gap, never change, and go only with their session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) entry_id: EntryId,
    pub(super) sequence: i64,
    pub(super) kind: EntryKind,
    pub(super) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run_id: Option<RunId>,
    /// Of a user's message: the operation that sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) operation_id: Option<OperationId>,
    pub(super) created_at: i64,
}

/// A message that waits for its session to be idle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OutboxEntry {
    pub(super) queue_id: QueueId,
    pub(super) operation_id: OperationId,
    pub(super) user_text: String,
    pub(super) prompt_text: String,
    pub(super) speed_mode: SpeedMode,
    pub(super) created_at: i64,
    pub(super) updated_at: i64,
}

/// One piece of work of an agent, which answers one message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Run {
    pub(super) run_id: RunId,
    pub(super) session_id: AppSessionId,
    pub(super) thread_id: ConversationId,
    pub(super) turn_id: TurnId,
    pub(super) operation_id: OperationId,
    pub(super) state: RunState,
    pub(super) started_at: i64,
    pub(super) ended_at: Option<i64>,
    /// What the agent is to answer.
    #[serde(skip)]
    pub(super) prompt_text: String,
    /// And how, as it was set when the run began.
    #[serde(skip)]
    pub(super) reply_style: ReplyStyle,
}

impl Run {
    /// The overlay that its drafts are.
    pub(super) fn timeline_key(&self) -> String {
        format!("run:{}", self.run_id.as_str())
    }
}

/// How full an agent's context is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContextUsage {
    pub(super) used_tokens: i64,
    pub(super) window_tokens: i64,
    pub(super) measured_at: i64,
}
