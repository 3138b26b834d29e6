-- Fails unless every column that the statements use can be read. Answers whether goose's version
-- table exists and can be read, which the application's role may lack, and whether the database has
-- Citus.
--
-- $1 qualified name of the version table
SELECT coalesce(pg_catalog.has_table_privilege(pg_catalog.to_regclass($1::text), 'SELECT'), false),
    pg_catalog.to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL
WHERE /* every table */
AND NOT EXISTS (
    SELECT limiter, key, kind, capacity, refill, period, note, expires_at
    FROM /* schema */limiter_overrides WHERE false
)
