-- Takes the advisory lock of a key until the transaction ends. In READ COMMITTED, the next statement sees what the
-- sessions that held the lock before have committed.
--
-- $1 limiter, $2 key
SELECT /* key_lock */true
