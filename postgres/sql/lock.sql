-- Locks a row until the transaction ends.
--
-- $1 limiter, $2 key
SELECT FROM /* table */ WHERE limiter = $1::text AND key = $2::bytea FOR UPDATE
