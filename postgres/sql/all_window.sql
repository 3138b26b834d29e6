-- The sections of all.sql for a window. $more is how far the row may lie ahead of the clock. If one of the rows
-- is a calendar's, $start is the start of its period, and -1 for a fixed window: see window_take.sql.

-- section: seen
seen{i} AS MATERIALIZED (
    SELECT b.window_start, b.used, b.at, b.win, b.lim,
        b.at <= clock.at + $more::bigint
            AND /* if fixed */b.win = $period::bigint AND b.lim = $limit::bigint AND b.window_start % $period::bigint = 0
            AND (b.window_start < clock.at - clock.at % $period::bigint
                OR CASE WHEN b.used + $cost::bigint <= $limit::bigint THEN b.window_start ELSE b.window_start + $period::bigint END
                    <= greatest(b.at, clock.at))
            /* if calendar */clock.at >= $start::bigint AND clock.at < $start::bigint + $period::bigint
            AND b.at < b.window_start + b.win
            AND (b.window_start + b.win <= $start::bigint
                OR b.window_start = $start::bigint AND b.win = $period::bigint AND b.lim = $limit::bigint
                    AND b.used + $cost::bigint <= b.lim)
            /* end if */ AS fits
    FROM /* schema */limiter_fixed_windows AS b, clock
    WHERE b.limiter = $limiter::text AND b.key = $key::bytea
)
-- section: fits
((SELECT fits FROM seen{i}))
-- section: new
({i}, $limiter::text, $key::bytea, $period::bigint, $limit::bigint, (SELECT fits FROM seen{i}))
-- section: cost
({i}, $limiter::text, $key::bytea, $cost::bigint/* if fixed *//* if calendar */, $period::bigint, $limit::bigint, $start::bigint/* end if */)
-- section: added
added_windows AS (
    INSERT INTO /* schema */limiter_fixed_windows (limiter, key, window_start, win, lim, used, at, granted)
    SELECT a.limiter, a.key, 0, a.win, a.lim, 0, 0, 0
    FROM (VALUES /* new */) AS a (i, limiter, key, win, lim, fits)
    WHERE a.fits IS NULL AND (SELECT gate.fits AND gate.missing FROM gate) AND (SELECT pg_catalog.count(*) FROM {after}) >= 0
    ORDER BY a.i
    ON CONFLICT (limiter, key) DO NOTHING
    RETURNING 1
)
-- section: held
held{i} AS MATERIALIZED (
    SELECT b.window_start, b.used, b.at, b.win, b.lim
    FROM /* schema */limiter_fixed_windows AS b
    WHERE b.limiter = $limiter::text AND b.key = $key::bytea AND EXISTS (SELECT FROM held{before})
    FOR UPDATE/* skip */
)
-- section: found
EXISTS (SELECT FROM held{i})
-- section: room
(SELECT b.at <= later.at + $more::bigint
    AND /* if fixed */b.win = $period::bigint AND b.lim = $limit::bigint AND b.window_start % $period::bigint = 0
    AND (b.window_start < later.at - later.at % $period::bigint
        OR CASE WHEN b.used + $cost::bigint <= b.lim THEN b.window_start ELSE b.window_start + b.win END
            <= greatest(b.at, later.at))
    /* if calendar */later.at >= $start::bigint AND later.at < $start::bigint + $period::bigint
    AND b.at < b.window_start + b.win
    AND (b.window_start + b.win <= $start::bigint
        OR b.window_start = $start::bigint AND b.win = $period::bigint AND b.lim = $limit::bigint
            AND b.used + $cost::bigint <= b.lim)
    /* end if */ FROM held{i} AS b)
-- section: taken
taken_windows AS (
    UPDATE /* schema */limiter_fixed_windows AS b
    SET window_start = /* if fixed */CASE
            WHEN b.window_start < passed.at - passed.at % b.win THEN passed.at - passed.at % b.win
            WHEN b.used + a.cost <= b.lim THEN b.window_start
            ELSE b.window_start + b.win
        END/* if calendar */a.start/* end if */,
        used = /* if fixed */CASE
            WHEN b.window_start >= passed.at - passed.at % b.win AND b.used + a.cost <= b.lim THEN b.used + a.cost
            ELSE a.cost
        END/* if calendar */CASE WHEN b.window_start = a.start THEN b.used + a.cost ELSE a.cost END/* end if */,
        /* if fixed *//* if calendar */win = a.win, lim = a.lim,/* end if */
        at = greatest(b.at, passed.at),
        granted = 1
    FROM passed, (VALUES /* cost */) AS a (i, limiter, key, cost/* if fixed *//* if calendar */, win, lim, start/* end if */)
    WHERE a.i > 0 AND a.cost >= 0 AND b.limiter = ANY (ARRAY[a.limiter]) AND b.key = a.key
)
-- section: row
CASE WHEN later.at IS NULL
    THEN (SELECT ARRAY[b.window_start, b.used, b.at, b.win, b.lim] FROM seen{i} AS b)
    ELSE (SELECT ARRAY[b.window_start, b.used, b.at, b.win, b.lim] FROM held{i} AS b)
END
