-- Locks a row until the transaction ends, and returns its latest version.
--
-- $1 limiter, $2 key
SELECT /* columns */ FROM /* table */ WHERE limiter = $1::text AND key = $2::bytea AND /* lock_timeout */true
FOR UPDATE/* skip */
