-- Tells whether goose notes what has been migrated. Tables that were created in another way are as good.
SELECT count(*)
FROM sqlite_master
WHERE type = 'table' AND name = 'limiter_goose_version';
