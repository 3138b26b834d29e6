-- Gives units back to the current window, if anything was counted in it. It gives nothing
-- back while the row's window lies ahead or is blocked, or if another window was charged.
-- $1 limiter, $2 key, $3 units, $4 time of the operation or NULL,
-- $5 win of the window that was charged, or 0 for any, $6 its window_start
WITH clock AS MATERIALIZED (
    SELECT coalesce($4::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at, /* lock_timeout */true AS bounded
)
UPDATE /* schema */limiter_fixed_windows AS b
SET used = greatest(0, b.used - $3::bigint)
FROM clock
WHERE b.limiter = $1::text AND b.key = $2::bytea
  AND b.used > 0 AND b.used < 4611686018427387904
  AND ($5::bigint = 0 OR b.win = $5::bigint AND b.window_start = $6::bigint)
  AND b.window_start <= greatest(b.at, clock.at)
  AND b.window_start + b.win > greatest(b.at, clock.at)
RETURNING b.window_start, b.used, b.at, b.win, b.lim
