-- Push tokens of phones. Whose they are, devices says. Times are epoch milliseconds.

CREATE TABLE push_tokens (
    device_id   uuid   NOT NULL PRIMARY KEY,
    provider    text   NOT NULL CHECK (provider IN ('apns', 'fcm')),
    token       text   NOT NULL,
    environment text   NOT NULL CHECK (environment IN ('production', 'sandbox')),
    -- Of the app; null for the one that the relay is configured for.
    app_id      text,
    -- Each claim of a device is later than the one before, so that it names the claim.
    claimed_at  bigint NOT NULL,
    -- A token belongs to one device.
    UNIQUE (provider, token)
);
