-- Grants takes in many fixed windows: of each key as many of $7 units, each of which
-- costs $5, as its window has room for. It is to window_take.sql what
-- bucket_takes.sql is to bucket_take.sql.
--
-- Answers (limiter, key, granted, window_start, used, now, at). excluded carries the
-- units in granted, and used / granted as the cost of one.
--
-- $1 limiters, $2 keys, $3 windows, $4 limits, $5 costs, $6 times of the operations or
-- 0, $7 units, $8 how long to wait for a lock
WITH clock AS MATERIALIZED (
    SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint * 1000 AS at
    FROM pg_catalog.set_config('lock_timeout', $8::text, true) AS patience/* and commit */
), asked AS MATERIALIZED (
    SELECT a.limiter, a.key, a.win, a.lim, a.cost, least(a.units, a.lim / a.cost) AS units,
        CASE a.at WHEN 0 THEN clock.at ELSE a.at END AS at
    FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
        AS a (limiter, key, win, lim, cost, at, units), clock
), unfit AS MATERIALIZED (
    SELECT a.limiter, a.key, b.window_start, b.used, a.at, b.at AS row_at, b.win = a.win AND b.lim = a.lim AS same
    FROM asked AS a CROSS JOIN LATERAL (
        SELECT window_start, used, at, win, lim FROM /* schema */limiter_fixed_windows AS r
        WHERE r.limiter = a.limiter AND r.key = a.key
        LIMIT 1
    ) AS b
    WHERE b.win <> a.win OR b.lim <> a.lim
      OR b.window_start >= a.at - a.at % a.win
        AND CASE WHEN b.used + a.cost <= a.lim THEN b.window_start ELSE b.window_start + a.win END > greatest(b.at, a.at)
), taken AS (
    INSERT INTO /* schema */limiter_fixed_windows AS b (limiter, key, window_start, win, lim, used, at, granted)
    SELECT a.limiter, a.key, a.at - a.at % a.win, a.win, a.lim, a.units * a.cost, a.at, a.units
    FROM asked AS a
    WHERE NOT EXISTS (SELECT FROM unfit AS u WHERE u.limiter = a.limiter AND u.key = a.key)
    ORDER BY a.limiter COLLATE "C", a.key
    ON CONFLICT (limiter, key) DO UPDATE
    SET window_start = CASE
            WHEN b.window_start < excluded.window_start THEN excluded.window_start
            WHEN b.used + excluded.used / excluded.granted <= b.lim THEN b.window_start
            ELSE b.window_start + b.win
        END,
        used = CASE
            WHEN b.window_start >= excluded.window_start AND b.used + excluded.used / excluded.granted <= b.lim
            THEN b.used + least(excluded.granted, (b.lim - b.used) / (excluded.used / excluded.granted)) * (excluded.used / excluded.granted)
            ELSE excluded.used
        END,
        at = greatest(b.at, excluded.at),
        granted = CASE
            WHEN b.window_start >= excluded.window_start AND b.used + excluded.used / excluded.granted <= b.lim
            THEN least(excluded.granted, (b.lim - b.used) / (excluded.used / excluded.granted))
            ELSE excluded.granted
        END
    WHERE b.win = excluded.win AND b.lim = excluded.lim
      AND b.at <= excluded.at + 2000000000
      AND (b.window_start < excluded.window_start
        OR CASE WHEN b.used + excluded.used / excluded.granted <= b.lim THEN b.window_start ELSE b.window_start + b.win END
           <= greatest(b.at, excluded.at))
    RETURNING b.limiter, b.key, b.granted, b.window_start, b.used, b.at
)
SELECT limiter, key, granted, window_start, used, at, at FROM taken
UNION ALL
SELECT limiter, key, 0, window_start, used, at, row_at FROM unfit WHERE same
