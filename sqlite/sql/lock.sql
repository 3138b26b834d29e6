-- Takes the write lock, as the first statement of a transaction that began without it, and changes
-- nothing. Check runs it by itself, to see whether it may write.
UPDATE limiter_token_buckets
SET granted = granted
WHERE 0;
