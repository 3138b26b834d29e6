-- Counts a request in a fixed window that also counts refusals, or several equal ones at once.
--
-- Returns one row if it counted them. The caller knows by the count which of them passed. It returns
-- no row and writes nothing if the row has another policy, lies ahead of the clock, is in a window
-- that has not begun, or would exceed the highest count. Then Op.Apply decides.
--
-- The parameters are those of window_take.sql, without the last.
INSERT INTO limiter_fixed_windows AS b (limiter, key, window_start, used, at, win, lim, granted)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (limiter, key) DO UPDATE
SET window_start = max(b.window_start, excluded.window_start),
    used = excluded.used + iif(b.window_start < excluded.window_start, 0, b.used),
    at = max(b.at, excluded.at),
    granted = excluded.granted
WHERE b.win = excluded.win AND b.lim = excluded.lim
  AND b.at <= ?
  AND b.window_start <= max(b.at, excluded.at)
  AND b.used + excluded.used <= 4611686018427387904
RETURNING window_start, used, at;
