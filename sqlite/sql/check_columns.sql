-- Names every column that the other statements use, and reads nothing: SQLite refuses the statement
-- if one of them is missing.
SELECT limiter, key, /* columns */, granted
FROM /* table */ AS b
WHERE 0;
