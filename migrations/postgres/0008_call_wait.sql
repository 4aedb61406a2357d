-- How long calls waited before their upstream had them.

-- Microseconds from receipt until the upstream was handed the call: mostly connecting to it, or
-- starting its process. duration_us begins where this ends. NULL while the call is in flight, and
-- in rows of older versions, whose duration_us contains the wait.
ALTER TABLE invocations ADD COLUMN wait_us bigint;
