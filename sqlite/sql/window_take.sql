-- Grants a take in a window, or several equal ones at once.
--
-- Returns one row if it granted all of them. It returns no row and writes nothing if they do not
-- fit, if the row lies ahead of the clock, or if it has another window that has not ended. Then
-- Op.Apply decides, also for a take that may wait for the next window.
--
-- A window that has ended counts nothing, whatever policy wrote it. If the row's at is not in its window,
-- it may be in a later one than the clock.
--
-- The parameters are limiter, key, the window that the clock is in, cost, at, win, lim, the number
-- of takes, and the latest at of a row that is not ahead of the clock.
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
      AND b.used + excluded.used <= b.lim)
RETURNING window_start, used, at;
