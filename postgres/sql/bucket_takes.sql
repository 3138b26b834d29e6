-- Grants takes from many token buckets: for each key as many of $7 units as there is room for. A
-- unit costs $5. A charge is a take with the longest reach.
--
-- Returns one row (i, limiter, key, granted, now, full_at, at) for each key that the statement
-- could decide; granted is 0 for a refusal. i is the key's place in the arrays, counted from 1. An
-- inserted row has limiter and key instead, and i is 0, because RETURNING cannot name what was not
-- inserted. The key is in hex, because the text form of bytes depends on a setting of the session.
-- It returns no row for the keys that bucket_take.sql cannot decide, and for rows that another
-- process has just inserted or deleted.
--
-- It uses UPDATE, because an INSERT that finds its row locks it first and then updates it: two WAL
-- records instead of one, and two index searches. The condition for a grant is read from the
-- target row under its lock. If another process has changed the row since the snapshot, PostgreSQL
-- evaluates WHERE and SET again. Every key is read first. If the snapshot cannot admit, nothing is
-- locked.
--
-- Rows are inserted before others are updated, in key order both times, so that no two statements
-- wait for each other: see DESIGN.md, "Merged statements cannot deadlock".
--
-- Each key appears once. The conditions of asked are always true. They make the planner expect one
-- row, so that it uses the index for each key instead of reading the whole table. LIMIT 1 has the
-- same purpose. So has = ANY, which no merge join can use: a merge join over the whole index looks
-- cheap if the table was empty when the session planned.
--
-- began is the clock before the advisory lock, and at the clock after it.
--
-- $1 limiters, $2 keys, $3 steps, $4 capacities, $5 spends, $6 times of the operations or 0, $7
-- units, $8 reaches: see bucket_take.sql
WITH clock AS MATERIALIZED (
    SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000 AS at, /* lock_timeout */true AS bounded/* commit */
), asked AS MATERIALIZED (
    SELECT a.i, a.limiter, a.key, a.step, a.capacity, a.spend, a.reach, least(a.units, a.reach / a.spend) AS units,
        CASE a.at WHEN 0 THEN clock.at ELSE a.at END AS began, a.at
    FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
        WITH ORDINALITY AS a (limiter, key, step, capacity, spend, at, units, reach, i), clock
    WHERE a.step > 0 AND a.capacity > 0 AND a.spend > 0 AND a.units > 0
), found AS MATERIALIZED (
    SELECT a.i, a.limiter, a.key, a.step, a.capacity, a.spend, a.reach, a.units, b.full_at, b.at AS row_at, b.step = a.step AND b.capacity = a.capacity AS same,
        CASE WHEN b.full_at + a.spend > a.began + a.reach THEN true ELSE /* keys_lock */true END AS queued,
        CASE a.at WHEN 0 THEN (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000 ELSE a.at END AS at
    FROM asked AS a LEFT JOIN LATERAL (
        SELECT full_at, at, step, capacity FROM /* schema */limiter_token_buckets AS r
        WHERE r.limiter = a.limiter AND r.key = a.key
        LIMIT 1
    ) AS b ON true
), added AS (
    INSERT INTO /* schema */limiter_token_buckets AS b (limiter, key, full_at, at, step, capacity, granted)
    SELECT limiter, key, at + units * spend, at, step, capacity, units
    FROM found
    WHERE full_at IS NULL
    ON CONFLICT (limiter, key) DO NOTHING
    RETURNING b.limiter, b.key, b.granted, b.full_at, b.at
), taken AS (
    UPDATE /* schema */limiter_token_buckets AS b
    SET full_at = greatest(b.full_at, a.at)
            + least(a.units, (a.at + a.reach - greatest(b.full_at, a.at)) / a.spend) * a.spend,
        at = a.at,
        granted = least(a.units, (a.at + a.reach - greatest(b.full_at, a.at)) / a.spend)
    FROM found AS a
    WHERE a.full_at + a.spend <= a.at + a.reach
      AND b.limiter = ANY (ARRAY[a.limiter]) AND b.key = a.key
      AND b.step = a.step AND b.capacity = a.capacity
      AND b.at <= a.at + 2000000000
      AND greatest(b.full_at, a.at) + a.spend <= a.at + a.reach
    RETURNING a.i, b.granted, b.full_at, b.at
)
SELECT 0::bigint AS i, limiter, pg_catalog.encode(key, 'hex'), granted, at, full_at, at FROM added
UNION ALL
SELECT i, '', '', granted, at, full_at, at FROM taken
UNION ALL
SELECT i, '', '', 0, at, full_at, row_at FROM found WHERE same AND full_at + spend > at + reach
