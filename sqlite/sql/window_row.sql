-- Reads a fixed window's row. The Go code decides on it. By itself the statement can only refuse,
-- without the write lock that SQLite has only one of. That is right because takes only lower what is
-- left: what this snapshot cannot admit, no later state without a refund could at its time. To admit,
-- it stands in one transaction with the statement that writes the row.
--
-- Parameters without numbers: the driver would look up the name of each. Here limiter, key.
SELECT window_start, used, at, win, lim
FROM limiter_fixed_windows
WHERE limiter = ? AND key = ?;
