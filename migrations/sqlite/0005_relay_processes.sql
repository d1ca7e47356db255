-- Relay processes that use this database. Ids are lower-case UUID texts, times are epoch milliseconds.

CREATE TABLE relay_processes (
    -- Its relayInstanceId.
    instance     TEXT    NOT NULL PRIMARY KEY,
    version      TEXT    NOT NULL,
    host         TEXT    NOT NULL,
    pid          INTEGER NOT NULL,
    -- Whether it is leaving.
    draining     INTEGER NOT NULL CHECK (draining IN (0, 1)),
    started_at   INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    -- Without renewal the process counts as dead from then on, and any other may take the row away.
    expires_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
