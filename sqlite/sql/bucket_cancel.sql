-- Takes a booking back if the row is as the booking left it, so that nothing was booked behind it,
-- and the instant at which it may act is not past.
--
-- ?1 limiter, ?2 key, ?3 now, ?4 step, ?5 capacity, ?6 tokens,
-- ?7 full_at as the booking left it, ?8 the instant at which it may act
UPDATE limiter_token_buckets
SET full_at = full_at - ?6 * step
WHERE limiter = ?1 AND key = ?2
  AND full_at = ?7 AND step = ?4 AND capacity = ?5
  AND ?3 <= ?8;
