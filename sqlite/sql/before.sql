-- Reads the keys before a position, the nearest first, to choose where a sweep starts.
--
-- ?1 and ?2 limiter and key of the position, ?3 rows to read
SELECT limiter, key
FROM /* table */
WHERE (limiter, key) < (?1, ?2)
ORDER BY limiter DESC, key DESC
LIMIT ?3;
