//! Runs: from the moment a message leaves the outbox until its agent has answered it or was stopped.
//!
//! A message leaves the outbox, enters the timeline and gets its run in one transaction, and a run ends in one with its answer. So
//! whatever dies in between, a message is in one place, and a run that was cut off is there to go on with.

use super::{
    desktop, sessions,
    timeline::{self, Origin},
};
use crate::desktop::demo::{
    fault::Fault,
    id::{AppSessionId, OperationId, QueueId, RunId, TurnId},
    model::{EntryKind, Run, RunState},
};
use rusqlite::{Connection, OptionalExtension, Row};

const SELECT: &str =
    "SELECT run_id, session_id, conversation_id, turn_id, operation_id, state, started_at, ended_at, prompt_text, reply_style
    FROM runs JOIN sessions USING (session_id)";

fn run(row: &Row<'_>) -> rusqlite::Result<Run> {
    Ok(Run {
        run_id: row.get(0)?,
        session_id: row.get(1)?,
        thread_id: row.get(2)?,
        turn_id: row.get(3)?,
        operation_id: row.get(4)?,
        state: row.get(5)?,
        started_at: row.get(6)?,
        ended_at: row.get(7)?,
        prompt_text: row.get(8)?,
        reply_style: row.get(9)?,
    })
}

/// The run of a session that is not over.
pub(in crate::desktop::demo) fn active(connection: &Connection, session: &AppSessionId) -> Result<Option<Run>, Fault> {
    Ok(connection.query_row(&format!("{SELECT} WHERE session_id = ?1 AND state = 'running'"), [session], run).optional()?)
}

/// All runs that are not over.
pub(in crate::desktop::demo) fn all_active(connection: &Connection) -> Result<Vec<Run>, Fault> {
    let mut statement = connection.prepare_cached(&format!("{SELECT} WHERE state = 'running' ORDER BY started_at, run_id"))?;
    Ok(statement.query_map((), run)?.collect::<Result<_, _>>()?)
}

/// Any run of a session.
pub(in crate::desktop::demo) fn get(connection: &Connection, session: &AppSessionId, id: &RunId) -> Result<Run, Fault> {
    let found = connection.query_row(&format!("{SELECT} WHERE session_id = ?1 AND run_id = ?2"), (session, id), run).optional()?;
    found.ok_or_else(|| Fault::not_found("run"))
}

/// Has each idle session take up the first message of its outbox.
pub(in crate::desktop::demo) fn begin_all(connection: &Connection, now: i64) -> Result<(), Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT session_id, queue_id, operation_id, user_text, prompt_text, min(position) FROM outbox JOIN sessions USING (session_id)
         WHERE NOT is_archived
           AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.session_id = outbox.session_id AND state = 'running')
         GROUP BY session_id ORDER BY min(position)",
    )?;
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?));
    let first: Vec<(AppSessionId, QueueId, OperationId, String, String)> = statement.query_map((), read)?.collect::<Result<_, _>>()?;
    for (session, queue, operation, user_text, prompt_text) in first {
        let id = RunId::fresh();
        connection.execute("DELETE FROM outbox WHERE session_id = ?1 AND queue_id = ?2", (&session, queue))?;
        connection.execute(
            "INSERT INTO runs (run_id, session_id, turn_id, operation_id, prompt_text, reply_style, state, started_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'running', ?7)",
            (&id, &session, TurnId::fresh(), &operation, prompt_text, desktop::reply_style(connection)?, now),
        )?;
        let origin = Origin { run: Some(&id), operation: Some(&operation) };
        timeline::append(connection, &session, EntryKind::UserMessage, &user_text, origin, now)?;
    }
    Ok(())
}

/// How a run ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::desktop::demo) enum Ending<'a> {
    /// With an answer, and a measurement of the context.
    Completed { answer: &'a str, context_tokens: i64 },
    /// By somebody's will.
    Cancelled,
}

/// Ends a run that is active. False: it is over already, and nothing changes.
pub(in crate::desktop::demo) fn end(
    connection: &Connection,
    session: &AppSessionId,
    id: &RunId,
    ending: Ending<'_>,
    now: i64,
) -> Result<bool, Fault> {
    let (state, kind, text) = match ending {
        Ending::Completed { answer, .. } => (RunState::Completed, EntryKind::AgentMessage, answer),
        Ending::Cancelled => (RunState::Cancelled, EntryKind::Notice, "The run was cancelled."),
    };
    let ended = connection.execute(
        "UPDATE runs SET state = ?3, ended_at = ?4 WHERE session_id = ?1 AND run_id = ?2 AND state = 'running'",
        (session, id, state, now),
    )?;
    if ended == 0 {
        return Ok(false);
    }
    timeline::append(connection, session, kind, text, Origin { run: Some(id), operation: None }, now)?;
    if let Ending::Completed { context_tokens, .. } = ending {
        connection.execute(
            "UPDATE sessions SET context_tokens = coalesce(context_tokens, 0) + ?2, context_measured_at = ?3 WHERE session_id = ?1",
            (session, context_tokens, now),
        )?;
    }
    Ok(true)
}

/// Stops exactly this run (capability `run.cancel.exact-run.v1`).
pub(in crate::desktop::demo) fn cancel(connection: &Connection, session: &AppSessionId, id: &RunId, now: i64) -> Result<Run, Fault> {
    sessions::get(connection, session)?;
    if get(connection, session, id)?.state != RunState::Running {
        return Err(Fault::conflict("The run is over."));
    }
    end(connection, session, id, Ending::Cancelled, now)?;
    get(connection, session, id)
}
