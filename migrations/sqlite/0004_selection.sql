-- How the tools of lists were chosen, what that came to, and whose epochs are.

-- All are NULL where that is not known; the reason also where there is none.
ALTER TABLE lists_shown ADD COLUMN mode TEXT;
ALTER TABLE lists_shown ADD COLUMN is_fallback INTEGER;
ALTER TABLE lists_shown ADD COLUMN reason TEXT;
-- The set of tools that the choice started from.
ALTER TABLE lists_shown ADD COLUMN pool TEXT;
ALTER TABLE lists_shown ADD COLUMN shown_tokens INTEGER;
ALTER TABLE lists_shown ADD COLUMN available_tokens INTEGER;
CREATE INDEX lists_shown_by_pool ON lists_shown (pool) WHERE pool IS NOT NULL;

-- The set of tools that there were to choose from. Epochs of older versions knew what they showed.
ALTER TABLE list_epochs ADD COLUMN known TEXT NOT NULL DEFAULT '';
UPDATE list_epochs SET known = tool_set;
ALTER TABLE list_epochs ADD COLUMN mode TEXT NOT NULL DEFAULT 'all';
ALTER TABLE list_epochs ADD COLUMN reason TEXT;
ALTER TABLE list_epochs ADD COLUMN search_first INTEGER NOT NULL DEFAULT 0;
-- NULL where several clients share the list.
ALTER TABLE list_epochs ADD COLUMN client BLOB;
CREATE INDEX list_epochs_by_tool_set ON list_epochs (tool_set);
CREATE INDEX list_epochs_by_known ON list_epochs (known);
CREATE INDEX list_epochs_by_client ON list_epochs (client) WHERE client IS NOT NULL;
-- Those of work sessions grow old.
CREATE INDEX list_epochs_by_beginning ON list_epochs (began_at, scope)
    WHERE substr(scope, 1, 5) = 'work:';

-- What a work session did is read over all its connections.
CREATE INDEX invocations_by_work_session ON invocations (work_session, id)
    WHERE work_session IS NOT NULL;
