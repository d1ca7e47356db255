-- Which client versions may talk to each other. Versions are dotted integers; a null bound is open.

CREATE TABLE compatibility_rules (
    -- Ids only grow, even past deletions: the highest one is part of the policy version that clients see.
    id                             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind                           text   NOT NULL CHECK (kind IN ('minimum', 'block', 'pair')),
    client                         text   NOT NULL CHECK (client IN ('desktop', 'mobile')),
    platform                       text,
    min_app_version                text,
    max_app_version                text,
    pair_min_app_version           text,
    minimum_relay_protocol_version text,
    message                        text,
    created_at                     bigint NOT NULL
);
