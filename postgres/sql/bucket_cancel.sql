-- Cancels a booking if the row is still what the booking wrote (nobody has booked after it), and
-- its turn has not come.
--
-- $1 limiter, $2 key, $3 spend: cost * step, $4 full_at that the booking wrote, $5 step, $6
-- capacity, $7 instant of its turn, $8 time or NULL
WITH clock AS MATERIALIZED (
    SELECT coalesce($8::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at, /* lock_timeout */true AS bounded
)
UPDATE /* schema */limiter_token_buckets AS b
SET full_at = b.full_at - $3::bigint
FROM clock
WHERE b.limiter = $1::text AND b.key = $2::bytea
  AND b.full_at = $4::bigint AND b.step = $5::bigint AND b.capacity = $6::bigint
  AND clock.at <= $7::bigint
RETURNING b.full_at, b.at, b.step, b.capacity
