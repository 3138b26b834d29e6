-- Chooses a place for a sweep to start from: up to a page before a row chosen at random, so
-- that the first page is as likely to hold one row as another. It reads about 512 kB of the
-- table, or all of a smaller one. It returns no row if the place is before the first row, or if it
-- finds no row in these blocks. The key is in hex: how bytes come in text depends on a setting of the
-- session.
-- The choice does not depend on the keys: clients make them up, and may give all of theirs the same
-- prefix.
-- $1 qualified name of the table, $2 rows between the place and the chosen row
SELECT place.limiter, pg_catalog.encode(place.key, 'hex')
FROM (
    SELECT limiter, key
    FROM /* schema */limiter_fixed_windows TABLESAMPLE SYSTEM ((
        SELECT least(100, 52428800::double precision / greatest(1, pg_catalog.pg_relation_size($1::text::regclass))::double precision)
    ))
    ORDER BY pg_catalog.random()
    LIMIT 1
) AS chosen
CROSS JOIN LATERAL (
    SELECT limiter, key
    FROM /* schema */limiter_fixed_windows
    WHERE (limiter, key) < (chosen.limiter, chosen.key)
    ORDER BY limiter DESC, key DESC
    LIMIT 1 OFFSET $2::bigint
) AS place
