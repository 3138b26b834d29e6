-- Reads a fixed window, if there is one, and the clock. It is window_look.sql in a plan of one
-- node.
--
-- $1 limiter, $2 key, $3 time of the operation or NULL
SELECT coalesce($3::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000),
    window_start, used, at, win, lim
FROM /* schema */limiter_fixed_windows
WHERE limiter = $1::text AND key = $2::bytea
