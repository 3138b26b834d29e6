-- Names every column of the overrides: see check_columns.sql.
SELECT limiter, key, kind, capacity, refill, period, note, expires_at
FROM limiter_overrides AS o
WHERE 0;
