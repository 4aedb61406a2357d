-- The whole store: counts, and a place for everything that is learned, shown, decided or said.
--
-- Calls are ordered by their identifiers, which begin with the time of receipt, and need no index
-- by time beside them.

ALTER TABLE sessions ADD COLUMN profile TEXT;
-- JSON object of texts.
ALTER TABLE sessions ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}';
CREATE INDEX sessions_by_client ON sessions (client);
CREATE INDEX sessions_by_end ON sessions (coalesce(ended_at, started_at), id);

-- The first call of the same logical call, for a further round of it.
ALTER TABLE invocations ADD COLUMN continues BLOB;
ALTER TABLE invocations ADD COLUMN work_session BLOB;
ALTER TABLE invocations ADD COLUMN list_epoch INTEGER;
ALTER TABLE invocations ADD COLUMN context BLOB;
-- NULL where they were not counted.
ALTER TABLE invocations ADD COLUMN request_tokens INTEGER;
ALTER TABLE invocations ADD COLUMN response_tokens INTEGER;

DROP INDEX invocations_by_start;
DROP INDEX invocations_by_session;
DROP INDEX invocations_by_tool;
CREATE INDEX invocations_by_sequence ON invocations (session, sequence);
CREATE INDEX invocations_by_tool ON invocations (tool, id);

-- The JSON text as the server wrote it; empty where it was not kept.
ALTER TABLE tool_definitions ADD COLUMN definition TEXT NOT NULL DEFAULT '';

-- What the keys of tools in counts stand for: the first eight bytes of a SHA-256 over upstream and
-- name, as a signed integer.
CREATE TABLE tools (
    key      INTEGER NOT NULL PRIMARY KEY,
    upstream TEXT NOT NULL,
    name     TEXT NOT NULL
) STRICT;

-- The first use of each tool in a session, of 128 tools at most: what pairs are counted from.
CREATE TABLE session_tools (
    session        BLOB NOT NULL,
    tool           INTEGER NOT NULL,
    principal      TEXT NOT NULL,
    first_sequence INTEGER NOT NULL,
    first_at       INTEGER NOT NULL,
    PRIMARY KEY (session, tool)
) STRICT, WITHOUT ROWID;

CREATE INDEX session_tools_by_tool ON session_tools (tool, session);

-- Counts. They are kept with the rows that they are made of, in the same transaction, and can be
-- made anew from them.

-- Calls by the hour in which they were received, counted from 1970 UTC.
CREATE TABLE call_counts (
    principal TEXT NOT NULL,
    hour      INTEGER NOT NULL,
    tool      INTEGER NOT NULL,
    -- '' for calls in flight.
    outcome   TEXT NOT NULL,
    n         INTEGER NOT NULL,
    PRIMARY KEY (principal, hour, tool, outcome)
) STRICT, WITHOUT ROWID;

-- Answered calls by how long they took, in buckets of the domain's LatencyBucket.
CREATE TABLE latency_counts (
    principal TEXT NOT NULL,
    hour      INTEGER NOT NULL,
    tool      INTEGER NOT NULL,
    bucket    INTEGER NOT NULL,
    n         INTEGER NOT NULL,
    PRIMARY KEY (principal, hour, tool, bucket)
) STRICT, WITHOUT ROWID;

-- Calls that followed each other in a session.
CREATE TABLE transition_counts (
    principal TEXT NOT NULL,
    tool_from INTEGER NOT NULL,
    tool_to   INTEGER NOT NULL,
    n         INTEGER NOT NULL,
    PRIMARY KEY (principal, tool_from, tool_to)
) STRICT, WITHOUT ROWID;

CREATE INDEX transition_counts_by_tool ON transition_counts (tool_from);

-- Sessions that used two tools, tool_a <= tool_b; a tool and itself for the sessions that used it.
CREATE TABLE pair_counts (
    principal TEXT NOT NULL,
    tool_a    INTEGER NOT NULL,
    tool_b    INTEGER NOT NULL,
    n         INTEGER NOT NULL,
    -- Sum of the distances of the first uses, in calls.
    distance  INTEGER NOT NULL,
    last_at   INTEGER NOT NULL,
    PRIMARY KEY (principal, tool_a, tool_b)
) STRICT, WITHOUT ROWID;

CREATE INDEX pair_counts_by_tool_a ON pair_counts (tool_a);
CREATE INDEX pair_counts_by_tool_b ON pair_counts (tool_b, principal);

-- Sets of tools in the order of a list, identified by their content and never changed.
CREATE TABLE tool_sets (
    id    TEXT NOT NULL PRIMARY KEY,
    -- JSON array of [upstream, name].
    tools TEXT NOT NULL
) STRICT;

CREATE TABLE lists_shown (
    session     BLOB NOT NULL,
    shown_at    INTEGER NOT NULL,
    principal   TEXT NOT NULL,
    epoch       INTEGER NOT NULL,
    policy      TEXT NOT NULL,
    tool_set    TEXT NOT NULL,
    n_available INTEGER NOT NULL,
    PRIMARY KEY (session, shown_at)
) STRICT, WITHOUT ROWID;

CREATE INDEX lists_shown_by_time ON lists_shown (shown_at);
CREATE INDEX lists_shown_by_tool_set ON lists_shown (tool_set);

CREATE TABLE searches (
    id          BLOB NOT NULL PRIMARY KEY,
    session     BLOB NOT NULL,
    principal   TEXT NOT NULL,
    searched_at INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    query_hash  BLOB NOT NULL,
    -- With secrets removed; NULL unless the operator asked for it.
    query       TEXT,
    quality     TEXT NOT NULL,
    -- JSON array of [upstream, name, score], best first.
    results     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX searches_by_session ON searches (session, id);

CREATE TABLE contexts (
    id        BLOB NOT NULL PRIMARY KEY,
    session   BLOB NOT NULL,
    principal TEXT NOT NULL,
    source    TEXT NOT NULL,
    given_at  INTEGER NOT NULL,
    text_hash BLOB NOT NULL,
    -- With secrets removed; NULL unless the operator asked for it.
    text      TEXT,
    -- Both NULL without an encoder. 32-bit floats, little-endian.
    model     TEXT,
    vector    BLOB
) STRICT, WITHOUT ROWID;

CREATE INDEX contexts_by_session ON contexts (session, id);

CREATE TABLE recommendations (
    id          BLOB NOT NULL PRIMARY KEY,
    session     BLOB,
    principal   TEXT NOT NULL,
    shown_at    INTEGER NOT NULL,
    intent_hash BLOB NOT NULL,
    -- With secrets removed; NULL unless the operator asked for it.
    intent      TEXT,
    weights     INTEGER,
    experiment  TEXT,
    arm         TEXT,
    -- JSON array of [upstream, name, score], best first.
    tools       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX recommendations_by_session ON recommendations (session);

CREATE TABLE feedback (
    id             BLOB NOT NULL PRIMARY KEY,
    principal      TEXT NOT NULL,
    session        BLOB,
    upstream       TEXT NOT NULL,
    tool           TEXT NOT NULL,
    -- The key of upstream and tool.
    tool_key       INTEGER NOT NULL,
    verdict        TEXT NOT NULL,
    rating         INTEGER,
    recommendation BLOB,
    invocation     BLOB,
    given_at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX feedback_by_tool ON feedback (tool_key, id);
CREATE INDEX feedback_by_session ON feedback (session);

CREATE TABLE work_sessions (
    id             BLOB NOT NULL PRIMARY KEY,
    key            BLOB NOT NULL,
    principal      TEXT NOT NULL,
    client         BLOB NOT NULL,
    started_at     INTEGER NOT NULL,
    last_active_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX work_sessions_by_key ON work_sessions (key, last_active_at, id);
CREATE INDEX work_sessions_by_activity ON work_sessions (last_active_at, id);
CREATE INDEX work_sessions_by_client ON work_sessions (client);

-- The list of each scope in its newest epoch.
CREATE TABLE list_epochs (
    scope    TEXT NOT NULL PRIMARY KEY,
    epoch    INTEGER NOT NULL,
    policy   TEXT NOT NULL,
    tool_set TEXT NOT NULL,
    began_at INTEGER NOT NULL
) STRICT;

CREATE TABLE overrides (
    id         BLOB NOT NULL PRIMARY KEY,
    tool       TEXT NOT NULL,
    action     TEXT NOT NULL,
    scope_kind TEXT NOT NULL,
    -- '' for everybody.
    scope_id   TEXT NOT NULL,
    expires_at INTEGER,
    reason     TEXT,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    id     BLOB NOT NULL PRIMARY KEY,
    at     INTEGER NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    -- JSON with secrets removed.
    detail TEXT
) STRICT, WITHOUT ROWID;

CREATE TABLE embeddings (
    model        TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    -- 32-bit floats, little-endian.
    vector       BLOB NOT NULL,
    PRIMARY KEY (model, content_hash)
) STRICT;

CREATE TABLE assignments (
    experiment  TEXT NOT NULL,
    subject     TEXT NOT NULL,
    arm         TEXT NOT NULL,
    assigned_at INTEGER NOT NULL,
    PRIMARY KEY (experiment, subject)
) STRICT, WITHOUT ROWID;

CREATE TABLE weight_versions (
    ranking    TEXT NOT NULL,
    version    INTEGER NOT NULL,
    -- JSON object of numbers.
    weights    TEXT NOT NULL,
    reason     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (ranking, version)
) STRICT, WITHOUT ROWID;

-- The version of each ranking that is used.
CREATE TABLE used_weights (
    ranking TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE snapshots (
    model      TEXT NOT NULL,
    version    INTEGER NOT NULL,
    format     INTEGER NOT NULL,
    learned_to BLOB,
    taken_at   INTEGER NOT NULL,
    bytes      BLOB NOT NULL,
    PRIMARY KEY (model, version)
) STRICT;

-- How often each topic was changed.
CREATE TABLE revisions (
    topic    TEXT NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
