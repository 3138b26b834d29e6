-- Reads the overrides of a limiter that have not expired. NULL becomes 0 or ''.
--
-- ?1 limiter, ?2 the clock, ?3 rows to read at most
SELECT key, kind, coalesce(note, ''), capacity, coalesce(refill, 0), coalesce(period, 0), coalesce(expires_at, 0)
FROM limiter_overrides
WHERE limiter = ?1 AND (expires_at IS NULL OR expires_at > ?2)
ORDER BY key
LIMIT ?3;
