//! `session.*`: projects and sessions.

use super::{
    fault::Fault,
    id::{AppSessionId, ConversationId, ProjectId},
    limits::{SEARCH_MATCHES_DEFAULT, SEARCH_MATCHES_MAX},
    methods::{Methods, Shared},
    model::{AccessMode, Agent, ChatSettings, Project, Session, SpeedMode},
    store::sessions::{self, Match, NewSession},
    system::MODELS,
};
use crate::desktop::router::{Namespace, NoParams};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfSession {
    session_id: AppSessionId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListParams {
    project_id: Option<ProjectId>,
    #[serde(default)]
    archived: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreateParams {
    project_id: ProjectId,
    agent: Agent,
    conversation_id: Option<ConversationId>,
    title: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RenameParams {
    session_id: AppSessionId,
    title: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MarkReadParams {
    session_id: AppSessionId,
    /// Through this entry; through the newest if it is absent.
    sequence: Option<i64>,
}

#[derive(Deserialize)]
struct SearchParams {
    query: String,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateSettingsParams {
    session_id: AppSessionId,
    model: Option<String>,
    speed_mode: Option<SpeedMode>,
    access_mode: Option<AccessMode>,
}

#[derive(Serialize)]
struct Projects {
    projects: Vec<Project>,
}

#[derive(Serialize)]
struct Sessions {
    sessions: Vec<Session>,
}

#[derive(Serialize)]
struct One {
    session: Session,
}

#[derive(Serialize)]
struct Created {
    session: Session,
    created: bool,
}

#[derive(Serialize)]
struct Deleted {
    deleted: bool,
}

#[derive(Serialize)]
struct Settings {
    settings: ChatSettings,
}

#[derive(Serialize)]
struct Matches {
    matches: Vec<Match>,
}

/// How far a session's timeline is: its revision grows with each entry.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HistoryState {
    session_id: AppSessionId,
    history_revision: i64,
    latest_sequence: i64,
    read_through_sequence: i64,
    unread_entries: i64,
}

impl From<Session> for HistoryState {
    fn from(session: Session) -> Self {
        HistoryState {
            history_revision: session.latest_sequence,
            latest_sequence: session.latest_sequence,
            read_through_sequence: session.read_through_sequence,
            unread_entries: session.latest_sequence - session.read_through_sequence,
            session_id: session.session_id,
        }
    }
}

/// A session may use the models of its agent.
fn check_model(agent: Agent, model: Option<&str>) -> Result<(), Fault> {
    match model {
        Some(id) if !MODELS.iter().any(|model| model.id == id && model.agent == agent) => {
            Err(Fault::validation("The session's agent has no such model; see system.listModels."))
        }
        Some(_) | None => Ok(()),
    }
}

pub(super) fn namespace(shared: &Shared) -> Namespace {
    Methods::new("session", shared)
        .reads("listProjects", |connection, NoParams {}| Ok(Projects { projects: sessions::projects(connection)? }))
        .reads("list", |connection, ListParams { project_id, archived }| {
            Ok(Sessions { sessions: sessions::list(connection, project_id.as_ref(), archived)? })
        })
        .reads("get", |connection, OfSession { session_id }| Ok(One { session: sessions::get(connection, &session_id)? }))
        .writes("create", |transaction, CreateParams { project_id, agent, conversation_id, title }, now| {
            let title = title.unwrap_or_else(|| "New session".to_owned());
            let new = NewSession { id: AppSessionId::fresh(), project: project_id, agent, conversation: conversation_id, title };
            let (session, created) = sessions::create(transaction, &new, now)?;
            Ok(Created { session, created })
        })
        .writes("rename", |transaction, RenameParams { session_id, title }, now| {
            Ok(One { session: sessions::rename(transaction, &session_id, &title, now)? })
        })
        .writes("archive", |transaction, OfSession { session_id }, now| {
            Ok(One { session: sessions::set_archived(transaction, &session_id, true, now)? })
        })
        .writes("restore", |transaction, OfSession { session_id }, now| {
            Ok(One { session: sessions::set_archived(transaction, &session_id, false, now)? })
        })
        .writes("delete", |transaction, OfSession { session_id }, _now| {
            sessions::delete(transaction, &session_id)?;
            Ok(Deleted { deleted: true })
        })
        .writes("markRead", |transaction, MarkReadParams { session_id, sequence }, _now| {
            Ok(HistoryState::from(sessions::mark_read(transaction, &session_id, sequence)?))
        })
        .reads("getHistoryState", |connection, OfSession { session_id }| Ok(HistoryState::from(sessions::get(connection, &session_id)?)))
        .reads("search", |connection, SearchParams { query, limit }| {
            let limit = limit.unwrap_or(SEARCH_MATCHES_DEFAULT).clamp(1, SEARCH_MATCHES_MAX);
            Ok(Matches { matches: sessions::search(connection, &query, limit)? })
        })
        .reads("getSettings", |connection, OfSession { session_id }| {
            Ok(Settings { settings: sessions::settings(connection, &session_id)? })
        })
        .writes("updateSettings", |transaction, params: UpdateSettingsParams, _now| {
            let UpdateSettingsParams { session_id, model, speed_mode, access_mode } = params;
            check_model(sessions::get(transaction, &session_id)?.agent, model.as_deref())?;
            let settings = sessions::update_settings(transaction, &session_id, model.as_deref(), speed_mode, access_mode)?;
            Ok(Settings { settings })
        })
        .finish()
}
