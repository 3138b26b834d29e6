-- Gives tokens back, at most all of them, by the row's own step: they may have been charged under
-- another policy. Changes no row while bookings are outstanding, since what it would give back is
-- promised to them.
--
-- ?1 limiter, ?2 key, ?3 now, ?4 tokens
UPDATE limiter_token_buckets
SET full_at = max(0, full_at - min(?4, capacity) * step)
WHERE limiter = ?1 AND key = ?2
  AND full_at <= ?3 + capacity * step;
