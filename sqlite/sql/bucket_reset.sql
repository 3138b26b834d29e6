-- Makes a key as if it had never been used. An UPDATE, so that it needs no more than a take does.
--
-- ?1 limiter, ?2 key
UPDATE limiter_token_buckets
SET full_at = 0, at = 0
WHERE limiter = ?1 AND key = ?2;
