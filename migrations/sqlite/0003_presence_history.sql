-- Changes of each device's presence. Times are epoch milliseconds; of two changes in one millisecond the later is kept.

CREATE TABLE presence_history (
    device_id TEXT    NOT NULL REFERENCES devices (id),
    at        INTEGER NOT NULL,
    status    TEXT    NOT NULL CHECK (status IN ('online', 'reconnecting', 'disconnected')),
    reason    TEXT    NOT NULL,
    -- The relay process that wrote it.
    instance  TEXT    NOT NULL,
    PRIMARY KEY (device_id, at)
) STRICT, WITHOUT ROWID;

-- How many devices an account has is judged with each new one, and forgotten rows count.
CREATE INDEX devices_of_user_ever ON devices (user_id);
