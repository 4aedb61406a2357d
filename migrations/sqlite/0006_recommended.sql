-- What recommendations and feedback belong to where no connection is known, and what was said.

-- NULL where none was derived.
ALTER TABLE recommendations ADD COLUMN work_session BLOB;
CREATE INDEX recommendations_by_work_session ON recommendations (work_session)
    WHERE work_session IS NOT NULL;
ALTER TABLE feedback ADD COLUMN work_session BLOB;
CREATE INDEX feedback_by_work_session ON feedback (work_session) WHERE work_session IS NOT NULL;
-- In words, with secrets removed; NULL where nothing was said.
ALTER TABLE feedback ADD COLUMN comment TEXT;
