-- Inserts a row if there still is none.
--
-- $1 limiter, $2 key, $3 full_at, $4 at, $5 step, $6 capacity
INSERT INTO /* schema */limiter_token_buckets (limiter, key, full_at, at, step, capacity, granted)
VALUES ($1::text, $2::bytea, $3::bigint, $4::bigint, $5::bigint, $6::bigint, 1)
ON CONFLICT (limiter, key) DO NOTHING
