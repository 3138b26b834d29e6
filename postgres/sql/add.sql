-- Adds an unused row, unless there is one.
--
-- $1 limiter, $2 key, $3 and $4 the columns of the policy
INSERT INTO /* table */ (limiter, key, /* columns */, granted)
VALUES ($1::text, $2::bytea, /* unused */, /* lock_timeout */0)
ON CONFLICT (limiter, key) DO NOTHING
