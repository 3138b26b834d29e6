-- Grants a take from a token bucket that is expected to have room. It does what bucket_take.sql
-- does, without its first read, in a quarter less of the server's time.
--
-- Answers one row (1, full_at, now, at), or none if it did not grant the take. Then the row was
-- locked in vain, and bucket_take.sql must follow.
--
-- The arguments are those of bucket_take.sql. OFFSET 0 states what PostgreSQL does anyway: it
-- reads the clock once.
INSERT INTO /* schema */limiter_token_buckets AS b (limiter, key, full_at, at, step, capacity, granted)
SELECT $1::text, $2::bytea, clock.at + $5::bigint, clock.at, $3::bigint, $4::bigint, 1
FROM (
    SELECT coalesce($7::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at/* commit */
    OFFSET 0
) AS clock
ON CONFLICT (limiter, key) DO UPDATE
SET full_at = greatest(b.full_at, excluded.at) + $5::bigint,
    at = excluded.at,
    granted = 1
WHERE b.step = excluded.step AND b.capacity = excluded.capacity
  AND b.at <= excluded.at + 2000000000
  AND greatest(b.full_at, excluded.at) + $5::bigint <= excluded.at + $6::bigint
RETURNING 1, b.full_at, b.at, b.at
