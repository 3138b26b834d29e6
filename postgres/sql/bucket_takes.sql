-- Grants takes from many token buckets: of each key as many of $7 units, each of
-- which costs $5, as there is room for.
--
-- Answers one row (limiter, key, granted, full_at, now, at) for each key that the
-- statement could decide on; granted is 0 for one that is refused. For keys that it
-- cannot decide on, which are those that bucket_take.sql cannot, it answers none.
-- What is said there of locks and snapshots holds here.
--
-- LIMIT 1 keeps the planner from a join that reads all of the table.
--
-- The keys are locked in their order, so that no two statements wait for each other,
-- and each of them stands here once. excluded carries what a row asks for: granted
-- units, and (full_at - at) / granted as the time that one of them costs.
--
-- $1 limiters, $2 keys, $3 steps, $4 capacities, $5 spends, $6 times of the
-- operations or 0, $7 units, $8 how long to wait for a lock
WITH clock AS MATERIALIZED (
    SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint * 1000 AS at
    FROM pg_catalog.set_config('lock_timeout', $8::text, true) AS patience/* and commit */
), asked AS MATERIALIZED (
    SELECT a.limiter, a.key, a.step, a.capacity, a.spend, least(a.units, a.capacity * a.step / a.spend) AS units,
        CASE a.at WHEN 0 THEN clock.at ELSE a.at END AS at
    FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
        AS a (limiter, key, step, capacity, spend, at, units), clock
), unfit AS MATERIALIZED (
    SELECT a.limiter, a.key, b.full_at, a.at, b.at AS row_at, b.step = a.step AND b.capacity = a.capacity AS same
    FROM asked AS a CROSS JOIN LATERAL (
        SELECT full_at, at, step, capacity FROM /* schema */limiter_token_buckets AS r
        WHERE r.limiter = a.limiter AND r.key = a.key
        LIMIT 1
    ) AS b
    WHERE b.step <> a.step OR b.capacity <> a.capacity OR b.full_at + a.spend > a.at + a.capacity * a.step
), taken AS (
    INSERT INTO /* schema */limiter_token_buckets AS b (limiter, key, full_at, at, step, capacity, granted)
    SELECT a.limiter, a.key, a.at + a.units * a.spend, a.at, a.step, a.capacity, a.units
    FROM asked AS a
    WHERE NOT EXISTS (SELECT FROM unfit AS u WHERE u.limiter = a.limiter AND u.key = a.key)
    ORDER BY a.limiter COLLATE "C", a.key
    ON CONFLICT (limiter, key) DO UPDATE
    SET full_at = greatest(b.full_at, excluded.at)
            + least(excluded.granted, (excluded.at + b.capacity * b.step - greatest(b.full_at, excluded.at)) / ((excluded.full_at - excluded.at) / excluded.granted))
            * ((excluded.full_at - excluded.at) / excluded.granted),
        at = excluded.at,
        granted = least(excluded.granted, (excluded.at + b.capacity * b.step - greatest(b.full_at, excluded.at)) / ((excluded.full_at - excluded.at) / excluded.granted))
    WHERE b.step = excluded.step AND b.capacity = excluded.capacity
      AND b.at <= excluded.at + 2000000000
      AND greatest(b.full_at, excluded.at) + (excluded.full_at - excluded.at) / excluded.granted <= excluded.at + b.capacity * b.step
    RETURNING b.limiter, b.key, b.granted, b.full_at, b.at
)
SELECT limiter, key, granted, full_at, at, at FROM taken
UNION ALL
SELECT limiter, key, 0, full_at, at, row_at FROM unfit WHERE same
