-- Grants a take in a fixed window that is expected to have room: what bucket_grant.sql is to
-- bucket_take.sql.
--
-- Answers one row (1, window_start, used, now, at), or none if it did not grant the take. It also
-- answers none if the row's clock is ahead of the statement's, because RETURNING knows only the
-- row's.
--
-- The arguments are those of window_take.sql without $8.
INSERT INTO /* schema */limiter_fixed_windows AS b (limiter, key, window_start, win, lim, used, at, granted)
SELECT $1::text, $2::bytea, clock.at - clock.at % $3::bigint, $3::bigint, $4::bigint, $5::bigint, clock.at, 1
FROM (
    SELECT coalesce($7::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at/* commit */
    OFFSET 0
) AS clock
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
  AND b.at <= excluded.at
  AND (b.window_start < excluded.window_start
    OR CASE WHEN b.used + excluded.used <= b.lim THEN b.window_start ELSE b.window_start + b.win END
       <= excluded.at + $6::bigint)
RETURNING 1, b.window_start, b.used, b.at, b.at
