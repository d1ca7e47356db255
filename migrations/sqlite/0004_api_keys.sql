-- API keys of accounts. A key itself is never stored, only its SHA-256. Ids are lower-case UUID texts, times are epoch milliseconds.

CREATE TABLE api_keys (
    id         TEXT    NOT NULL PRIMARY KEY,
    user_id    TEXT    NOT NULL,
    hash       BLOB    NOT NULL UNIQUE CHECK (length(hash) = 32),
    name       TEXT,
    -- Names with commas between them, such as 'rpc,read'.
    scopes     TEXT    NOT NULL CHECK (scopes <> ''),
    created_at INTEGER NOT NULL,
    -- A revoked row stays, so that what an audit line names can be found.
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;

-- The listing of one account, in its order.
CREATE INDEX api_keys_of_user ON api_keys (user_id, created_at, id) WHERE revoked_at IS NULL;
