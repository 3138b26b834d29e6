-- Grants a take from a token bucket that is expected to have room: what bucket_take.sql
-- does, without the read that comes first there, for a quarter less of the server's time.
--
-- Answers one row (1, full_at, now, at), or none if the take was not carried out. Then
-- the row was locked in vain, and bucket_take.sql has to be asked.
--
-- The arguments are those of bucket_take.sql. OFFSET 0 says what PostgreSQL does anyway:
-- the clock is read once.
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
