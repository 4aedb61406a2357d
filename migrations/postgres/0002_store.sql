-- The whole store: counts, and a place for everything that is learned, shown, decided or said.
--
-- Calls are ordered by their identifiers, which begin with the time of receipt, and need no index
-- by time beside them.

ALTER TABLE sessions ADD COLUMN profile TEXT;
-- JSON object of texts.
ALTER TABLE sessions ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}';
CREATE INDEX sessions_by_client ON sessions (client);
CREATE INDEX sessions_by_end ON sessions ((coalesce(ended_at, started_at)), id);

-- The first call of the same logical call, for a further round of it.
ALTER TABLE invocations ADD COLUMN continues UUID;
ALTER TABLE invocations ADD COLUMN work_session UUID;
ALTER TABLE invocations ADD COLUMN list_epoch BIGINT;
ALTER TABLE invocations ADD COLUMN context UUID;
-- NULL where they were not counted.
ALTER TABLE invocations ADD COLUMN request_tokens BIGINT;
ALTER TABLE invocations ADD COLUMN response_tokens BIGINT;

CREATE INDEX invocations_by_sequence ON invocations (session, sequence);
-- Names may be longer than an index takes.
CREATE INDEX invocations_by_tool ON invocations (left(tool, 200), id);

-- The JSON text as the server wrote it; empty where it was not kept.
ALTER TABLE tool_definitions ADD COLUMN definition TEXT NOT NULL DEFAULT '';

-- What the keys of tools in counts stand for: the first eight bytes of a SHA-256 over upstream and
-- name, as a signed integer.
CREATE TABLE tools (
    key      BIGINT NOT NULL PRIMARY KEY,
    upstream TEXT NOT NULL,
    name     TEXT NOT NULL
);

-- The first use of each tool in a session, of 128 tools at most: what pairs are counted from.
CREATE TABLE session_tools (
    session        UUID NOT NULL,
    tool           BIGINT NOT NULL,
    principal      TEXT NOT NULL,
    first_sequence BIGINT NOT NULL,
    first_at       BIGINT NOT NULL,
    PRIMARY KEY (session, tool)
);

CREATE INDEX session_tools_by_tool ON session_tools (tool, session);

-- Counts. They are kept with the rows that they are made of, in the same transaction, and can be
-- made anew from them.

-- Calls by the hour in which they were received, counted from 1970 UTC.
CREATE TABLE call_counts (
    principal TEXT NOT NULL,
    hour      BIGINT NOT NULL,
    tool      BIGINT NOT NULL,
    -- '' for calls in flight.
    outcome   TEXT NOT NULL,
    n         BIGINT NOT NULL,
    PRIMARY KEY (principal, hour, tool, outcome)
);

-- Answered calls by how long they took, in buckets of the domain's LatencyBucket.
CREATE TABLE latency_counts (
    principal TEXT NOT NULL,
    hour      BIGINT NOT NULL,
    tool      BIGINT NOT NULL,
    bucket    BIGINT NOT NULL,
    n         BIGINT NOT NULL,
    PRIMARY KEY (principal, hour, tool, bucket)
);

-- Calls that followed each other in a session.
CREATE TABLE transition_counts (
    principal TEXT NOT NULL,
    tool_from BIGINT NOT NULL,
    tool_to   BIGINT NOT NULL,
    n         BIGINT NOT NULL,
    PRIMARY KEY (principal, tool_from, tool_to)
);

CREATE INDEX transition_counts_by_tool ON transition_counts (tool_from);

-- Sessions that used two tools, tool_a <= tool_b; a tool and itself for the sessions that used it.
CREATE TABLE pair_counts (
    principal TEXT NOT NULL,
    tool_a    BIGINT NOT NULL,
    tool_b    BIGINT NOT NULL,
    n         BIGINT NOT NULL,
    -- Sum of the distances of the first uses, in calls.
    distance  BIGINT NOT NULL,
    last_at   BIGINT NOT NULL,
    PRIMARY KEY (principal, tool_a, tool_b)
);

CREATE INDEX pair_counts_by_tool_a ON pair_counts (tool_a);
CREATE INDEX pair_counts_by_tool_b ON pair_counts (tool_b, principal);

-- Sets of tools in the order of a list, identified by their content and never changed.
CREATE TABLE tool_sets (
    id    TEXT NOT NULL PRIMARY KEY,
    -- JSON array of [upstream, name].
    tools TEXT NOT NULL
);

CREATE TABLE lists_shown (
    session     UUID NOT NULL,
    shown_at    BIGINT NOT NULL,
    principal   TEXT NOT NULL,
    epoch       BIGINT NOT NULL,
    policy      TEXT NOT NULL,
    tool_set    TEXT NOT NULL,
    n_available BIGINT NOT NULL,
    PRIMARY KEY (session, shown_at)
);

CREATE INDEX lists_shown_by_time ON lists_shown (shown_at);
CREATE INDEX lists_shown_by_tool_set ON lists_shown (tool_set);

CREATE TABLE searches (
    id          UUID NOT NULL PRIMARY KEY,
    session     UUID NOT NULL,
    principal   TEXT NOT NULL,
    searched_at BIGINT NOT NULL,
    duration_us BIGINT NOT NULL,
    query_hash  BYTEA NOT NULL,
    -- With secrets removed; NULL unless the operator asked for it.
    query       TEXT,
    quality     TEXT NOT NULL,
    -- JSON array of [upstream, name, score], best first.
    results     TEXT NOT NULL
);

CREATE INDEX searches_by_session ON searches (session, id);

CREATE TABLE contexts (
    id        UUID NOT NULL PRIMARY KEY,
    session   UUID NOT NULL,
    principal TEXT NOT NULL,
    source    TEXT NOT NULL,
    given_at  BIGINT NOT NULL,
    text_hash BYTEA NOT NULL,
    -- With secrets removed; NULL unless the operator asked for it.
    text      TEXT,
    -- Both NULL without an encoder. 32-bit floats, little-endian.
    model     TEXT,
    vector    BYTEA
);

CREATE INDEX contexts_by_session ON contexts (session, id);

CREATE TABLE recommendations (
    id          UUID NOT NULL PRIMARY KEY,
    session     UUID,
    principal   TEXT NOT NULL,
    shown_at    BIGINT NOT NULL,
    intent_hash BYTEA NOT NULL,
    -- With secrets removed; NULL unless the operator asked for it.
    intent      TEXT,
    weights     BIGINT,
    experiment  TEXT,
    arm         TEXT,
    -- JSON array of [upstream, name, score], best first.
    tools       TEXT NOT NULL
);

CREATE INDEX recommendations_by_session ON recommendations (session);

CREATE TABLE feedback (
    id             UUID NOT NULL PRIMARY KEY,
    principal      TEXT NOT NULL,
    session        UUID,
    upstream       TEXT NOT NULL,
    tool           TEXT NOT NULL,
    -- The key of upstream and tool.
    tool_key       BIGINT NOT NULL,
    verdict        TEXT NOT NULL,
    rating         BIGINT,
    recommendation UUID,
    invocation     UUID,
    given_at       BIGINT NOT NULL
);

CREATE INDEX feedback_by_tool ON feedback (tool_key, id);
CREATE INDEX feedback_by_session ON feedback (session);

CREATE TABLE work_sessions (
    id             UUID NOT NULL PRIMARY KEY,
    key            BYTEA NOT NULL,
    principal      TEXT NOT NULL,
    client         BYTEA NOT NULL,
    started_at     BIGINT NOT NULL,
    last_active_at BIGINT NOT NULL
);

CREATE INDEX work_sessions_by_key ON work_sessions (key, last_active_at, id);
CREATE INDEX work_sessions_by_activity ON work_sessions (last_active_at, id);
CREATE INDEX work_sessions_by_client ON work_sessions (client);

-- The list of each scope in its newest epoch.
CREATE TABLE list_epochs (
    scope    TEXT NOT NULL PRIMARY KEY,
    epoch    BIGINT NOT NULL,
    policy   TEXT NOT NULL,
    tool_set TEXT NOT NULL,
    began_at BIGINT NOT NULL
);

CREATE TABLE overrides (
    id         UUID NOT NULL PRIMARY KEY,
    tool       TEXT NOT NULL,
    action     TEXT NOT NULL,
    scope_kind TEXT NOT NULL,
    -- '' for everybody.
    scope_id   TEXT NOT NULL,
    expires_at BIGINT,
    reason     TEXT,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE audit (
    id     UUID NOT NULL PRIMARY KEY,
    at     BIGINT NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    -- JSON with secrets removed.
    detail TEXT
);

CREATE TABLE embeddings (
    model        TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    -- 32-bit floats, little-endian.
    vector       BYTEA NOT NULL,
    PRIMARY KEY (model, content_hash)
);

CREATE TABLE assignments (
    experiment  TEXT NOT NULL,
    subject     TEXT NOT NULL,
    arm         TEXT NOT NULL,
    assigned_at BIGINT NOT NULL,
    PRIMARY KEY (experiment, subject)
);

CREATE TABLE weight_versions (
    ranking    TEXT NOT NULL,
    version    BIGINT NOT NULL,
    -- JSON object of numbers.
    weights    TEXT NOT NULL,
    reason     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (ranking, version)
);

-- The version of each ranking that is used.
CREATE TABLE used_weights (
    ranking TEXT NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL
);

CREATE TABLE snapshots (
    model      TEXT NOT NULL,
    version    BIGINT NOT NULL,
    format     BIGINT NOT NULL,
    learned_to UUID,
    taken_at   BIGINT NOT NULL,
    bytes      BYTEA NOT NULL,
    PRIMARY KEY (model, version)
);

-- How often each topic was changed.
CREATE TABLE revisions (
    topic    TEXT NOT NULL PRIMARY KEY,
    revision BIGINT NOT NULL
);
