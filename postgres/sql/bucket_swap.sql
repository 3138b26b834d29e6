-- Replaces a row that is still what was read.
-- $1 limiter, $2 key; the new row: $3 full_at, $4 at, $5 step, $6 capacity;
-- the old one: $7 full_at, $8 at, $9 step, $10 capacity
UPDATE /* schema */limiter_token_buckets
SET full_at = $3::bigint, at = $4::bigint, step = $5::bigint, capacity = $6::bigint, granted = 1
WHERE limiter = $1::text AND key = $2::bytea
  AND full_at = $7::bigint AND at = $8::bigint AND step = $9::bigint AND capacity = $10::bigint
