-- Gives tokens back at the row's own step, unless the bucket is full or bookings are outstanding. The clock was
-- read before the statement waited for the row, so the row's time may be later.
-- More tokens than a bucket holds would have the same effect, and could overflow.
--
-- $1 limiter, $2 key, $3 tokens, $4 time of the operation or NULL
WITH clock AS MATERIALIZED (
    SELECT coalesce($4::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at, /* lock_timeout */true AS bounded
)
UPDATE /* schema */limiter_token_buckets AS b
SET full_at = greatest(0, b.full_at - least($3::bigint, b.capacity) * b.step)
FROM clock
WHERE b.limiter = $1::text AND b.key = $2::bytea
  AND b.full_at > clock.at
  AND b.full_at <= greatest(b.at, clock.at) + b.capacity * b.step
RETURNING b.full_at, b.at, b.step, b.capacity
