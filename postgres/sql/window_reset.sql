-- Makes a window unused and forgets its bookings. It is an UPDATE, so that the application needs
-- no right to DELETE.
--
-- $1 limiter, $2 key
UPDATE /* schema */limiter_fixed_windows SET window_start = 0, used = 0, at = 0
WHERE limiter = $1::text AND key = $2::bytea
RETURNING window_start, used, at, win, lim
