-- Finds the row that is $3 + 1 rows before a cursor. It returns no row if that is before the first.
--
-- $1 limiter and $2 key of the cursor, $3 rows between them
SELECT limiter, pg_catalog.encode(key, 'hex')
FROM /* table */
WHERE (limiter, key) < ($1::text, $2::bytea)
ORDER BY limiter DESC, key DESC
LIMIT 1 OFFSET $3::bigint
