-- The sections of all.sql for a fixed window. $more is how far the row may lie ahead of the clock.

-- section: seen
seen{i} AS MATERIALIZED (
    SELECT b.window_start, b.used, b.at, b.win, b.lim,
        b.win = $period::bigint AND b.lim = $limit::bigint AND b.at <= clock.at + $more::bigint
            AND (b.window_start < clock.at - clock.at % $period::bigint
                OR CASE WHEN b.used + $cost::bigint <= $limit::bigint THEN b.window_start ELSE b.window_start + $period::bigint END
                    <= greatest(b.at, clock.at)) AS fits
    FROM /* schema */limiter_fixed_windows AS b, clock
    WHERE b.limiter = $limiter::text AND b.key = $key::bytea
)
-- section: fits
((SELECT fits FROM seen{i}))
-- section: new
({i}, $limiter::text, $key::bytea, $period::bigint, $limit::bigint, (SELECT fits FROM seen{i}))
-- section: cost
({i}, $limiter::text, $key::bytea, $cost::bigint)
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
(SELECT b.win = $period::bigint AND b.lim = $limit::bigint AND b.at <= later.at + $more::bigint
    AND (b.window_start < later.at - later.at % $period::bigint
        OR CASE WHEN b.used + $cost::bigint <= b.lim THEN b.window_start ELSE b.window_start + b.win END
            <= greatest(b.at, later.at)) FROM held{i} AS b)
-- section: taken
taken_windows AS (
    UPDATE /* schema */limiter_fixed_windows AS b
    SET window_start = CASE
            WHEN b.window_start < passed.at - passed.at % b.win THEN passed.at - passed.at % b.win
            WHEN b.used + a.cost <= b.lim THEN b.window_start
            ELSE b.window_start + b.win
        END,
        used = CASE
            WHEN b.window_start >= passed.at - passed.at % b.win AND b.used + a.cost <= b.lim THEN b.used + a.cost
            ELSE a.cost
        END,
        at = greatest(b.at, passed.at),
        granted = 1
    FROM passed, (VALUES /* cost */) AS a (i, limiter, key, cost)
    WHERE a.i > 0 AND a.cost >= 0 AND b.limiter = ANY (ARRAY[a.limiter]) AND b.key = a.key
)
-- section: row
CASE WHEN later.at IS NULL
    THEN (SELECT ARRAY[b.window_start, b.used, b.at, b.win, b.lim] FROM seen{i} AS b)
    ELSE (SELECT ARRAY[b.window_start, b.used, b.at, b.win, b.lim] FROM held{i} AS b)
END
