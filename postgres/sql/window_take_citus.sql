-- Grants takes of one key where the table is distributed by Citus: as many of $8 units as the
-- window has room for. A unit costs $5. It works like bucket_take_citus.sql.
--
-- RETURNING cannot name the clock, so now in the row that it returns is the row's at. It is later than the clock
-- only if another clock was ahead of it.
--
-- $1 limiter, $2 key, $3 window, $4 limit, $5 cost, $6 time of the operation or NULL, $7 how far
-- the row may lie ahead of the clock, $8 units
INSERT INTO /* schema */limiter_fixed_windows AS b (limiter, key, window_start, win, lim, used, at, granted)
VALUES ($1::text, $2::bytea,
    coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000)
        - coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000) % $3::bigint,
    $3::bigint, $4::bigint, least($8::bigint, $4::bigint / $5::bigint) * $5::bigint,
    coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000),
    least($8::bigint, $4::bigint / $5::bigint))
ON CONFLICT (limiter, key) DO UPDATE
SET window_start = CASE
        WHEN b.window_start < excluded.window_start THEN excluded.window_start
        WHEN b.used + $5::bigint <= b.lim THEN b.window_start
        ELSE b.window_start + b.win
    END,
    used = CASE
        WHEN b.window_start >= excluded.window_start AND b.used + $5::bigint <= b.lim
        THEN b.used + least(excluded.granted, (b.lim - b.used) / $5::bigint) * $5::bigint
        ELSE excluded.used
    END,
    at = greatest(b.at, excluded.at),
    granted = CASE
        WHEN b.window_start >= excluded.window_start AND b.used + $5::bigint <= b.lim
        THEN least(excluded.granted, (b.lim - b.used) / $5::bigint)
        ELSE excluded.granted
    END
WHERE b.win = excluded.win AND b.lim = excluded.lim
  AND b.at <= excluded.at + $7::bigint
  AND (b.window_start < excluded.window_start
    OR CASE WHEN b.used + $5::bigint <= b.lim THEN b.window_start ELSE b.window_start + b.win END
       <= greatest(b.at, excluded.at))
RETURNING b.granted, b.at, b.window_start, b.used, b.at
