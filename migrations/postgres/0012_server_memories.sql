-- What upstream servers said of themselves, for the time after a restart.

-- Rows have no data of a client: export and deletion of the data of clients leave them alone.
CREATE TABLE server_memories (
    upstream    TEXT NOT NULL,
    -- `initialize`, for example, or a list.
    part        TEXT NOT NULL,
    -- The keyed hash of the configuration of the upstream.
    fingerprint TEXT NOT NULL,
    -- The JSON text as the server wrote it.
    content     TEXT NOT NULL,
    learned_at  BIGINT NOT NULL,
    PRIMARY KEY (upstream, part)
);
