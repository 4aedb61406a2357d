-- Sizes of lists that were drawn at random, with the probability of each.

-- A JSON object with the size, the size of the greedy rule, the share of explored lists, the
-- candidate sizes, the probability of the size (its propensity), and the draw. NULL where no size was
-- explored.
ALTER TABLE list_epochs ADD COLUMN size_choice TEXT;
ALTER TABLE lists_shown ADD COLUMN size_choice TEXT;
