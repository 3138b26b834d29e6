-- Takes the write lock, as the first statement of a transaction, and changes nothing. A transaction
-- that began without the lock and read first could not write any more once others had.
UPDATE limiter_fixed_windows
SET granted = granted
WHERE 0;
