-- What one principal did is read without the rows of others, if principals do not share what is learned.

CREATE INDEX invocations_by_principal ON invocations (left(principal, 200), id);

CREATE INDEX feedback_by_principal ON feedback (left(principal, 200), id);
