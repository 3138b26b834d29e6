-- Reads a token bucket's row. The Go code decides on it: a refusal is answered from what is read
-- here, without the write lock that SQLite has only one of. That is right because takes only lower
-- what is left: what this snapshot cannot admit, no later state without a refund could at its time.
--
-- ?1 limiter, ?2 key
SELECT full_at, at, step, capacity
FROM limiter_token_buckets
WHERE limiter = ?1 AND key = ?2;
