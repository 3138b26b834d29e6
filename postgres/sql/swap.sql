-- Replaces a row if it still is what was read. With a wait for the key's advisory lock, it takes that lock, and
-- changes nothing while another session holds it.
--
-- $1 limiter, $2 key, $3 and following: the columns of the new row, then those of the old one
UPDATE /* table */
SET (/* columns */, granted) = (/* new */, /* lock_timeout */1)
WHERE limiter = $1::text AND key = $2::bytea
  AND /* unchanged */
  AND /* try_lock */true
