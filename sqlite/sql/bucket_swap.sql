-- Replaces a row by what was decided on it, if it is still what was read. Compare and set are one
-- statement under the write lock, so nobody comes between them.
--
-- ?1 limiter, ?2 key, new: ?3 full_at, ?4 at, ?5 step, ?6 capacity,
-- as read: ?7 full_at, ?8 at, ?9 step, ?10 capacity
UPDATE limiter_token_buckets
SET full_at = ?3, at = ?4, step = ?5, capacity = ?6, granted = 1
WHERE limiter = ?1 AND key = ?2
  AND full_at = ?7 AND at = ?8 AND step = ?9 AND capacity = ?10;
