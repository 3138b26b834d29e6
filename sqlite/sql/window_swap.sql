-- Replaces a row by what was decided on it, if it is still what was read. Compare and set are one
-- statement under the write lock, so nobody comes between them.
--
-- ?1 limiter, ?2 key, new: ?3 window_start, ?4 used, ?5 at, ?6 win, ?7 lim,
-- as read: ?8 window_start, ?9 used, ?10 at, ?11 win, ?12 lim
UPDATE limiter_fixed_windows
SET window_start = ?3, used = ?4, at = ?5, win = ?6, lim = ?7, granted = 1
WHERE limiter = ?1 AND key = ?2
  AND window_start = ?8 AND used = ?9 AND at = ?10 AND win = ?11 AND lim = ?12;
