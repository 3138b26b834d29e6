-- Takes a booking back while the row still lies in the booked window, and the instant at which it
-- may act is not past.
--
-- ?1 limiter, ?2 key, ?3 now, ?4 win, ?5 units, ?6 window_start as the booking left it,
-- ?7 the instant at which it may act
UPDATE limiter_fixed_windows
SET used = max(0, used - ?5)
WHERE limiter = ?1 AND key = ?2
  AND window_start = ?6 AND win = ?4
  AND ?3 <= ?7;
