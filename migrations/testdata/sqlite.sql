-- Everything in the database as it was written. What begins with sqlite_ belongs to SQLite itself: sqlite_sequence
-- comes with goose's table and cannot be dropped.
SELECT CASE tbl_name WHEN 'limiter_goose_version' THEN name || ': ' || type ELSE sql || ';' END
FROM sqlite_master WHERE name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name;
