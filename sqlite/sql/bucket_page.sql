-- Reads the next page of a sweep, without the write lock: most pages have nothing to remove.
--
-- ?1 and ?2 limiter and key of the last row of the page before, ?3 the latest end of an expired row,
-- ?4 rows to read
SELECT limiter, key, max(full_at, at) <= ?3 AS expired
FROM limiter_token_buckets
WHERE (limiter, key) > (?1, ?2)
ORDER BY limiter, key
LIMIT ?4;
