-- Reads the next page of a sweep, without the write lock, because most pages have nothing to delete.
--
-- ?1 and ?2 limiter and key of the last row of the page before, ?3 the latest end of an expired row,
-- ?4 rows to read
SELECT limiter, key, max(at, /* end */) <= ?3 AS expired
FROM /* table */
WHERE (limiter, key) > (?1, ?2)
ORDER BY limiter, key
LIMIT ?4;
