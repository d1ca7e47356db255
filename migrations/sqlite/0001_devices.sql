-- Devices of accounts, with the presence that was last stored. Ids are lower-case UUID texts, times are epoch milliseconds.

CREATE TABLE devices (
    id              TEXT    NOT NULL PRIMARY KEY,
    user_id         TEXT    NOT NULL,
    role            TEXT    NOT NULL CHECK (role IN ('desktop', 'mobile')),
    name            TEXT    NOT NULL,
    platform        TEXT    NOT NULL,
    app_version     TEXT    NOT NULL,
    relay_eligible  INTEGER NOT NULL CHECK (relay_eligible IN (0, 1)),
    status          TEXT    NOT NULL DEFAULT 'disconnected' CHECK (status IN ('online', 'reconnecting', 'disconnected')),
    -- When that presence began; null before the first.
    status_at       INTEGER,
    -- The relay process that wrote it, so that a later process knows which rows a dead one left behind.
    status_instance TEXT,
    -- A forgotten row stays: its id must not pass to another account.
    forgotten_at    INTEGER,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The listing of one account, in its order.
CREATE INDEX devices_of_user ON devices (user_id, created_at, id) WHERE forgotten_at IS NULL;
