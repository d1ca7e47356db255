-- State of a demo desktop. Times are epoch milliseconds.
CREATE TABLE desktop (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    reply_style TEXT NOT NULL
) STRICT;
INSERT INTO desktop VALUES (1, 'default');

CREATE TABLE projects (
    project_id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects,
    agent TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    title TEXT NOT NULL,
    is_archived INTEGER NOT NULL DEFAULT 0,
    model TEXT NOT NULL,
    speed_mode TEXT NOT NULL DEFAULT 'standard',
    access_mode TEXT NOT NULL DEFAULT 'readOnly',
    -- The last overview that the agent measured, and when.
    context_tokens INTEGER,
    context_measured_at INTEGER,
    -- The sequence of the newest entry; entries are numbered from 1 without a gap.
    latest_sequence INTEGER NOT NULL DEFAULT 0,
    read_through INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (project_id, agent, conversation_id)
) STRICT;

CREATE TABLE entries (
    session_id TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
    sequence INTEGER NOT NULL,
    entry_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    run_id TEXT,
    operation_id TEXT,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (session_id, sequence)
) STRICT, WITHOUT ROWID;
-- A message enters the timeline once, whatever else goes wrong.
CREATE UNIQUE INDEX entries_operation ON entries (session_id, operation_id) WHERE operation_id IS NOT NULL;
CREATE INDEX entries_run ON entries (session_id, run_id) WHERE run_id IS NOT NULL;

CREATE TABLE outbox (
    -- What is sent first has the least.
    position INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
    queue_id TEXT NOT NULL,
    operation_id TEXT NOT NULL,
    user_text TEXT NOT NULL,
    prompt_text TEXT NOT NULL,
    speed_mode TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (session_id, queue_id)
) STRICT;

-- What has been asked for, also when it has left the outbox long ago.
CREATE TABLE operations (
    session_id TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
    operation_id TEXT NOT NULL,
    queue_id TEXT NOT NULL,
    -- SHA-256 of the request.
    fingerprint BLOB NOT NULL,
    PRIMARY KEY (session_id, operation_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    run_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions ON DELETE CASCADE,
    turn_id TEXT NOT NULL,
    operation_id TEXT NOT NULL,
    prompt_text TEXT NOT NULL,
    reply_style TEXT NOT NULL,
    state TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER
) STRICT;
CREATE UNIQUE INDEX runs_one_at_a_time ON runs (session_id) WHERE state = 'running';
