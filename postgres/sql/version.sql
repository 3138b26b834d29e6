-- Reads the newest migration that goose has applied.
SELECT coalesce(pg_catalog.max(version_id), 0) FROM /* schema */limiter_goose_version WHERE is_applied
