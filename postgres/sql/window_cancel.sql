-- Cancels a booking if the row still has the window of the booking, and its turn has not come. It does
-- nothing if the window is blocked.
--
-- $1 limiter, $2 key, $3 units, $4 window_start of the booking, $5 win, $6 instant of its turn, $7
-- time of the operation or NULL
WITH clock AS MATERIALIZED (
    SELECT coalesce($7::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at, /* lock_timeout */true AS bounded
)
UPDATE /* schema */limiter_fixed_windows AS b
SET used = greatest(0, b.used - $3::bigint)
FROM clock
WHERE b.limiter = $1::text AND b.key = $2::bytea
  AND b.window_start = $4::bigint AND b.win = $5::bigint AND b.used < 4611686018427387904
  AND clock.at <= $6::bigint
RETURNING b.window_start, b.used, b.at, b.win, b.lim
