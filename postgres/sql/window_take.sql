-- Grants a take in a fixed window, or refuses it.
--
-- Returns one row (1, now, window_start, used, at) if it granted the take, and one row (0,
-- now, window_start, used, at) with the row that it found if it refused. It returns no row if the
-- row has another policy or lies ahead of the clock, or if another process changed it meanwhile.
-- See bucket_take.sql for locks and snapshots.
--
-- A take goes into the row's window if it fits there, otherwise into the next one. Earlier windows
-- are closed. A clock behind the row's counts in the row's window: hence greatest(). now in the
-- row that it returns is the statement's own clock, by which the caller waits.
--
-- $1 limiter, $2 key, $3 window, $4 limit, $5 cost, $6 time of the operation or NULL,
-- $7 how far the row may lie ahead of the clock, $8 longest wait
WITH clock AS MATERIALIZED (
    SELECT at, at - at % $3::bigint AS cur, bounded
    FROM (SELECT coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at, /* lock_timeout */true AS bounded/* commit */) AS reading
), blocked AS (
    SELECT b.window_start, b.used, clock.at, b.at AS row_at, b.win, b.lim
    FROM /* schema */limiter_fixed_windows AS b, clock
    WHERE b.limiter = $1::text AND b.key = $2::bytea
      AND (b.win <> $3::bigint OR b.lim <> $4::bigint
        OR b.window_start >= clock.cur
          AND CASE WHEN b.used + $5::bigint <= $4::bigint THEN b.window_start ELSE b.window_start + $3::bigint END
              > greatest(b.at, clock.at + $8::bigint))
), taken AS (
    INSERT INTO /* schema */limiter_fixed_windows AS b (limiter, key, window_start, win, lim, used, at, granted)
    SELECT $1::text, $2::bytea, cur, $3::bigint, $4::bigint, $5::bigint, at, 1
    FROM clock
    WHERE NOT EXISTS (SELECT FROM blocked)
    ON CONFLICT (limiter, key) DO UPDATE
    SET window_start = CASE
            WHEN b.window_start < excluded.window_start THEN excluded.window_start
            WHEN b.used + excluded.used <= b.lim THEN b.window_start
            ELSE b.window_start + b.win
        END,
        used = CASE
            WHEN b.window_start >= excluded.window_start AND b.used + excluded.used <= b.lim THEN b.used + excluded.used
            ELSE excluded.used
        END,
        at = greatest(b.at, excluded.at),
        granted = 1
    WHERE b.win = excluded.win AND b.lim = excluded.lim
      AND b.at <= excluded.at + $7::bigint
      AND (b.window_start < excluded.window_start
        OR CASE WHEN b.used + excluded.used <= b.lim THEN b.window_start ELSE b.window_start + b.win END
           <= greatest(b.at, excluded.at + $8::bigint))
    RETURNING b.window_start, b.used, b.at
)
SELECT 1, clock.at, window_start, used, taken.at FROM taken, clock
UNION ALL
SELECT 0, at, window_start, used, row_at FROM blocked WHERE win = $3::bigint AND lim = $4::bigint
