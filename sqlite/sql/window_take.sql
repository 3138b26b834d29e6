-- Grants a take in a fixed window, or several equal ones at once.
--
-- Returns one row if it granted all of them. It returns no row and writes nothing if they do not
-- fit, or if the row has another policy or lies ahead of the clock. Then Op.Apply decides.
--
-- The takes go into the row's window if they fit there. A single take that may wait goes into the
-- next window otherwise. Earlier windows are closed. A take whose clock is behind the row's counts in
-- the row's window: hence max(b.at, excluded.at).
--
-- The parameters are limiter, key, the window that the clock is in, cost, at, win, lim, and the number
-- of takes. Then come the latest at of a row that is not ahead of the clock, and the latest start of a
-- window that the takes may use.
INSERT INTO limiter_fixed_windows AS b (limiter, key, window_start, used, at, win, lim, granted)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (limiter, key) DO UPDATE
SET window_start = CASE
        WHEN b.window_start < excluded.window_start THEN excluded.window_start
        WHEN b.used + excluded.used <= b.lim THEN b.window_start
        ELSE b.window_start + b.win
    END,
    used = excluded.used + iif(b.window_start >= excluded.window_start AND b.used + excluded.used <= b.lim, b.used, 0),
    at = max(b.at, excluded.at),
    granted = excluded.granted
WHERE b.win = excluded.win AND b.lim = excluded.lim
  AND b.at <= ?
  AND (b.window_start < excluded.window_start
    OR iif(b.used + excluded.used <= b.lim, b.window_start, b.window_start + b.win) <= max(b.at, ?))
RETURNING window_start, used, at;
