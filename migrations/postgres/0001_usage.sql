-- Usage: sessions, tool calls, other recorded requests, and the tools that were listed.
--
-- Times are microseconds since 1970 UTC. Counts of bytes that do not fit a signed 64-bit integer
-- are stored as its largest value. No foreign keys: a call is worth keeping even when the record
-- of its session was lost. A NUL character, which this database cannot store in text, is written
-- as U+241B and "0", and U+241B itself twice.

CREATE TABLE sessions (
    id             UUID NOT NULL PRIMARY KEY,
    run            UUID NOT NULL,
    principal      TEXT NOT NULL,
    -- Keyed hash of principal, client name and client version.
    client         BYTEA NOT NULL,
    client_name    TEXT NOT NULL,
    client_version TEXT NOT NULL,
    protocol       TEXT NOT NULL,
    transport      TEXT NOT NULL,
    started_at     BIGINT NOT NULL,
    -- NULL while the session runs.
    ended_at       BIGINT
);

CREATE INDEX sessions_by_start ON sessions (started_at, id);
CREATE INDEX sessions_by_run ON sessions (run);

CREATE TABLE invocations (
    id             UUID NOT NULL PRIMARY KEY,
    session        UUID NOT NULL,
    principal      TEXT NOT NULL,
    upstream       TEXT NOT NULL,
    tool           TEXT NOT NULL,
    arguments_hash BYTEA NOT NULL,
    -- JSON with secrets removed; NULL unless the operator asked for it.
    arguments      TEXT,
    started_at     BIGINT NOT NULL,
    sequence       BIGINT NOT NULL,
    source         TEXT NOT NULL,
    request_bytes  BIGINT NOT NULL,
    -- The end: all NULL while the call is in flight.
    outcome        TEXT,
    duration_us    BIGINT,
    response_bytes BIGINT,
    -- JSON with secrets removed; NULL unless the operator asked for it.
    result         TEXT
);

-- What a lost run left open is found here; closed calls cost it nothing.
CREATE INDEX invocations_open ON invocations (session) WHERE outcome IS NULL;

CREATE TABLE exchanges (
    id          UUID NOT NULL PRIMARY KEY,
    session     UUID NOT NULL,
    principal   TEXT NOT NULL,
    upstream    TEXT NOT NULL,
    method      TEXT NOT NULL,
    target      TEXT,
    started_at  BIGINT NOT NULL,
    duration_us BIGINT NOT NULL,
    outcome     TEXT NOT NULL
);

CREATE INDEX exchanges_by_session ON exchanges (session, started_at, id);

-- Pages of tools, identified by their content and never changed.
CREATE TABLE tool_lists (
    id       TEXT NOT NULL PRIMARY KEY,
    upstream TEXT NOT NULL,
    -- JSON array of [name, content hash], in the order of the list.
    tools    TEXT NOT NULL
);

-- What each tool has looked like, and when. A name may be longer than an index takes.
CREATE TABLE tool_definitions (
    upstream     TEXT NOT NULL,
    name         TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    first_seen   BIGINT NOT NULL,
    last_seen    BIGINT NOT NULL
);

CREATE UNIQUE INDEX tool_definitions_by_content
    ON tool_definitions (upstream, content_hash, md5(name));

CREATE TABLE session_tool_lists (
    session   UUID NOT NULL,
    list      TEXT NOT NULL,
    -- When the page was listed to the session for the first time.
    listed_at BIGINT NOT NULL,
    PRIMARY KEY (session, list)
);
