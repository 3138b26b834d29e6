-- Reads a fixed window's row. The Go code decides on it: a refusal is answered from what is read
-- here, without the write lock that SQLite has only one of. That is right because takes only lower
-- what is left: what this snapshot cannot admit, no later state without a refund could at its time.
--
-- ?1 limiter, ?2 key
SELECT window_start, used, at, win, lim
FROM limiter_fixed_windows
WHERE limiter = ?1 AND key = ?2;
