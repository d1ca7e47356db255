-- API keys of accounts. A key itself is never stored, only its SHA-256. Times are epoch milliseconds.

CREATE TABLE api_keys (
    id         uuid   NOT NULL PRIMARY KEY,
    user_id    uuid   NOT NULL,
    hash       bytea  NOT NULL UNIQUE CHECK (length(hash) = 32),
    name       text,
    -- Names with commas between them, such as 'rpc,read'.
    scopes     text   NOT NULL CHECK (scopes <> ''),
    created_at bigint NOT NULL,
    -- A revoked row stays, so that what an audit line names can be found.
    revoked_at bigint
);

-- The listing of one account, in its order.
CREATE INDEX api_keys_of_user ON api_keys (user_id, created_at, id) WHERE revoked_at IS NULL;
