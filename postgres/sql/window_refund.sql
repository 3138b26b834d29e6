-- Gives units back to the current window; to no other, and not while the row
-- tells of one that lies ahead.
-- $1 limiter, $2 key, $3 units, $4 time of the operation or NULL
WITH clock AS MATERIALIZED (
    SELECT coalesce($4::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at
)
UPDATE /* schema */limiter_fixed_windows AS b
SET used = greatest(0, b.used - $3::bigint)
FROM clock
WHERE b.limiter = $1::text AND b.key = $2::bytea
  AND b.window_start <= greatest(b.at, clock.at)
  AND b.window_start + b.win > greatest(b.at, clock.at)
