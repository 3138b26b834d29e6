-- Makes a bucket full and forgets its bookings. It is an UPDATE, so that the application needs no
-- right to DELETE.
--
-- $1 limiter, $2 key
UPDATE /* schema */limiter_token_buckets SET full_at = 0, at = 0
WHERE limiter = $1::text AND key = $2::bytea
RETURNING full_at, at, step, capacity
