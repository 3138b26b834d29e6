-- Writes a fixed window's row, in the transaction that has read it: SQLite lets a transaction write
-- only while nobody else has written since it read. REPLACE, since it is faster than an UPSERT by a
-- tenth; there is nothing in the row that would be lost.
--
-- Parameters in the order of the columns.
REPLACE INTO limiter_fixed_windows (limiter, key, window_start, used, at, win, lim, granted)
VALUES (?, ?, ?, ?, ?, ?, ?, 1);
