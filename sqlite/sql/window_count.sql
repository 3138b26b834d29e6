-- Counts a request in a fixed window that counts refusals, too. It always writes; the request is
-- allowed if the window that is returned is not ahead of the clock and used is not above the limit.
--
-- A frontier that lies ahead was booked while the limiter did not count refusals. Nothing is counted
-- into it before it comes, and nothing is allowed until then. used stops at 2^62.
--
-- No row means that nothing was written: the row was written under another policy, or its clock is
-- further ahead than Op.Tolerance allows.
--
-- Atomic by itself: what is counted is read from the row that is updated, and SQLite holds the write
-- lock from before that read until after the write.
--
-- ?1 limiter, ?2 key, ?3 now, ?4 win, ?5 lim, ?6 cost, ?7 how far the row may lie ahead of the clock;
-- times in ns
INSERT INTO limiter_fixed_windows AS b (limiter, key, window_start, win, lim, used, at, granted)
VALUES (?1, ?2, ?3 - ?3 % ?4, ?4, ?5, ?6, ?3, 1)
ON CONFLICT (limiter, key) DO UPDATE
SET window_start = max(b.window_start, excluded.window_start),
    used = CASE
        WHEN b.window_start < excluded.window_start THEN excluded.used
        WHEN b.window_start > max(b.at, excluded.at) THEN b.used
        ELSE min(b.used + excluded.used, 4611686018427387904)
    END,
    at = max(b.at, excluded.at),
    granted = 1
WHERE b.win = excluded.win
  AND b.lim = excluded.lim
  AND b.at <= excluded.at + ?7
RETURNING window_start, used, at;
