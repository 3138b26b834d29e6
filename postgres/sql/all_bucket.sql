-- The sections of all.sql for a token bucket. $period is the step, $limit the capacity, $cost the
-- cost * step, and $more the capacity * step.

-- section: seen
seen{i} AS MATERIALIZED (
    SELECT b.full_at, b.at, b.step, b.capacity,
        b.step = $period::bigint AND b.capacity = $limit::bigint AND b.at <= clock.at + 2000000000
            AND b.full_at + $cost::bigint <= clock.at + $more::bigint AS fits
    FROM /* schema */limiter_token_buckets AS b, clock
    WHERE b.limiter = $limiter::text AND b.key = $key::bytea
)
-- section: fits
((SELECT fits FROM seen{i}))
-- section: new
({i}, $limiter::text, $key::bytea, $period::bigint, $limit::bigint, (SELECT fits FROM seen{i}))
-- section: cost
({i}, $limiter::text, $key::bytea, $cost::bigint)
-- section: added
added_buckets AS (
    INSERT INTO /* schema */limiter_token_buckets (limiter, key, full_at, at, step, capacity, granted)
    SELECT a.limiter, a.key, 0, 0, a.step, a.capacity, 0
    FROM (VALUES /* new */) AS a (i, limiter, key, step, capacity, fits)
    WHERE a.fits IS NULL AND (SELECT gate.fits AND gate.missing FROM gate)
    ORDER BY a.i
    ON CONFLICT (limiter, key) DO NOTHING
    RETURNING 1
)
-- section: held
held{i} AS MATERIALIZED (
    SELECT b.full_at, b.at, b.step, b.capacity
    FROM /* schema */limiter_token_buckets AS b
    WHERE b.limiter = $limiter::text AND b.key = $key::bytea AND EXISTS (SELECT FROM held{before})
    FOR UPDATE/* skip */
)
-- section: found
EXISTS (SELECT FROM held{i})
-- section: room
(SELECT b.step = $period::bigint AND b.capacity = $limit::bigint AND b.at <= later.at + 2000000000
    AND greatest(b.full_at, later.at) + $cost::bigint <= later.at + $more::bigint FROM held{i} AS b)
-- section: taken
taken_buckets AS (
    UPDATE /* schema */limiter_token_buckets AS b
    SET full_at = greatest(b.full_at, passed.at) + a.cost, at = passed.at, granted = 1
    FROM passed, (VALUES /* cost */) AS a (i, limiter, key, cost)
    WHERE a.i > 0 AND a.cost >= 0 AND b.limiter = ANY (ARRAY[a.limiter]) AND b.key = a.key
)
-- section: row
CASE WHEN later.at IS NULL
    THEN (SELECT ARRAY[b.full_at, b.at, b.step, b.capacity] FROM seen{i} AS b)
    ELSE (SELECT ARRAY[b.full_at, b.at, b.step, b.capacity] FROM held{i} AS b)
END
