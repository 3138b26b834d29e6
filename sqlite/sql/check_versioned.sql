-- Reads whether goose records the migrations. Tables that were created in another way are as good.
SELECT count(*)
FROM sqlite_master
WHERE type = 'table' AND name = 'limiter_goose_version';
