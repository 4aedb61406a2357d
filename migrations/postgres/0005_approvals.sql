-- What tools must look like to be shown, where changes of tools are held back. A name may be longer
-- than an index takes.

CREATE TABLE tool_approvals (
    upstream     TEXT NOT NULL,
    tool         TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    -- The JSON text as the server wrote it; empty where it was too long to be kept.
    definition   TEXT NOT NULL,
    approved_at  BIGINT NOT NULL,
    approved_by  TEXT NOT NULL
);

CREATE UNIQUE INDEX tool_approvals_by_tool ON tool_approvals (upstream, md5(tool));
