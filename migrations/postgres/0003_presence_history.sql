-- Changes of each device's presence. Times are epoch milliseconds; of two changes in one millisecond the later is kept.

CREATE TABLE presence_history (
    device_id uuid   NOT NULL REFERENCES devices (id),
    at        bigint NOT NULL,
    status    text   NOT NULL CHECK (status IN ('online', 'reconnecting', 'disconnected')),
    reason    text   NOT NULL,
    -- The relay process that wrote it.
    instance  uuid   NOT NULL,
    PRIMARY KEY (device_id, at)
);

-- How many devices an account has is judged with each new one, and forgotten rows count.
CREATE INDEX devices_of_user_ever ON devices (user_id);
