-- Grants a take from a token bucket, or several equal ones at once.
--
-- Returns one row if it granted all of them. It returns no row and writes nothing if the bucket has
-- less left, has another policy, or lies ahead of the clock. Then Op.Apply decides. A lone take
-- runs the statement without RETURNING.
--
-- The row of VALUES is that of an unused key. So excluded.full_at - excluded.at is what
-- the takes cost.
--
-- The parameters are limiter, key, at + cost, at, step, capacity, the number of takes, and the
-- latest full_at that the takes may leave. They have no numbers, because the driver would look up
-- each by its name.
INSERT INTO limiter_token_buckets AS b (limiter, key, full_at, at, step, capacity, granted)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (limiter, key) DO UPDATE
SET full_at = max(b.full_at, excluded.at) + excluded.full_at - excluded.at,
    at = excluded.at,
    granted = excluded.granted
WHERE b.step = excluded.step AND b.capacity = excluded.capacity
  AND b.at <= excluded.at + 2000000000
  AND max(b.full_at, excluded.at) + excluded.full_at - excluded.at <= ?
RETURNING full_at, at;
