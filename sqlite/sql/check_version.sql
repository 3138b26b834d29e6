-- Reads the latest migration that was applied, 0 if there is none.
SELECT coalesce(max(version_id), 0)
FROM limiter_goose_version
WHERE is_applied = 1;
