-- Makes a key unused and forgets its bookings. It is an UPDATE, so that the application needs no
-- right to DELETE.
--
-- $1 limiter, $2 key
UPDATE /* table */ SET /* state = 0 */
WHERE limiter = $1::text AND key = $2::bytea AND /* lock_timeout */true
RETURNING /* columns */
