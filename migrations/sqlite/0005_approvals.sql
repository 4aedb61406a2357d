-- What tools must look like to be shown, where changes of tools are held back.

CREATE TABLE tool_approvals (
    upstream     TEXT NOT NULL,
    tool         TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    -- The JSON text as the server wrote it; empty where it was too long to be kept.
    definition   TEXT NOT NULL,
    approved_at  INTEGER NOT NULL,
    approved_by  TEXT NOT NULL,
    PRIMARY KEY (upstream, tool)
) STRICT;
