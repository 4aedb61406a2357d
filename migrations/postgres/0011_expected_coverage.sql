-- What riglm expected of a list: the predicted probability that the next call is of a listed tool.

-- From 0 to 1, in whole millionths. NULL where a prediction did not select exactly the tools of the
-- list, and in rows of older versions.
ALTER TABLE list_epochs ADD COLUMN expected_coverage DOUBLE PRECISION;
ALTER TABLE lists_shown ADD COLUMN expected_coverage DOUBLE PRECISION;
