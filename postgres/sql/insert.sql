-- Inserts a row if there still is none.
--
-- $1 limiter, $2 key, $3 and following: the columns
INSERT INTO /* table */ (limiter, key, /* columns */, granted)
VALUES ($1::text, $2::bytea, /* new */, /* lock_timeout */1)
ON CONFLICT (limiter, key) DO NOTHING
