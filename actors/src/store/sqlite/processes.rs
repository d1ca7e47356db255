//! The SQL of the table of relay processes.

use super::statements::{parsed, writing};
use crate::{
    clock::EpochMs,
    store::{LiveProcess, ProcessRecord},
};
use relay_protocol::id::RelayInstanceId;
use rusqlite::{Connection, Row};
use std::time::Duration;

/// `'now'` is the same within one statement only.
const NOW: &str = "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";

const RENEW: &str = "INSERT INTO relay_processes (instance, version, host, pid, draining, started_at, last_seen_at, expires_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
     ON CONFLICT (instance) DO UPDATE SET draining = excluded.draining, last_seen_at = excluded.last_seen_at, expires_at = excluded.expires_at";

pub(super) fn renew(connection: &mut Connection, own: &ProcessRecord, good_for: Duration) -> rusqlite::Result<Vec<LiveProcess>> {
    let transaction = writing(connection)?;
    let now = EpochMs(transaction.prepare_cached(NOW)?.query_one((), |row| row.get(0))?);
    transaction.prepare_cached("DELETE FROM relay_processes WHERE expires_at <= ?1")?.execute([now.0])?;
    let ProcessRecord { instance, version, host, pid, started_at, is_draining } = own;
    let expires_at = now.plus(good_for);
    transaction.prepare_cached(RENEW)?.execute((
        instance.to_string(),
        version,
        host,
        pid,
        is_draining,
        started_at.0,
        now.0,
        expires_at.0,
    ))?;
    let live = transaction
        .prepare_cached("SELECT * FROM relay_processes ORDER BY started_at, instance")?
        .query_map((), |row| live_process(row, now))?
        .collect::<rusqlite::Result<_>>()?;
    transaction.commit()?;
    Ok(live)
}

pub(super) fn remove(connection: &Connection, instance: RelayInstanceId) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM relay_processes WHERE instance = ?1")?.execute([instance.to_string()])?;
    Ok(())
}

fn live_process(row: &Row<'_>, now: EpochMs) -> rusqlite::Result<LiveProcess> {
    let last_seen_at: i64 = row.get("last_seen_at")?;
    Ok(LiveProcess {
        record: ProcessRecord {
            instance: parsed(row, "instance")?,
            version: row.get("version")?,
            host: row.get("host")?,
            pid: row.get("pid")?,
            started_at: EpochMs(row.get("started_at")?),
            is_draining: row.get("draining")?,
        },
        // The clock may have been set back since.
        last_seen: Duration::from_millis(u64::try_from(now.0.saturating_sub(last_seen_at)).unwrap_or(0)),
    })
}
