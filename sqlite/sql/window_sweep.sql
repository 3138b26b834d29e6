-- Removes the expired rows of a page. It looks at them again: a take may have come since the page
-- was read, and the row that it wrote stays.
--
-- ?1 and ?2 limiter and key that the page comes after, ?3 and ?4 those of its last row,
-- ?5 the latest end of an expired row, ?6 rows to remove at most
DELETE FROM limiter_fixed_windows
WHERE (limiter, key) IN (
    SELECT limiter, key
    FROM limiter_fixed_windows
    WHERE (limiter, key) > (?1, ?2)
      AND (limiter, key) <= (?3, ?4)
      AND max(at, iif(window_start > 0 OR used > 0, window_start + win, 0)) <= ?5
    ORDER BY limiter, key
    LIMIT ?6
);
