-- Takes from a fixed window, or books in a later one, or does neither.
--
-- The row is a frontier: the latest window that anything was counted in. A take goes into it if it
-- fits, else into the window after it; where the frontier lies in the past, the current window, which
-- is empty then, takes its place.
--
-- A row means granted: it tells the window that counted the take, the count, and the clock of the
-- decision. No row means that nothing was written: the request does not pass, the row was written
-- under another policy, or its clock is further ahead than Op.Tolerance allows.
--
-- Atomic by itself: everything that admits is read from the row that is updated, in SET and WHERE,
-- and SQLite holds the write lock from before that read until after the write. The clock came before
-- the lock and may be older than the row's last, which then counts: a window that has ended is never
-- opened again.
--
-- ?1 limiter, ?2 key, ?3 now, ?4 win, ?5 lim, ?6 cost, ?7 how far the row may lie ahead of the clock,
-- ?8 how far ahead may be booked; times in ns
INSERT INTO limiter_fixed_windows AS b (limiter, key, window_start, win, lim, used, at, granted)
VALUES (?1, ?2, ?3 - ?3 % ?4, ?4, ?5, ?6, ?3, 1)
ON CONFLICT (limiter, key) DO UPDATE
SET window_start = CASE
        WHEN b.window_start < excluded.window_start THEN excluded.window_start
        WHEN b.used + excluded.used <= b.lim THEN b.window_start
        ELSE b.window_start + b.win
    END,
    used = CASE
        WHEN b.window_start >= excluded.window_start AND b.used + excluded.used <= b.lim
            THEN b.used + excluded.used
        ELSE excluded.used
    END,
    at = max(b.at, excluded.at),
    granted = 1
WHERE b.win = excluded.win
  AND b.lim = excluded.lim
  AND b.at <= excluded.at + ?7
  AND (b.window_start < excluded.window_start
       OR CASE
              WHEN b.used + excluded.used <= b.lim THEN b.window_start
              ELSE b.window_start + b.win
          END <= max(b.at, excluded.at) + ?8)
RETURNING window_start, used, at;
