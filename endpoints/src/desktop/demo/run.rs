//! `run.*`: timelines, the outbox, and what the agents do.
//!
//! Methods about the outbox and about single runs name a session `sessionId`, those about a timeline `appSessionId`, as leases and
//! `chat:stream` do: the seed has both words.

use super::{
    fault::Fault,
    id::{AppSessionId, RunId},
    limits::{PAGE_BYTES_MAX, PAGE_ENTRIES_DEFAULT, PAGE_ENTRIES_MAX, RECONCILE_SESSION_BYTES_MAX, TEXT_BYTES_MAX},
    methods::{Methods, Shared},
    model::{Agent, ContextUsage, OutboxEntry, Run, StorageFormat},
    script,
    store::{
        outbox::{self, Edit, Receipt, StopAndSendNow, Waiting, WorkspaceChatOutboxSubmitRequest},
        runs, sessions,
        timeline::{self, End, Page},
    },
};
use crate::{
    clock,
    desktop::router::{Namespace, NoParams},
};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LoadParams {
    app_session_id: AppSessionId,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageParams {
    app_session_id: AppSessionId,
    cursor: String,
    limit: Option<usize>,
}

#[derive(Deserialize)]
struct ReconcileParams {
    sessions: Vec<Known>,
}

/// What a phone has of a session.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    session_id: AppSessionId,
    #[serde(default)]
    latest_sequence: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfTimeline {
    app_session_id: AppSessionId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfOutbox {
    session_id: AppSessionId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelParams {
    session_id: AppSessionId,
    run_id: RunId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImproveParams {
    app_session_id: AppSessionId,
    text: String,
    mode: script::Improvement,
}

/// A timeline as a phone first shows it: its newest page, and what goes on.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Loaded {
    app_session_id: AppSessionId,
    agent: Agent,
    storage_format: StorageFormat,
    history_revision: i64,
    #[serde(flatten)]
    page: Page,
    /// Null while the session is idle.
    run: Option<Run>,
    /// What the run has said so far, under the key of its drafts.
    draft: Option<Draft>,
    context_usage: Option<ContextUsage>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Draft {
    timeline_key: String,
    text: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Older {
    app_session_id: AppSessionId,
    #[serde(flatten)]
    page: Page,
}

#[derive(Serialize)]
struct Reconciliation {
    sessions: Vec<Reconciled>,
}

/// A session as it is now. One that is gone has no more than its id, and says so.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reconciled {
    session_id: AppSessionId,
    is_gone: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_format: Option<StorageFormat>,
    history_revision: i64,
    /// What the phone lacks at the end of its timeline. With `olderCursor` there is more before it.
    #[serde(flatten)]
    page: Page,
    outbox_entries: Vec<OutboxEntry>,
    run: Option<Run>,
}

#[derive(Serialize)]
struct Submitted {
    entries: Vec<OutboxEntry>,
    receipt: Receipt,
}

#[derive(Serialize)]
struct Entries {
    entries: Vec<OutboxEntry>,
}

#[derive(Serialize)]
struct RunOf {
    run: Option<Run>,
}

#[derive(Serialize)]
struct Runs {
    runs: Vec<Run>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    context_usage: Option<ContextUsage>,
}

#[derive(Serialize)]
struct Text {
    text: String,
}

fn page(connection: &Connection, session: &AppSessionId, end: End, limit: Option<usize>) -> Result<Page, Fault> {
    let entries_max = limit.unwrap_or(PAGE_ENTRIES_DEFAULT).clamp(1, PAGE_ENTRIES_MAX);
    timeline::page(connection, session, end, entries_max, PAGE_BYTES_MAX)
}

fn load(connection: &Connection, LoadParams { app_session_id, limit }: LoadParams) -> Result<Loaded, Fault> {
    let session = sessions::get(connection, &app_session_id)?;
    Ok(Loaded {
        agent: session.agent,
        storage_format: session.agent.storage_format(),
        history_revision: session.latest_sequence,
        page: page(connection, &app_session_id, End::NEWEST, limit)?,
        run: runs::active(connection, &app_session_id)?,
        draft: None,
        context_usage: sessions::context_usage(connection, &app_session_id)?,
        app_session_id,
    })
}

fn load_before(connection: &Connection, PageParams { app_session_id, cursor, limit }: PageParams) -> Result<Older, Fault> {
    let end = End::of_cursor(&cursor)?;
    sessions::get(connection, &app_session_id)?;
    Ok(Older { page: page(connection, &app_session_id, end, limit)?, app_session_id })
}

fn reconcile(connection: &Connection, known: &Known) -> Result<Reconciled, Fault> {
    let Ok(session) = sessions::get(connection, &known.session_id) else {
        let page = Page { entries: Vec::new(), older_cursor: None };
        let session_id = known.session_id.clone();
        let (storage_format, run, outbox_entries) = (None, None, Vec::new());
        return Ok(Reconciled { session_id, is_gone: true, storage_format, history_revision: 0, page, outbox_entries, run });
    };
    let outbox_entries = outbox::list(connection, &session.session_id)?;
    let room = RECONCILE_SESSION_BYTES_MAX - outbox_entries.iter().map(timeline::json_bytes).sum::<usize>();
    Ok(Reconciled {
        is_gone: false,
        storage_format: Some(session.agent.storage_format()),
        history_revision: session.latest_sequence,
        page: timeline::page_behind(connection, &session.session_id, known.latest_sequence, PAGE_ENTRIES_MAX, room)?,
        run: runs::active(connection, &session.session_id)?,
        outbox_entries,
        session_id: session.session_id,
    })
}

fn submitted(connection: &Connection, session: &AppSessionId, receipt: Receipt) -> Result<Submitted, Fault> {
    Ok(Submitted { entries: outbox::list(connection, session)?, receipt })
}

pub(super) fn namespace(shared: &Shared) -> Namespace {
    let timelines = Methods::new("run", shared)
        .on("chatLoad", |_call, params: LoadParams, shared| async move {
            let loaded = shared.database.read(|connection| load(connection, params)).await?;
            let draft = loaded.run.as_ref().and_then(|run| Some((run, shared.progress.draft(run)?)));
            let draft = draft.map(|(run, text)| Draft { timeline_key: run.timeline_key(), text });
            Ok(Loaded { draft, ..loaded })
        })
        .reads("chatLoadPageBefore", load_before)
        .reads("chatReconcileSessions", |connection, ReconcileParams { sessions }| {
            let sessions = sessions.iter().map(|known| reconcile(connection, known)).collect::<Result<_, _>>()?;
            Ok(Reconciliation { sessions })
        })
        .reads("chatContextUsage", |connection, OfTimeline { app_session_id }| {
            Ok(Usage { context_usage: sessions::context_usage(connection, &app_session_id)? })
        })
        .reads("improveText", |connection, ImproveParams { app_session_id, text, mode }| {
            sessions::get(connection, &app_session_id)?;
            if text.len() > TEXT_BYTES_MAX {
                return Err(Fault::validation(format!("A text has at most {TEXT_BYTES_MAX} bytes.")));
            }
            Ok(Text { text: script::improve(&text, mode) })
        });
    let with_outbox = timelines
        .writes("chatOutboxSubmit", |transaction, request: WorkspaceChatOutboxSubmitRequest, _now| {
            let receipt = outbox::submit(transaction, &request)?;
            submitted(transaction, &request.session_id, receipt)
        })
        .reads("chatOutboxList", |connection, OfOutbox { session_id }| Ok(Entries { entries: outbox::list(connection, &session_id)? }))
        .writes("chatOutboxUpdate", |transaction, edit: Edit, _now| {
            let receipt = outbox::update(transaction, &edit)?;
            submitted(transaction, &edit.session_id, receipt)
        })
        .writes("chatOutboxRemove", |transaction, message: Waiting, _now| {
            outbox::remove(transaction, &message)?;
            Ok(Entries { entries: outbox::list(transaction, &message.session_id)? })
        })
        .on("chatOutboxStopAndSendNow", |call, request: StopAndSendNow, shared| async move {
            // The run must not stay stopped without the message, nor the agents be left unaware, because the relay waits no more.
            call.finish(async move {
                let now = clock::epoch_ms_signed();
                let (session, stopped) = (request.session_id.clone(), request.expected_run_id.clone());
                let sent = shared.database.write(move |transaction| {
                    let receipt = outbox::stop_and_send_now(transaction, &request, now)?;
                    submitted(transaction, &request.session_id, receipt)
                });
                let sent = sent.await?;
                shared.progress.stop(&session, &stopped);
                Ok(sent)
            })
            .await
        });
    with_outbox
        .on("cancel", |_call, CancelParams { session_id, run_id }, shared| async move {
            let now = clock::epoch_ms_signed();
            let run = shared.database.write(move |transaction| runs::cancel(transaction, &session_id, &run_id, now)).await?;
            shared.progress.stop(&run.session_id, &run.run_id);
            Ok(RunOf { run: Some(run) })
        })
        .reads("getRunState", |connection, OfOutbox { session_id }| {
            sessions::get(connection, &session_id)?;
            Ok(RunOf { run: runs::active(connection, &session_id)? })
        })
        .reads("listActiveRuns", |connection, NoParams {}| Ok(Runs { runs: runs::all_active(connection)? }))
        .finish()
}
