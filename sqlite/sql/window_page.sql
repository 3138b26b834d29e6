-- Reads the next page of a sweep, without the write lock: most pages have nothing to remove. A row
-- that was reset, whose window_start and used are 0, has no window that could still be running. A
-- window that starts at 1970 has a count.
--
-- ?1 and ?2 limiter and key of the last row of the page before, ?3 the latest end of an expired row,
-- ?4 rows to read
SELECT limiter, key, max(at, iif(window_start > 0 OR used > 0, window_start + win, 0)) <= ?3 AS expired
FROM limiter_fixed_windows
WHERE (limiter, key) > (?1, ?2)
ORDER BY limiter, key
LIMIT ?4;
