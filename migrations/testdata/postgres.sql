-- Everything in the schema $1, one line per object. The text of a view is left out: each version of PostgreSQL
-- prints it in its own way. So is what goose's table consists of: two sessions that create it at once may call
-- its sequence by another name.
WITH rel AS (
	SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND relname NOT LIKE 'limiter\_goose\_version\_%'
)
SELECT line FROM (
	SELECT relname AS t, 0 AS part, 0 AS n, relname || ': '
		|| CASE relpersistence WHEN 'p' THEN '' ELSE 'not durable ' END
		|| CASE relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'i' THEN 'index' WHEN 'S' THEN 'sequence' ELSE relkind::text END
		|| coalesce(' with ' || array_to_string(reloptions, ', '), '')
		|| CASE WHEN relkind = 'i' THEN ' ' || substring(pg_get_indexdef(oid) FROM 'USING .*') ELSE '' END
		|| coalesce(' -- ' || obj_description(oid, 'pg_class'), '') AS line
	FROM rel
	UNION ALL
	SELECT relname, 1, attnum, '    ' || attname || ' ' || format_type(atttypid, atttypmod)
		|| coalesce(' COLLATE "' || (SELECT collname FROM pg_collation WHERE oid = attcollation AND collname <> 'default') || '"', '')
		|| CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
		|| coalesce(' -- ' || col_description(attrelid, attnum), '')
	FROM pg_attribute JOIN rel ON rel.oid = attrelid
	WHERE attnum > 0 AND NOT attisdropped AND relkind IN ('r', 'v') AND relname <> 'limiter_goose_version'
	UNION ALL
	SELECT relname, 2, 0, '    CONSTRAINT ' || conname || ' ' || pg_get_constraintdef(k.oid)
	FROM pg_constraint k JOIN rel ON rel.oid = conrelid
	WHERE contype <> 'n' AND relname <> 'limiter_goose_version'
	UNION ALL
	SELECT proname, 0, 0, proname || ': function' FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = $1
) AS lines ORDER BY t COLLATE "C", part, n, line COLLATE "C";
