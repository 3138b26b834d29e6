-- Writes the first row of a key that had none when it was read. Changes no row if somebody else
-- wrote one meanwhile.
--
-- ?1 limiter, ?2 key, ?3 window_start, ?4 used, ?5 at, ?6 win, ?7 lim
INSERT INTO limiter_fixed_windows (limiter, key, window_start, used, at, win, lim, granted)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1)
ON CONFLICT (limiter, key) DO NOTHING;
