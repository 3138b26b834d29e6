-- Locks a row until the transaction ends, and returns its latest version. FOR UPDATE does not keep
-- Citus from moving the row's shard. If a move began then, the transaction's own UPDATE would wait for
-- the move, which waits for all who wait for the row: a deadlock that Citus does not find.
--
-- $1 limiter, $2 key
UPDATE /* table */ SET granted = granted
WHERE limiter = $1::text AND key = $2::bytea
RETURNING /* columns */
