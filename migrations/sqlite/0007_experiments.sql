-- Experiments that were stopped, and the way to what came of them.

CREATE TABLE experiment_stops (
    experiment TEXT NOT NULL PRIMARY KEY,
    stopped_at INTEGER NOT NULL,
    stopped_by TEXT NOT NULL,
    reason     TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX recommendations_by_experiment ON recommendations (experiment, id)
    WHERE experiment IS NOT NULL;
CREATE INDEX feedback_by_recommendation ON feedback (recommendation)
    WHERE recommendation IS NOT NULL;
