-- Takes from a token bucket, or books ahead, or does neither.
--
-- A row means granted: full_at is the instant at which the bucket is full again after this take. No
-- row means that nothing was written: the request does not pass, the row was written under another
-- policy, or its clock is more than ClockTolerance (2 s) ahead.
--
-- Atomic by itself: everything that admits is read from the row that is updated, in SET and WHERE,
-- and SQLite holds the write lock from before that read until after the write. The clock came before
-- the lock and may be older than the row's last: max(b.full_at, ...) never goes back for it.
--
-- ?1 limiter, ?2 key, ?3 now, ?4 step, ?5 capacity,
-- ?6 spend (cost * step), ?7 reach (capacity * step + how far ahead may be booked); times in ns
INSERT INTO limiter_token_buckets AS b (limiter, key, full_at, at, step, capacity, granted)
VALUES (?1, ?2, ?3 + ?6, ?3, ?4, ?5, 1)
ON CONFLICT (limiter, key) DO UPDATE
SET full_at = max(b.full_at, excluded.at) + ?6,
    at = excluded.at,
    granted = 1
WHERE b.step = excluded.step
  AND b.capacity = excluded.capacity
  AND b.at <= excluded.at + 2000000000
  AND max(b.full_at, excluded.at) + ?6 <= excluded.at + ?7
RETURNING full_at;
