-- Which client versions may talk to each other. Versions are dotted integers; a null bound is open.

CREATE TABLE compatibility_rules (
    -- Ids only grow, even past deletions: the highest one is part of the policy version that clients see.
    id                             INTEGER PRIMARY KEY AUTOINCREMENT,
    kind                           TEXT    NOT NULL CHECK (kind IN ('minimum', 'block', 'pair')),
    client                         TEXT    NOT NULL CHECK (client IN ('desktop', 'mobile')),
    platform                       TEXT,
    min_app_version                TEXT,
    max_app_version                TEXT,
    pair_min_app_version           TEXT,
    minimum_relay_protocol_version TEXT,
    message                        TEXT,
    created_at                     INTEGER NOT NULL
) STRICT;
