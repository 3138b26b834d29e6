-- Counts a request in a window that also counts refusals, or several equal ones at once.
--
-- Returns one row if it counted them. The caller knows by the count which of them passed. It returns
-- no row and writes nothing if the row lies ahead of the clock, has another window that has not ended, or
-- would exceed the highest count. Then Op.Apply decides.
--
-- The parameters are those of window_take.sql.
INSERT INTO limiter_fixed_windows AS b (limiter, key, window_start, used, at, win, lim, granted)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (limiter, key) DO UPDATE
SET window_start = excluded.window_start,
    used = excluded.used + iif(b.window_start = excluded.window_start, b.used, 0),
    at = max(b.at, excluded.at),
    win = excluded.win, lim = excluded.lim,
    granted = excluded.granted
WHERE b.at <= ? AND b.at < b.window_start + b.win
  AND (b.window_start + b.win <= excluded.window_start
    OR b.window_start = excluded.window_start AND b.win = excluded.win AND b.lim = excluded.lim
      AND b.used + excluded.used <= 4611686018427387904)
RETURNING window_start, used, at;
