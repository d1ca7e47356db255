-- Relay processes that use this database. Times are epoch milliseconds; those that others judge by are the server's own.

CREATE TABLE relay_processes (
    -- Its relayInstanceId.
    instance     uuid    NOT NULL PRIMARY KEY,
    version      text    NOT NULL,
    host         text    NOT NULL,
    pid          bigint  NOT NULL,
    -- Whether it is leaving.
    draining     boolean NOT NULL,
    -- By the clock of its host.
    started_at   bigint  NOT NULL,
    last_seen_at bigint  NOT NULL,
    -- Without renewal the process counts as dead from then on, and any other may take the row away.
    expires_at   bigint  NOT NULL
);
