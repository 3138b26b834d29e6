-- Counts a request in a fixed window that also counts refusals, or a charge.
--
-- Returns one row (1, now, window_start, used, at) if it allowed the request. It returns 0 instead
-- of 1 if used is over the limit or the window is ahead. It returns no row if the row has another
-- policy or lies ahead of the clock. A window ahead, which reservations of an earlier policy left,
-- counts nothing before it comes. A charge must also count there: then this statement writes nothing
-- and returns no row.
--
-- See window_take.sql for the calendar, which counts no refusals.
--
-- $1 limiter, $2 key, $3 window, $4 limit, $5 cost, $6 time of the operation or NULL, $7 how far
-- the row may lie ahead of the clock, $8 1 for a charge, otherwise 0. $9 is the start of the calendar's period.
WITH clock AS MATERIALIZED (
    SELECT at, /* if fixed */at - at % $3::bigint/* if calendar */$9::bigint/* end if */ AS cur, bounded
    FROM (SELECT /* key_lock */true AS bounded, coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at/* commit */) AS reading
    /* if fixed *//* if calendar */WHERE at >= $9::bigint AND at < $9::bigint + $3::bigint/* end if */
)
INSERT INTO /* schema */limiter_fixed_windows AS b (limiter, key, window_start, win, lim, used, at, granted)
SELECT $1::text, $2::bytea, cur, $3::bigint, $4::bigint, $5::bigint, at, 1
FROM clock
ON CONFLICT (limiter, key) DO UPDATE
SET window_start = greatest(b.window_start, excluded.window_start),
    /* if fixed *//* if calendar */win = excluded.win, lim = excluded.lim,/* end if */
    used = CASE
        WHEN b.window_start < excluded.window_start THEN excluded.used
        WHEN b.window_start > greatest(b.at, excluded.at) THEN b.used
        ELSE least(b.used + excluded.used, 4611686018427387904)
    END,
    at = greatest(b.at, excluded.at),
    granted = 1
WHERE /* if fixed */b.win = excluded.win AND b.lim = excluded.lim AND b.window_start % excluded.win = 0
  /* if calendar */b.at < b.window_start + b.win
  AND (b.window_start + b.win <= excluded.window_start
    OR b.window_start = excluded.window_start AND b.win = excluded.win AND b.lim = excluded.lim)
  /* end if */AND b.at <= excluded.at + $7::bigint
  AND ($8::bigint = 0 OR b.window_start <= greatest(b.at, excluded.at))
RETURNING CASE WHEN b.window_start <= b.at AND b.used <= b.lim THEN 1 ELSE 0 END,
    (SELECT clock.at FROM clock), b.window_start, b.used, b.at
