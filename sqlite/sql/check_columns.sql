-- Names every column that the other statements use, and reads nothing: SQLite refuses the statement
-- if one of them is missing.
SELECT b.limiter, b.key, b.full_at, b.at, b.step, b.capacity, b.granted,
    w.limiter, w.key, w.window_start, w.win, w.lim, w.used, w.at, w.granted,
    o.limiter, o.key, o.kind, o.capacity, o.refill, o.period, o.note, o.expires_at
FROM limiter_token_buckets AS b, limiter_fixed_windows AS w, limiter_overrides AS o
WHERE 0;
