-- Takes the write lock and changes nothing. It is the first statement of a transaction that began
-- without the lock. Check runs it alone, to find out whether it may write.
UPDATE limiter_token_buckets
SET granted = granted
WHERE 0;
