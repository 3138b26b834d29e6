-- Chooses the row at which a sweep starts: up to a page before a random row, so that the first
-- page may hold any row with the same probability. It reads about 512 kB of the table, or all of a
-- smaller one. It answers no row if that is before the first row, or if these blocks hold no row.
-- The key is in hex, because the text form of bytes depends on a setting of the session.
--
-- The choice does not depend on the keys, because clients choose them and may use one prefix for
-- all.
--
-- $1 qualified name of the table, $2 rows between the start and the random row
SELECT before.limiter, pg_catalog.encode(before.key, 'hex')
FROM (
    SELECT limiter, key
    FROM /* table */ TABLESAMPLE SYSTEM ((
        SELECT least(100, 52428800::double precision / greatest(1, pg_catalog.pg_relation_size($1::text::regclass))::double precision)
    ))
    ORDER BY pg_catalog.random()
    LIMIT 1
) AS chosen
CROSS JOIN LATERAL (
    SELECT limiter, key
    FROM /* table */
    WHERE (limiter, key) < (chosen.limiter, chosen.key)
    ORDER BY limiter DESC, key DESC
    LIMIT 1 OFFSET $2::bigint
) AS before
