-- Grants takes from many token buckets: of each key as many of $7 units, each of
-- which costs $5, as there is room for.
--
-- Answers one row (i, limiter, key, granted, full_at, now, at) for each key that the
-- statement could decide on; granted is 0 for one that is refused. i is the key's place
-- in the arrays, counted from 1. A row that was added has limiter and key instead, and
-- 0: RETURNING cannot name what was not inserted. The key is in hex, as how bytes come in
-- text depends on a setting of the session. For keys that it cannot decide on, which
-- are those that bucket_take.sql cannot, those whose row somebody else has just added or
-- removed, and those that were said to have a row and have none, it answers none.
--
-- An UPDATE, because an INSERT that finds its row locks it first and then updates it:
-- two records in the WAL in place of one, and two ways down the index. What admits is
-- read from the target row, under its lock: if somebody has changed that since the
-- snapshot, PostgreSQL evaluates WHERE and SET anew on what it is now. Where the
-- snapshot cannot admit, nothing is locked. A key that probably has a row with room is
-- updated unseen, and read only if it was not updated; others are read first.
--
-- Rows are added before others are updated, and in the order of their keys both times,
-- so that no two statements wait for each other. Who adds a row that somebody else has
-- just added waits for who has updated that since, and must not hold an updated row
-- meanwhile; who updates waits only for others that update, as his snapshot shows no row
-- that was not there before.
--
-- Each key stands here once. The conditions of asked are always true: by what the
-- planner makes of them it expects one row, and so goes through the index for each,
-- in order, in place of reading all of the table. LIMIT 1 is for the same purpose. So is
-- = ANY, which no merge join can use: through all of the index in its order, as for one,
-- costs no more than to one key of it in a table that held no rows, or one, when the
-- session planned, and the plan stays when there are more.
--
-- $1 limiters, $2 keys, $3 steps, $4 capacities, $5 spends, $6 times of the
-- operations or 0, $7 units, $8 how long to wait for a lock, $9 1 for keys to be updated
-- unseen, else 0
WITH clock AS MATERIALIZED (
    SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000 AS at
    FROM pg_catalog.set_config('lock_timeout', $8::text, true) AS patience/* and commit */
), asked AS MATERIALIZED (
    SELECT a.i, a.limiter, a.key, a.step, a.capacity, a.spend, least(a.units, a.capacity * a.step / a.spend) AS units, a.unseen = 1 AS unseen,
        CASE a.at WHEN 0 THEN clock.at ELSE a.at END AS at
    FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $9::bigint[])
        WITH ORDINALITY AS a (limiter, key, step, capacity, spend, at, units, unseen, i), clock
    WHERE a.step > 0 AND a.capacity > 0 AND a.spend > 0 AND a.units > 0
), found AS MATERIALIZED (
    SELECT a.*, b.full_at, b.at AS row_at, b.step = a.step AND b.capacity = a.capacity AS same
    FROM asked AS a LEFT JOIN LATERAL (
        SELECT full_at, at, step, capacity FROM /* schema */limiter_token_buckets AS r
        WHERE NOT a.unseen AND r.limiter = a.limiter AND r.key = a.key
        LIMIT 1
    ) AS b ON true
), added AS (
    INSERT INTO /* schema */limiter_token_buckets AS b (limiter, key, full_at, at, step, capacity, granted)
    SELECT limiter, key, at + units * spend, at, step, capacity, units
    FROM found
    WHERE NOT unseen AND full_at IS NULL
    ON CONFLICT (limiter, key) DO NOTHING
    RETURNING b.limiter, b.key, b.granted, b.full_at, b.at
), taken AS (
    UPDATE /* schema */limiter_token_buckets AS b
    SET full_at = greatest(b.full_at, a.at)
            + least(a.units, (a.at + b.capacity * b.step - greatest(b.full_at, a.at)) / a.spend) * a.spend,
        at = a.at,
        granted = least(a.units, (a.at + b.capacity * b.step - greatest(b.full_at, a.at)) / a.spend)
    FROM found AS a
    WHERE (a.unseen OR a.full_at + a.spend <= a.at + a.capacity * a.step)
      AND b.limiter = ANY (ARRAY[a.limiter]) AND b.key = a.key
      AND b.step = a.step AND b.capacity = a.capacity
      AND b.at <= a.at + 2000000000
      AND greatest(b.full_at, a.at) + a.spend <= a.at + b.capacity * b.step
    RETURNING a.i, b.granted, b.full_at, b.at
)
SELECT 0::bigint AS i, limiter, pg_catalog.encode(key, 'hex'), granted, full_at, at, at FROM added
UNION ALL
SELECT i, '', '', granted, full_at, at, at FROM taken
UNION ALL
SELECT i, '', '', 0, full_at, at, row_at FROM found WHERE same AND full_at + spend > at + capacity * step
UNION ALL
SELECT a.i, '', '', 0, b.full_at, a.at, b.at FROM asked AS a CROSS JOIN LATERAL (
    SELECT full_at, at, step, capacity FROM /* schema */limiter_token_buckets AS r
    WHERE r.limiter = a.limiter AND r.key = a.key
    LIMIT 1
) AS b
WHERE a.unseen AND a.i NOT IN (SELECT i FROM taken)
  AND b.step = a.step AND b.capacity = a.capacity AND b.full_at + a.spend > a.at + a.capacity * a.step
