-- Grants a take in a window, or refuses it. A statement for fixed windows has the parts after "if fixed", and one
-- for the calendar those after "if calendar".
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
-- The application computes the period of a calendar. The statement decides only if both its clocks are
-- in that period, and if the take cannot wait for the next one. It accepts a row of this period, and one whose
-- window has ended, whatever policy wrote it. If the row's at is not in its window, it may be in a later
-- one than the clock.
--
-- $1 limiter, $2 key, $3 window, $4 limit, $5 cost, $6 time of the operation or NULL,
-- $7 how far the row may lie ahead of the clock, $8 longest wait. $9 is the start of the calendar's period.
WITH clock AS MATERIALIZED (
    SELECT at, /* if fixed */at - at % $3::bigint/* if calendar */$9::bigint/* end if */ AS cur
    FROM (SELECT coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at) AS reading
    /* if fixed *//* if calendar */WHERE at >= $9::bigint AND at < $9::bigint + $3::bigint - $8::bigint/* end if */
), blocked AS (
    SELECT b.window_start, b.used, clock.at, b.at AS row_at, b.win, b.lim
    FROM /* schema */limiter_fixed_windows AS b, clock
    WHERE b.limiter = $1::text AND b.key = $2::bytea
      AND /* if fixed */(b.win <> $3::bigint OR b.lim <> $4::bigint OR b.window_start % $3::bigint <> 0
        OR b.window_start >= clock.cur
          AND CASE WHEN b.used + $5::bigint <= $4::bigint THEN b.window_start ELSE b.window_start + $3::bigint END
              > greatest(b.at, clock.at + $8::bigint))
      /* if calendar */(b.at >= b.window_start + b.win
        OR b.window_start + b.win > clock.cur
          AND (b.window_start <> clock.cur OR b.win <> $3::bigint OR b.lim <> $4::bigint OR b.used + $5::bigint > $4::bigint))
      /* end if */
), later AS MATERIALIZED (
    SELECT at, /* if fixed */at - at % $3::bigint/* if calendar */$9::bigint/* end if */ AS cur
    FROM (SELECT /* key_lock */true AS bounded, coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at/* commit */
        WHERE /* if fixed *//* if calendar */EXISTS (SELECT FROM clock) AND /* end if */NOT EXISTS (SELECT FROM blocked)) AS reading
    /* if fixed *//* if calendar */WHERE at >= $9::bigint AND at < $9::bigint + $3::bigint - $8::bigint/* end if */
), taken AS (
    INSERT INTO /* schema */limiter_fixed_windows AS b (limiter, key, window_start, win, lim, used, at, granted)
    SELECT $1::text, $2::bytea, cur, $3::bigint, $4::bigint, $5::bigint, at, 1
    FROM later
    ON CONFLICT (limiter, key) DO UPDATE
    SET /* if fixed */window_start = CASE
            WHEN b.window_start < excluded.window_start THEN excluded.window_start
            WHEN b.used + excluded.used <= b.lim THEN b.window_start
            ELSE b.window_start + b.win
        END,
        used = CASE
            WHEN b.window_start >= excluded.window_start AND b.used + excluded.used <= b.lim THEN b.used + excluded.used
            ELSE excluded.used
        END,
        /* if calendar */window_start = excluded.window_start, win = excluded.win, lim = excluded.lim,
        used = CASE WHEN b.window_start = excluded.window_start THEN b.used + excluded.used ELSE excluded.used END,
        /* end if */at = greatest(b.at, excluded.at),
        granted = 1
    WHERE b.at <= excluded.at + $7::bigint
      AND /* if fixed */b.win = excluded.win AND b.lim = excluded.lim AND b.window_start % excluded.win = 0
      AND (b.window_start < excluded.window_start
        OR CASE WHEN b.used + excluded.used <= b.lim THEN b.window_start ELSE b.window_start + b.win END
           <= greatest(b.at, excluded.at + $8::bigint))
      /* if calendar */b.at < b.window_start + b.win
      AND (b.window_start + b.win <= excluded.window_start
        OR b.window_start = excluded.window_start AND b.win = excluded.win AND b.lim = excluded.lim
          AND b.used + excluded.used <= b.lim)
      /* end if */
    RETURNING b.window_start, b.used, b.at
)
SELECT 1, later.at, window_start, used, taken.at FROM taken, later
UNION ALL
SELECT 0, at, window_start, used, row_at FROM blocked
WHERE win = $3::bigint AND lim = $4::bigint AND /* if fixed */window_start % $3::bigint = 0/* if calendar */window_start = $9::bigint AND row_at < window_start + win/* end if */
