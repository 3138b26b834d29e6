-- Inserts a row if there still is none.
--
-- $1 limiter, $2 key, $3 window_start, $4 used, $5 at, $6 win, $7 lim
INSERT INTO /* schema */limiter_fixed_windows (limiter, key, window_start, used, at, win, lim, granted)
VALUES ($1::text, $2::bytea, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, 1)
ON CONFLICT (limiter, key) DO NOTHING
