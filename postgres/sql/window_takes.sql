-- Grants takes in many fixed windows: for each key as many of $7 units as its window has room for.
-- A unit costs $5. It works like bucket_takes.sql.
--
-- Returns (i, limiter, key, granted, now, window_start, used, at).
--
-- See window_take.sql for the calendar.
--
-- $1 limiters, $2 keys, $3 windows, $4 limits, $5 costs, $6 times of the operations or 0, $7 units. $8 is how
-- much may count in each window: its limit, and more for a charge. $9 starts of the calendar's periods
WITH clock AS MATERIALIZED (
    SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000 AS at, /* lock_timeout */true AS bounded/* commit */
), asked AS MATERIALIZED (
    SELECT a.i, a.limiter, a.key, a.win, a.lim, a.cost, a.reach, least(a.units, a.reach / a.cost) AS units,
        /* if fixed */CASE a.at WHEN 0 THEN clock.at - clock.at % a.win ELSE a.at - a.at % a.win END/* if calendar */a.start/* end if */ AS cur, a.at
    FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[]/* if fixed *//* if calendar */, $9::bigint[]/* end if */)
        WITH ORDINALITY AS a (limiter, key, win, lim, cost, at, units, reach, /* if fixed *//* if calendar */start, /* end if */i), clock
    WHERE a.win > 0 AND a.lim > 0 AND a.cost > 0 AND a.units > 0
      /* if fixed *//* if calendar */AND CASE a.at WHEN 0 THEN clock.at ELSE a.at END >= a.start
      AND CASE a.at WHEN 0 THEN clock.at ELSE a.at END < a.start + a.win/* end if */
), found AS MATERIALIZED (
    SELECT f.*, /* if fixed */f.window_start < f.at - f.at % f.win AS ended, f.at - f.at % f.win/* if calendar */f.start/* end if */ AS cur
    FROM (SELECT a.i, a.limiter, a.key, a.win, a.lim, a.cost, a.reach, a.units/* if fixed *//* if calendar */, a.cur AS start/* end if */,
        b.window_start, b.used, b.at AS row_at,
        b.win = a.win AND b.lim = a.lim AND /* if fixed */b.window_start % a.win = 0/* if calendar */b.window_start = a.cur AND b.at < b.window_start + b.win/* end if */ AS same,
        CASE WHEN b.used + a.cost > a.reach AND NOT (/* if fixed */b.window_start < a.cur/* if calendar */b.window_start + b.win <= a.cur/* end if */) THEN true ELSE /* keys_lock */true END AS queued,
        /* if fixed *//* if calendar */b.window_start + b.win <= a.cur AS ended,/* end if */
        CASE a.at WHEN 0 THEN (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000 ELSE a.at END AS at
    FROM asked AS a LEFT JOIN LATERAL (
        SELECT window_start, used, at, win, lim FROM /* schema */limiter_fixed_windows AS r
        WHERE r.limiter = a.limiter AND r.key = a.key
        LIMIT 1
    ) AS b ON true) AS f/* if fixed *//* if calendar */
    WHERE f.at >= f.start AND f.at < f.start + f.win/* end if */
), added AS (
    INSERT INTO /* schema */limiter_fixed_windows AS b (limiter, key, window_start, win, lim, used, at, granted)
    SELECT limiter, key, cur, win, lim, units * cost, at, units
    FROM found
    WHERE used IS NULL
    ON CONFLICT (limiter, key) DO NOTHING
    RETURNING b.limiter, b.key, b.granted, b.window_start, b.used, b.at
), taken AS (
    UPDATE /* schema */limiter_fixed_windows AS b
    SET /* if fixed */window_start = greatest(b.window_start, a.cur),
        /* if calendar */window_start = a.cur, win = a.win, lim = a.lim,
        /* end if */        used = CASE
            WHEN b.window_start >= a.cur THEN b.used + least(a.units, (a.reach - b.used) / a.cost) * a.cost
            ELSE a.units * a.cost
        END,
        at = greatest(b.at, a.at),
        granted = CASE
            WHEN b.window_start >= a.cur THEN least(a.units, (a.reach - b.used) / a.cost)
            ELSE a.units
        END
    FROM found AS a
    WHERE (a.ended OR a.used + a.cost <= a.reach AND a.window_start <= greatest(a.row_at, a.at))
      AND b.limiter = ANY (ARRAY[a.limiter]) AND b.key = a.key
      AND b.at <= a.at + 2000000000
      AND /* if fixed */b.win = a.win AND b.lim = a.lim AND b.window_start % b.win = 0
      AND (b.window_start < a.cur OR b.used + a.cost <= a.reach AND b.window_start <= greatest(b.at, a.at))
      /* if calendar */b.at < b.window_start + b.win
      AND (b.window_start + b.win <= a.cur
        OR b.window_start = a.cur AND b.win = a.win AND b.lim = a.lim AND b.used + a.cost <= a.reach)
      /* end if */
    RETURNING a.i, b.granted, b.window_start, b.used, a.at AS now, b.at
)
SELECT 0 AS i, limiter, pg_catalog.encode(key, 'hex'), granted, at, window_start, used, at FROM added
UNION ALL
SELECT i, '', '', granted, now, window_start, used, at FROM taken
UNION ALL
SELECT i, '', '', 0, at, window_start, used, row_at FROM found
WHERE same AND NOT ended
  AND (used + cost > reach OR window_start > greatest(row_at, at))
