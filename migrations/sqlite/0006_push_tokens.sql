-- Push tokens of phones. Whose they are, devices says. Ids are lower-case UUID texts, times are epoch milliseconds.

CREATE TABLE push_tokens (
    device_id   TEXT    NOT NULL PRIMARY KEY,
    provider    TEXT    NOT NULL CHECK (provider IN ('apns', 'fcm')),
    token       TEXT    NOT NULL,
    environment TEXT    NOT NULL CHECK (environment IN ('production', 'sandbox')),
    -- Of the app; null for the one that the relay is configured for.
    app_id      TEXT,
    -- Each claim of a device is later than the one before, so that it names the claim.
    claimed_at  INTEGER NOT NULL,
    -- A token belongs to one device.
    UNIQUE (provider, token)
) STRICT, WITHOUT ROWID;
