-- Reads the keys before a place, the nearest first, to choose where a sweep starts.
--
-- ?1 and ?2 limiter and key that the place is before, ?3 rows to read
SELECT limiter, key
FROM limiter_fixed_windows
WHERE (limiter, key) < (?1, ?2)
ORDER BY limiter DESC, key DESC
LIMIT ?3;
