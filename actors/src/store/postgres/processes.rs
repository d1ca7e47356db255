//! The SQL of the table of relay processes.

use super::statements::{Call, call, column};
use crate::{
    clock::EpochMs,
    store::{LiveProcess, ProcessRecord, StoreError},
};
use relay_protocol::id::RelayInstanceId;
use std::time::Duration;
use tokio_postgres::Row;

macro_rules! columns {
    () => {
        "instance, version, host, pid, draining, started_at, last_seen_at"
    };
}

/// Rows that are being renewed or removed elsewhere are passed over, and the own one comes first, which who reads its id sees to: after an
/// outage every process may find every other's expired, and must not wait for it in a circle.
const RENEW: &str = concat!(
    "WITH clock AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now), \
     own AS (INSERT INTO relay_processes (",
    columns!(),
    ", expires_at) SELECT $1::uuid, $2::text, $3::text, $4::bigint, $5::boolean, $6::bigint, now, now + $7::bigint FROM clock \
     ON CONFLICT (instance) DO UPDATE SET draining = excluded.draining, last_seen_at = excluded.last_seen_at, \
     expires_at = excluded.expires_at RETURNING instance), \
     expired AS MATERIALIZED (SELECT instance FROM relay_processes WHERE instance <> (SELECT instance FROM own) \
     AND expires_at <= (SELECT now FROM clock) FOR UPDATE SKIP LOCKED), \
     removed AS (DELETE FROM relay_processes USING expired WHERE relay_processes.instance = expired.instance), \
     live AS (SELECT $1::uuid AS instance, $2::text AS version, $3::text AS host, $4::bigint AS pid, $5::boolean AS draining, \
     $6::bigint AS started_at, now AS last_seen_at FROM clock UNION ALL SELECT ",
    columns!(),
    " FROM relay_processes WHERE instance <> $1::uuid AND expires_at > (SELECT now FROM clock)) \
     SELECT instance, version, host, pid, draining, started_at, greatest(now - last_seen_at, 0) AS last_seen FROM live, clock \
     ORDER BY started_at, instance"
);

const REMOVE: &str = "DELETE FROM relay_processes WHERE instance = $1";

pub(super) fn renew(own: ProcessRecord, good_for: Duration) -> Call {
    let ProcessRecord { instance, version, host, pid, started_at, is_draining } = own;
    let good_for_ms = i64::try_from(good_for.as_millis()).unwrap_or(i64::MAX);
    call!(RENEW, instance.0, version, host, i64::from(pid), is_draining, started_at.0, good_for_ms)
}

pub(super) fn remove(instance: RelayInstanceId) -> Call {
    call!(REMOVE, instance.0)
}

pub(super) fn live_process(row: &Row) -> Result<LiveProcess, StoreError> {
    let number = |name| column::<i64>(row, name).map(|number| u64::try_from(number).unwrap_or(0));
    Ok(LiveProcess {
        record: ProcessRecord {
            instance: RelayInstanceId(column(row, "instance")?),
            version: column(row, "version")?,
            host: column(row, "host")?,
            pid: u32::try_from(number("pid")?).unwrap_or(u32::MAX),
            started_at: EpochMs(column(row, "started_at")?),
            is_draining: column(row, "draining")?,
        },
        last_seen: Duration::from_millis(number("last_seen")?),
    })
}
