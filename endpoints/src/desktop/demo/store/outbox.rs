//! Messages that wait, and the operations that brought them.
//!
//! An operation is something that somebody wanted once. Its fingerprint is kept for as long as its session, so that a repeat, however
//! late and under whatever idempotency key, is known: the same again is answered with the same receipt, anything else is a conflict.

use super::{runs, sessions, timeline};
use crate::desktop::demo::{
    fault::Fault,
    id::{AppSessionId, ConversationId, OperationId, QueueId, RunId, TurnId},
    limits::{ENTRIES_PER_SESSION_MAX, OUTBOX_BYTES_MAX, OUTBOX_ENTRIES_MAX, TEXT_BYTES_MAX},
    model::{AccessMode, ChatSettings, OutboxEntry, SpeedMode},
};
use crate::desktop::router::HandlerError;
use relay_protocol::desktop_error::DesktopError;
use rusqlite::{Connection, OptionalExtension, Row};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What is to become of a message.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::desktop::demo) enum Intent {
    /// It is kept until its turn.
    Enqueue,
}

/// When its turn is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::desktop::demo) enum SendMode {
    /// Behind the others, when the session is idle.
    Queue,
}

/// Where it was written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::desktop::demo) enum Source {
    Composer,
}

/// Params of `run.chatOutboxSubmit` (seed "A concrete mutation"). All of it is the operation's payload.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::desktop::demo) struct WorkspaceChatOutboxSubmitRequest {
    pub(in crate::desktop::demo) queue_id: QueueId,
    pub(in crate::desktop::demo) operation_id: OperationId,
    pub(in crate::desktop::demo) session_id: AppSessionId,
    pub(in crate::desktop::demo) user_text: String,
    pub(in crate::desktop::demo) prompt_text: String,
    pub(in crate::desktop::demo) attachments: Vec<serde_json::Value>,
    pub(in crate::desktop::demo) speed_mode: SpeedMode,
    pub(in crate::desktop::demo) created_at: i64,
    pub(in crate::desktop::demo) updated_at: i64,
    pub(in crate::desktop::demo) intent: Intent,
    pub(in crate::desktop::demo) send_mode: SendMode,
    pub(in crate::desktop::demo) source: Source,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::desktop::demo) thread_id: Option<ConversationId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::desktop::demo) expected_chat_settings: Option<ChatSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::desktop::demo) access_mode: Option<AccessMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::desktop::demo) expected_active_run_id: Option<RunId>,
}

/// A waiting message that a phone names: both ids, so that a stale one means nothing else.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::desktop::demo) struct Waiting {
    pub(in crate::desktop::demo) session_id: AppSessionId,
    pub(in crate::desktop::demo) queue_id: QueueId,
    pub(in crate::desktop::demo) operation_id: OperationId,
}

/// Params of `run.chatOutboxUpdate`. An edited message is another operation (seed), so it brings an id of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::desktop::demo) struct Edit {
    pub(in crate::desktop::demo) session_id: AppSessionId,
    pub(in crate::desktop::demo) queue_id: QueueId,
    pub(in crate::desktop::demo) operation_id: OperationId,
    pub(in crate::desktop::demo) new_operation_id: OperationId,
    pub(in crate::desktop::demo) user_text: String,
    pub(in crate::desktop::demo) prompt_text: String,
    pub(in crate::desktop::demo) updated_at: i64,
}

/// Params of `run.chatOutboxStopAndSendNow` (seed): the message, and the run that the phone saw.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::desktop::demo) struct StopAndSendNow {
    pub(in crate::desktop::demo) session_id: AppSessionId,
    pub(in crate::desktop::demo) queue_id: QueueId,
    pub(in crate::desktop::demo) operation_id: OperationId,
    pub(in crate::desktop::demo) expected_run_id: RunId,
    pub(in crate::desktop::demo) expected_thread_id: ConversationId,
    pub(in crate::desktop::demo) expected_turn_id: TurnId,
}

/// That an operation is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::desktop::demo) struct Receipt {
    pub(in crate::desktop::demo) queue_id: QueueId,
    pub(in crate::desktop::demo) operation_id: OperationId,
}

fn outbox_entry(row: &Row<'_>) -> rusqlite::Result<OutboxEntry> {
    Ok(OutboxEntry {
        queue_id: row.get(0)?,
        operation_id: row.get(1)?,
        user_text: row.get(2)?,
        prompt_text: row.get(3)?,
        speed_mode: row.get(4)?,
        created_at: row.get(5)?,
        updated_at: row.get(6)?,
    })
}

/// What waits, in the order in which it is sent.
pub(in crate::desktop::demo) fn list(connection: &Connection, session: &AppSessionId) -> Result<Vec<OutboxEntry>, Fault> {
    sessions::get(connection, session)?;
    let mut statement = connection.prepare_cached(
        "SELECT queue_id, operation_id, user_text, prompt_text, speed_mode, created_at, updated_at
         FROM outbox WHERE session_id = ?1 ORDER BY position",
    )?;
    Ok(statement.query_map([session], outbox_entry)?.collect::<Result<_, _>>()?)
}

/// Puts a message at the back; or finds that its operation is known, and changes nothing.
pub(in crate::desktop::demo) fn submit(connection: &Connection, request: &WorkspaceChatOutboxSubmitRequest) -> Result<Receipt, Fault> {
    let session = sessions::get(connection, &request.session_id)?;
    let fingerprint = fingerprint(request);
    if let Some(receipt) = known(connection, &request.session_id, &request.operation_id, &fingerprint)? {
        return Ok(receipt);
    }
    check_text(&request.user_text, &request.prompt_text)?;
    if !request.attachments.is_empty() {
        let error = HandlerError::new(DesktopError::NotImplemented, "This desktop takes no attachments.");
        return Err(Fault::Refused(error));
    }
    if session.is_archived {
        return Err(Fault::conflict("The session is archived; restore it first."));
    }
    if session.latest_sequence >= ENTRIES_PER_SESSION_MAX {
        return Err(Fault::conflict("The session is full; continue in another one."));
    }
    check_expectations(connection, request, &session.conversation_id)?;
    let in_use = connection
        .query_row("SELECT 1 FROM outbox WHERE session_id = ?1 AND queue_id = ?2", (&request.session_id, &request.queue_id), |_row| Ok(()))
        .optional()?;
    if in_use.is_some() {
        return Err(Fault::conflict("Another message has this queueId."));
    }
    connection.execute(
        "INSERT INTO outbox (position, session_id, queue_id, operation_id, user_text, prompt_text, speed_mode, created_at, updated_at)
         VALUES ((SELECT coalesce(max(position), 0) + 1 FROM outbox), ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        (
            &request.session_id,
            &request.queue_id,
            &request.operation_id,
            &request.user_text,
            &request.prompt_text,
            request.speed_mode,
            request.created_at,
            request.updated_at,
        ),
    )?;
    check_room(&list(connection, &request.session_id)?)?;
    remember(connection, &request.session_id, &request.operation_id, &request.queue_id, &fingerprint)?;
    Ok(Receipt { queue_id: request.queue_id.clone(), operation_id: request.operation_id.clone() })
}

/// Changes a waiting message; or finds that the edit has been made.
pub(in crate::desktop::demo) fn update(connection: &Connection, edit: &Edit) -> Result<Receipt, Fault> {
    let fingerprint = fingerprint(edit);
    sessions::get(connection, &edit.session_id)?;
    if let Some(receipt) = known(connection, &edit.session_id, &edit.new_operation_id, &fingerprint)? {
        return Ok(receipt);
    }
    check_text(&edit.user_text, &edit.prompt_text)?;
    let changed = connection.execute(
        "UPDATE outbox SET operation_id = ?4, user_text = ?5, prompt_text = ?6, updated_at = ?7
         WHERE session_id = ?1 AND queue_id = ?2 AND operation_id = ?3",
        (&edit.session_id, &edit.queue_id, &edit.operation_id, &edit.new_operation_id, &edit.user_text, &edit.prompt_text, edit.updated_at),
    )?;
    if changed == 0 {
        return Err(Fault::not_found("message in the outbox"));
    }
    check_room(&list(connection, &edit.session_id)?)?;
    remember(connection, &edit.session_id, &edit.new_operation_id, &edit.queue_id, &fingerprint)?;
    Ok(Receipt { queue_id: edit.queue_id.clone(), operation_id: edit.new_operation_id.clone() })
}

/// Takes a message out before it is sent.
pub(in crate::desktop::demo) fn remove(connection: &Connection, message: &Waiting) -> Result<(), Fault> {
    let Waiting { session_id, queue_id, operation_id } = message;
    let removed = connection.execute(
        "DELETE FROM outbox WHERE session_id = ?1 AND queue_id = ?2 AND operation_id = ?3",
        (session_id, queue_id, operation_id),
    )?;
    if removed == 0 { Err(Fault::not_found("message in the outbox")) } else { Ok(()) }
}

/// Stops the run that the phone saw, and no other, and has the agent take up the message: both, or neither.
pub(in crate::desktop::demo) fn stop_and_send_now(connection: &Connection, request: &StopAndSendNow, now: i64) -> Result<Receipt, Fault> {
    let session = sessions::get(connection, &request.session_id)?;
    if session.is_archived {
        return Err(Fault::conflict("The session is archived; restore it first."));
    }
    let waits = connection
        .query_row(
            "SELECT 1 FROM outbox WHERE session_id = ?1 AND queue_id = ?2 AND operation_id = ?3",
            (&request.session_id, &request.queue_id, &request.operation_id),
            |_row| Ok(()),
        )
        .optional()?;
    waits.ok_or_else(|| Fault::not_found("message in the outbox"))?;
    let seen = runs::active(connection, &request.session_id)?.filter(|run| {
        run.run_id == request.expected_run_id && run.thread_id == request.expected_thread_id && run.turn_id == request.expected_turn_id
    });
    let Some(seen) = seen else {
        return Err(Fault::conflict("The run that was expected is not the one that is active."));
    };
    runs::end(connection, &session.session_id, &seen.run_id, runs::Ending::Cancelled, now)?;
    connection.execute(
        "UPDATE outbox SET position = (SELECT min(position) - 1 FROM outbox) WHERE session_id = ?1 AND queue_id = ?2",
        (&request.session_id, &request.queue_id),
    )?;
    runs::begin_all(connection, now)?;
    Ok(Receipt { queue_id: request.queue_id.clone(), operation_id: request.operation_id.clone() })
}

/// The receipt of an operation that was asked for before with the same payload.
fn known(
    connection: &Connection,
    session: &AppSessionId,
    operation: &OperationId,
    fingerprint: &[u8; 32],
) -> Result<Option<Receipt>, Fault> {
    let found: Option<(QueueId, [u8; 32])> = connection
        .query_row(
            "SELECT queue_id, fingerprint FROM operations WHERE session_id = ?1 AND operation_id = ?2",
            (session, operation),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    match found {
        None => Ok(None),
        Some((queue_id, kept)) if kept == *fingerprint => Ok(Some(Receipt { queue_id, operation_id: operation.clone() })),
        Some(_other) => Err(Fault::conflict("The operationId was used for another payload.")),
    }
}

fn remember(
    connection: &Connection,
    session: &AppSessionId,
    operation: &OperationId,
    queue: &QueueId,
    fingerprint: &[u8; 32],
) -> Result<(), Fault> {
    connection.execute("INSERT INTO operations VALUES (?1, ?2, ?3, ?4)", (session, operation, queue, fingerprint))?;
    Ok(())
}

/// Of what the payload says, not of how it is written: neither the order of its keys nor blanks between them count.
fn fingerprint(payload: &impl Serialize) -> [u8; 32] {
    let text = serde_json::to_vec(payload).expect("ids, texts and JSON values serialize");
    Sha256::digest(text).into()
}

fn check_text(user_text: &str, prompt_text: &str) -> Result<(), Fault> {
    if user_text.trim().is_empty() || prompt_text.trim().is_empty() {
        return Err(Fault::validation("A message has a text."));
    }
    if user_text.len() > TEXT_BYTES_MAX || prompt_text.len() > TEXT_BYTES_MAX {
        return Err(Fault::validation(format!("A text has at most {TEXT_BYTES_MAX} bytes.")));
    }
    Ok(())
}

/// What the phone saw when its message was written must still be so.
fn check_expectations(
    connection: &Connection,
    request: &WorkspaceChatOutboxSubmitRequest,
    conversation: &ConversationId,
) -> Result<(), Fault> {
    if request.thread_id.as_ref().is_some_and(|thread| thread != conversation) {
        return Err(Fault::conflict("The session holds another conversation than threadId."));
    }
    if let Some(expected) = &request.expected_chat_settings
        && sessions::settings(connection, &request.session_id)? != *expected
    {
        return Err(Fault::conflict("The session has other settings than expectedChatSettings."));
    }
    if let Some(expected) = &request.expected_active_run_id
        && runs::active(connection, &request.session_id)?.is_none_or(|run| run.run_id != *expected)
    {
        return Err(Fault::conflict("expectedActiveRunId is not the run that is active."));
    }
    Ok(())
}

/// Judged with the new message in it; a refusal takes that back.
fn check_room(entries: &[OutboxEntry]) -> Result<(), Fault> {
    let bytes: usize = entries.iter().map(timeline::json_bytes).sum();
    if entries.len() <= OUTBOX_ENTRIES_MAX && bytes <= OUTBOX_BYTES_MAX {
        return Ok(());
    }
    let message = format!("The outbox holds {OUTBOX_ENTRIES_MAX} messages and {OUTBOX_BYTES_MAX} bytes; wait until some are sent.");
    Err(Fault::Refused(HandlerError::new(DesktopError::Conflict, message).retryable()))
}
