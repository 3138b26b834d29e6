-- Replaces a row if it still is what was read, and if no other statement is in the key's queue of all processes.
--
-- $1 limiter, $2 key, $3 and following: the columns of the new row, then those of the old one
UPDATE /* table */
SET (/* columns */, granted) = (/* new */, /* lock_timeout */1)
WHERE limiter = $1::text AND key = $2::bytea
  AND /* unchanged */
  AND /* try_lock */true
