-- Writes the first row of a key that had none when it was read. Changes no row if somebody else
-- wrote one meanwhile.
--
-- ?1 limiter, ?2 key, ?3 full_at, ?4 at, ?5 step, ?6 capacity
INSERT INTO limiter_token_buckets (limiter, key, full_at, at, step, capacity, granted)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1)
ON CONFLICT (limiter, key) DO NOTHING;
