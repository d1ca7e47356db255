//! Entries of timelines, and pages of them.
//!
//! Entries are added at the end and never renumbered, so that a cursor, which is a sequence, means the same however many have come.

use super::sessions::bound;
use crate::desktop::demo::{
    fault::Fault,
    id::{AppSessionId, EntryId, OperationId, RunId},
    model::{Entry, EntryKind},
};
use rusqlite::{Connection, Row};
use serde::Serialize;

const SELECT: &str = "SELECT entry_id, sequence, kind, text, run_id, operation_id, created_at FROM entries WHERE session_id = ?1";
/// How a cursor begins, so that a made-up one is told from ours, and a later form from this one.
const CURSOR_PREFIX: &str = "before-";

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        entry_id: row.get(0)?,
        sequence: row.get(1)?,
        kind: row.get(2)?,
        text: row.get(3)?,
        run_id: row.get(4)?,
        operation_id: row.get(5)?,
        created_at: row.get(6)?,
    })
}

/// A run of entries, oldest first.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::desktop::demo) struct Page {
    pub(in crate::desktop::demo) entries: Vec<Entry>,
    /// For the page before this one; null at the beginning of the timeline.
    pub(in crate::desktop::demo) older_cursor: Option<String>,
}

/// Where a page ends: before a sequence, or with the newest entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::desktop::demo) struct End(i64);

impl End {
    pub(in crate::desktop::demo) const NEWEST: End = End(i64::MAX);

    /// Where a page that was read before begins.
    pub(in crate::desktop::demo) fn of_cursor(cursor: &str) -> Result<Self, Fault> {
        let sequence = cursor.strip_prefix(CURSOR_PREFIX).and_then(|number| number.parse().ok()).filter(|sequence| *sequence > 1);
        sequence.map(End).ok_or_else(|| Fault::invalid("cursor is not one that this desktop gave"))
    }
}

/// The newest entries before `end`, as many as fit both bounds.
pub(in crate::desktop::demo) fn page(
    connection: &Connection,
    session: &AppSessionId,
    end: End,
    entries_max: usize,
    bytes_max: usize,
) -> Result<Page, Fault> {
    between(connection, session, 0, end, entries_max, bytes_max)
}

/// The newest entries behind the ones that somebody has, which is up to `known`. With a cursor there are more of them.
pub(in crate::desktop::demo) fn page_behind(
    connection: &Connection,
    session: &AppSessionId,
    known: i64,
    entries_max: usize,
    bytes_max: usize,
) -> Result<Page, Fault> {
    between(connection, session, known.max(0), End::NEWEST, entries_max, bytes_max)
}

fn between(
    connection: &Connection,
    session: &AppSessionId,
    after: i64,
    end: End,
    entries_max: usize,
    bytes_max: usize,
) -> Result<Page, Fault> {
    let mut statement =
        connection.prepare_cached(&format!("{SELECT} AND sequence < ?2 AND sequence > ?3 ORDER BY sequence DESC LIMIT ?4"))?;
    let rows = statement.query_map((session, end.0, after, bound(entries_max)), entry)?;
    let (mut entries, mut bytes) = (Vec::new(), 0);
    // The sequence that the next page ends before.
    let mut begin = after + 1;
    for row in rows {
        let entry = row?;
        bytes += json_bytes(&entry);
        if bytes > bytes_max {
            begin = entry.sequence + 1;
            break;
        }
        begin = entry.sequence;
        entries.push(entry);
    }
    entries.reverse();
    Ok(Page { entries, older_cursor: (begin > after + 1).then(|| format!("{CURSOR_PREFIX}{begin}")) })
}

/// How long a value is as JSON, the comma after it counted.
pub(in crate::desktop::demo) fn json_bytes(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |text| text.len() + 1)
}

/// Whose an entry is.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::desktop::demo) struct Origin<'a> {
    pub(in crate::desktop::demo) run: Option<&'a RunId>,
    pub(in crate::desktop::demo) operation: Option<&'a OperationId>,
}

/// Adds an entry at the end.
pub(in crate::desktop::demo) fn append(
    connection: &Connection,
    session: &AppSessionId,
    kind: EntryKind,
    text: &str,
    origin: Origin<'_>,
    now: i64,
) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE sessions SET latest_sequence = latest_sequence + 1, updated_at = max(updated_at, ?2) WHERE session_id = ?1",
        (session, now),
    )?;
    connection.execute(
        "INSERT INTO entries (session_id, sequence, entry_id, kind, text, run_id, operation_id, created_at)
         SELECT session_id, latest_sequence, ?2, ?3, ?4, ?5, ?6, ?7 FROM sessions WHERE session_id = ?1",
        (session, EntryId::fresh(), kind, text, origin.run, origin.operation, now),
    )?;
    Ok(())
}

/// What a run has added, oldest first.
pub(in crate::desktop::demo) fn of_run(connection: &Connection, session: &AppSessionId, run: &RunId) -> Result<Vec<Entry>, Fault> {
    let mut statement = connection.prepare_cached(&format!("{SELECT} AND run_id = ?2 ORDER BY sequence"))?;
    Ok(statement.query_map((session, run), entry)?.collect::<Result<_, _>>()?)
}
