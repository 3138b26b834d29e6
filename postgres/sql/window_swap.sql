-- Replaces a row that is still what was read.
-- $1 limiter, $2 key; the new row: $3 window_start, $4 used, $5 at, $6 win, $7 lim;
-- the old one: $8 window_start, $9 used, $10 at, $11 win, $12 lim
UPDATE /* schema */limiter_fixed_windows
SET window_start = $3::bigint, used = $4::bigint, at = $5::bigint, win = $6::bigint, lim = $7::bigint, granted = 1
WHERE limiter = $1::text AND key = $2::bytea
  AND window_start = $8::bigint AND used = $9::bigint AND at = $10::bigint AND win = $11::bigint AND lim = $12::bigint
