-- Waits in the queue of all processes for a key. A statement that follows in the same transaction sees what those
-- before it in the queue have written.
--
-- $1 limiter, $2 key
SELECT /* key_lock */true
