-- Names every column that the other statements use, and reads no row. SQLite rejects the statement if
-- a column is missing.
SELECT limiter, key, /* columns */, granted
FROM /* table */ AS b
WHERE 0;
