-- Takes the write lock, as the first statement of a transaction, and changes nothing. A transaction
-- that began without the lock and read first could not write any more once others had. Check runs it
-- by itself, to see whether it may write.
UPDATE limiter_token_buckets
SET granted = granted
WHERE 0;
