//! Projects and sessions.

use crate::desktop::demo::{
    fault::Fault,
    id::{AppSessionId, ConversationId, ProjectId},
    limits::{CONTEXT_WINDOW_TOKENS, QUERY_BYTES_MAX, SESSIONS_MAX, SNIPPET_CHARS, TITLE_CHARS_MAX},
    model::{AccessMode, Agent, ChatSettings, ContextUsage, Project, Session, SpeedMode},
};
use rusqlite::{Connection, OptionalExtension, Row, named_params};
use serde::Serialize;

const SELECT: &str = "SELECT session_id, project_id, agent, conversation_id, title, is_archived,
    EXISTS (SELECT 1 FROM runs WHERE runs.session_id = sessions.session_id AND state = 'running'),
    latest_sequence, read_through, created_at, updated_at FROM sessions";

fn session(row: &Row<'_>) -> rusqlite::Result<Session> {
    Ok(Session {
        session_id: row.get(0)?,
        project_id: row.get(1)?,
        agent: row.get(2)?,
        conversation_id: row.get(3)?,
        title: row.get(4)?,
        is_archived: row.get(5)?,
        is_running: row.get(6)?,
        latest_sequence: row.get(7)?,
        read_through_sequence: row.get(8)?,
        created_at: row.get(9)?,
        updated_at: row.get(10)?,
    })
}

pub(in crate::desktop::demo) fn projects(connection: &Connection) -> Result<Vec<Project>, Fault> {
    let mut statement = connection.prepare(
        "SELECT project_id, name, (SELECT count(*) FROM sessions WHERE sessions.project_id = projects.project_id), created_at
         FROM projects ORDER BY created_at, project_id",
    )?;
    let rows = statement
        .query_map((), |row| Ok(Project { project_id: row.get(0)?, name: row.get(1)?, sessions: row.get(2)?, created_at: row.get(3)? }))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(in crate::desktop::demo) fn add_project(connection: &Connection, id: &ProjectId, name: &str, now: i64) -> rusqlite::Result<()> {
    connection.execute("INSERT INTO projects VALUES (?1, ?2, ?3)", (id, name, now))?;
    Ok(())
}

/// The sessions of a project, or of all; the one that changed last comes first.
pub(in crate::desktop::demo) fn list(connection: &Connection, of: Option<&ProjectId>, archived: bool) -> Result<Vec<Session>, Fault> {
    let mut statement = connection.prepare(&format!(
        "{SELECT} WHERE is_archived = :archived AND (:project IS NULL OR project_id = :project) ORDER BY updated_at DESC, session_id"
    ))?;
    let rows = statement.query_map(named_params! {":archived": archived, ":project": of}, session)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(in crate::desktop::demo) fn get(connection: &Connection, id: &AppSessionId) -> Result<Session, Fault> {
    let found = connection.query_row(&format!("{SELECT} WHERE session_id = ?1"), [id], session).optional()?;
    found.ok_or_else(|| Fault::not_found("session"))
}

/// What a new session is to be.
pub(in crate::desktop::demo) struct NewSession {
    pub(in crate::desktop::demo) id: AppSessionId,
    pub(in crate::desktop::demo) project: ProjectId,
    pub(in crate::desktop::demo) agent: Agent,
    pub(in crate::desktop::demo) conversation: Option<ConversationId>,
    pub(in crate::desktop::demo) title: String,
}

/// Makes a session; or finds the one of the project that holds the conversation already, and makes nothing (seed). True: it is new.
pub(in crate::desktop::demo) fn create(connection: &Connection, new: &NewSession, now: i64) -> Result<(Session, bool), Fault> {
    let is_there = connection.query_row("SELECT 1 FROM projects WHERE project_id = ?1", [&new.project], |_row| Ok(())).optional()?;
    is_there.ok_or_else(|| Fault::not_found("project"))?;
    if let Some(conversation) = &new.conversation {
        let holds = format!("{SELECT} WHERE project_id = ?1 AND agent = ?2 AND conversation_id = ?3");
        if let Some(session) = connection.query_row(&holds, (&new.project, new.agent, conversation), session).optional()? {
            return Ok((session, false));
        }
    }
    let sessions: i64 = connection.query_row("SELECT count(*) FROM sessions", (), |row| row.get(0))?;
    if sessions >= SESSIONS_MAX {
        return Err(Fault::conflict(format!("There are {SESSIONS_MAX} sessions; delete one first.")));
    }
    check_title(&new.title)?;
    insert(connection, new, now)?;
    Ok((get(connection, &new.id)?, true))
}

/// A row, whose project and title are good.
pub(in crate::desktop::demo) fn insert(connection: &Connection, new: &NewSession, now: i64) -> rusqlite::Result<()> {
    let conversation = new.conversation.clone().unwrap_or_else(ConversationId::fresh);
    connection.execute(
        "INSERT INTO sessions (session_id, project_id, agent, conversation_id, title, model, created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)",
        (&new.id, &new.project, new.agent, &conversation, new.title.trim(), new.agent.default_model(), now),
    )?;
    Ok(())
}

fn check_title(text: &str) -> Result<&str, Fault> {
    let text = text.trim();
    if text.is_empty() || text.chars().count() > TITLE_CHARS_MAX {
        return Err(Fault::validation(format!("A title has 1 to {TITLE_CHARS_MAX} characters.")));
    }
    Ok(text)
}

pub(in crate::desktop::demo) fn rename(connection: &Connection, id: &AppSessionId, text: &str, now: i64) -> Result<Session, Fault> {
    connection.execute("UPDATE sessions SET title = ?2, updated_at = ?3 WHERE session_id = ?1", (id, check_title(text)?, now))?;
    get(connection, id)
}

/// Archives or restores. What runs goes on; nothing is sent from the outbox of an archived session.
pub(in crate::desktop::demo) fn set_archived(
    connection: &Connection,
    id: &AppSessionId,
    archived: bool,
    now: i64,
) -> Result<Session, Fault> {
    connection.execute("UPDATE sessions SET is_archived = ?2, updated_at = ?3 WHERE session_id = ?1", (id, archived, now))?;
    get(connection, id)
}

/// Deletes a session and all that is of it.
pub(in crate::desktop::demo) fn delete(connection: &Connection, id: &AppSessionId) -> Result<(), Fault> {
    if get(connection, id)?.is_running {
        return Err(Fault::conflict("The session is running; cancel its run first."));
    }
    connection.execute("DELETE FROM sessions WHERE session_id = ?1", [id])?;
    Ok(())
}

/// What has been read stays read; a sequence above the newest means all.
pub(in crate::desktop::demo) fn mark_read(connection: &Connection, id: &AppSessionId, through: Option<i64>) -> Result<Session, Fault> {
    connection.execute(
        "UPDATE sessions SET read_through = max(read_through, min(latest_sequence, coalesce(?2, latest_sequence))) WHERE session_id = ?1",
        (id, through),
    )?;
    get(connection, id)
}

pub(in crate::desktop::demo) fn settings(connection: &Connection, id: &AppSessionId) -> Result<ChatSettings, Fault> {
    let read = |row: &Row<'_>| Ok(ChatSettings { model: row.get(0)?, speed_mode: row.get(1)?, access_mode: row.get(2)? });
    let found = connection.query_row("SELECT model, speed_mode, access_mode FROM sessions WHERE session_id = ?1", [id], read).optional()?;
    found.ok_or_else(|| Fault::not_found("session"))
}

/// Changes what is given.
pub(in crate::desktop::demo) fn update_settings(
    connection: &Connection,
    id: &AppSessionId,
    model: Option<&str>,
    speed_mode: Option<SpeedMode>,
    access_mode: Option<AccessMode>,
) -> Result<ChatSettings, Fault> {
    connection.execute(
        "UPDATE sessions SET model = coalesce(?2, model), speed_mode = coalesce(?3, speed_mode), access_mode = coalesce(?4, access_mode)
         WHERE session_id = ?1",
        (id, model, speed_mode, access_mode),
    )?;
    settings(connection, id)
}

/// The last overview that the agent measured; none before the first.
pub(in crate::desktop::demo) fn context_usage(connection: &Connection, id: &AppSessionId) -> Result<Option<ContextUsage>, Fault> {
    let read = |row: &Row<'_>| Ok(row.get::<_, Option<i64>>(0)?.zip(row.get::<_, Option<i64>>(1)?));
    let found =
        connection.query_row("SELECT context_tokens, context_measured_at FROM sessions WHERE session_id = ?1", [id], read).optional()?;
    let measured = found.ok_or_else(|| Fault::not_found("session"))?;
    Ok(measured.map(|(used_tokens, measured_at)| ContextUsage { used_tokens, window_tokens: CONTEXT_WINDOW_TOKENS, measured_at }))
}

/// An entry, or a session by its title alone, that has the text searched for.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::desktop::demo) struct Match {
    pub(in crate::desktop::demo) session_id: AppSessionId,
    pub(in crate::desktop::demo) title: String,
    /// Of the entry; null where the title matches.
    pub(in crate::desktop::demo) sequence: Option<i64>,
    /// The beginning of what matches.
    pub(in crate::desktop::demo) snippet: String,
}

/// Titles, then entries, newest first. Case counts for letters beyond ASCII only.
pub(in crate::desktop::demo) fn search(connection: &Connection, query: &str, limit: usize) -> Result<Vec<Match>, Fault> {
    if query.trim().is_empty() || query.len() > QUERY_BYTES_MAX {
        return Err(Fault::invalid(format!("query is not blank and has at most {QUERY_BYTES_MAX} bytes")));
    }
    let pattern = format!("%{}%", query.replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_"));
    let mut statement = connection.prepare(
        r"SELECT session_id, title, NULL AS sequence, title, 0 AS is_entry, updated_at AS at FROM sessions WHERE title LIKE ?1 ESCAPE '\'
          UNION ALL
          SELECT session_id, title, sequence, substr(text, 1, ?3), 1, entries.created_at FROM entries JOIN sessions USING (session_id)
          WHERE text LIKE ?1 ESCAPE '\'
          ORDER BY is_entry, at DESC, sequence DESC LIMIT ?2",
    )?;
    let rows = statement.query_map((pattern, bound(limit), bound(SNIPPET_CHARS)), |row| {
        Ok(Match { session_id: row.get(0)?, title: row.get(1)?, sequence: row.get(2)?, snippet: row.get(3)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A small number as SQLite has it.
pub(super) fn bound(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
