-- Usage: sessions, tool calls, other recorded requests, and the tools that were listed.
--
-- Identifiers are UUIDs as 16 bytes: they stand in every index of a call, where text would more
-- than double it. Times are microseconds since 1970 UTC. Counts of bytes that do not fit a signed
-- 64-bit integer are stored as its largest value. No foreign keys: a call is worth keeping even
-- when the record of its session was lost.

CREATE TABLE sessions (
    id             BLOB NOT NULL PRIMARY KEY,
    run            BLOB NOT NULL,
    principal      TEXT NOT NULL,
    -- Keyed hash of principal, client name and client version.
    client         BLOB NOT NULL,
    client_name    TEXT NOT NULL,
    client_version TEXT NOT NULL,
    protocol       TEXT NOT NULL,
    transport      TEXT NOT NULL,
    started_at     INTEGER NOT NULL,
    -- NULL while the session runs.
    ended_at       INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_start ON sessions (started_at, id);
CREATE INDEX sessions_by_run ON sessions (run);

CREATE TABLE invocations (
    id             BLOB NOT NULL PRIMARY KEY,
    session        BLOB NOT NULL,
    principal      TEXT NOT NULL,
    upstream       TEXT NOT NULL,
    tool           TEXT NOT NULL,
    arguments_hash BLOB NOT NULL,
    -- JSON with secrets removed; NULL unless the operator asked for it.
    arguments      TEXT,
    started_at     INTEGER NOT NULL,
    sequence       INTEGER NOT NULL,
    source         TEXT NOT NULL,
    request_bytes  INTEGER NOT NULL,
    -- The end: all NULL while the call is in flight.
    outcome        TEXT,
    duration_us    INTEGER,
    response_bytes INTEGER,
    -- JSON with secrets removed; NULL unless the operator asked for it.
    result         TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX invocations_by_start ON invocations (started_at, id);
CREATE INDEX invocations_by_session ON invocations (session, started_at, id);
CREATE INDEX invocations_by_tool ON invocations (tool, started_at, id);
-- What a lost run left open is found here; closed calls cost it nothing.
CREATE INDEX invocations_open ON invocations (session) WHERE outcome IS NULL;

CREATE TABLE exchanges (
    id          BLOB NOT NULL PRIMARY KEY,
    session     BLOB NOT NULL,
    principal   TEXT NOT NULL,
    upstream    TEXT NOT NULL,
    method      TEXT NOT NULL,
    target      TEXT,
    started_at  INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    outcome     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX exchanges_by_session ON exchanges (session, started_at, id);

-- Pages of tools, identified by their content and never changed.
CREATE TABLE tool_lists (
    id       TEXT NOT NULL PRIMARY KEY,
    upstream TEXT NOT NULL,
    -- JSON array of [name, content hash], in the order of the list.
    tools    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What each tool has looked like, and when.
CREATE TABLE tool_definitions (
    upstream     TEXT NOT NULL,
    name         TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    first_seen   INTEGER NOT NULL,
    last_seen    INTEGER NOT NULL,
    PRIMARY KEY (upstream, name, content_hash)
) STRICT, WITHOUT ROWID;

CREATE TABLE session_tool_lists (
    session   BLOB NOT NULL,
    list      TEXT NOT NULL,
    -- When the page was listed to the session for the first time.
    listed_at INTEGER NOT NULL,
    PRIMARY KEY (session, list)
) STRICT, WITHOUT ROWID;
