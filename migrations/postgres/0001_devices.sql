-- Devices of accounts, with the presence that was last stored. Times are epoch milliseconds, as the relay and its wire have them:
-- a timestamptz would be converted on every way in and out. To read one: to_timestamp(created_at / 1000.0).

CREATE TABLE devices (
    id              uuid    NOT NULL PRIMARY KEY,
    user_id         uuid    NOT NULL,
    role            text    NOT NULL CHECK (role IN ('desktop', 'mobile')),
    name            text    NOT NULL,
    platform        text    NOT NULL,
    app_version     text    NOT NULL,
    relay_eligible  boolean NOT NULL,
    -- Registrations since the row was made, or came back after it was forgotten: 1 means that this one created it.
    registrations   bigint  NOT NULL DEFAULT 1,
    status          text    NOT NULL DEFAULT 'disconnected' CHECK (status IN ('online', 'reconnecting', 'disconnected')),
    -- When that presence began; null before the first.
    status_at       bigint,
    -- The relay process that wrote it, so that a later process knows which rows a dead one left behind.
    status_instance uuid,
    -- Which of that process's writes it was: one that was given up may still arrive, behind a later one.
    status_write    bigint  NOT NULL DEFAULT 0,
    -- A forgotten row stays: its id must not pass to another account.
    forgotten_at    bigint,
    created_at      bigint  NOT NULL,
    updated_at      bigint  NOT NULL
);

-- The listing of one account, in its order.
CREATE INDEX devices_of_user ON devices (user_id, created_at, id) WHERE forgotten_at IS NULL;

-- What a starting process looks for: what a dead one left behind.
CREATE INDEX devices_connected ON devices (id) WHERE status <> 'disconnected' AND forgotten_at IS NULL;
