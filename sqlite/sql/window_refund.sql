-- Gives units back to the current window, by the row's own length: they may have been counted under
-- another policy. Changes no row if its window has ended, or lies ahead: what it would give back is
-- booked already.
--
-- ?1 limiter, ?2 key, ?3 now, ?4 units
UPDATE limiter_fixed_windows
SET used = max(0, used - ?4)
WHERE limiter = ?1 AND key = ?2
  AND window_start <= max(at, ?3)
  AND window_start + win > max(at, ?3);
