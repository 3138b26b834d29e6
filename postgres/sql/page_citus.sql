-- Reads the rows after a cursor where the table is distributed by Citus, and whether they have
-- expired by the clock of their node. The key is in hex, because the text form of bytes depends on
-- a setting of the session.
--
-- $1 limiter and $2 key of the cursor, $3 rows to read, $4 grace in ns
SELECT limiter, pg_catalog.encode(key, 'hex'),
    greatest(/* end */, at)
        <= (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000 - $4::bigint
FROM /* table */
WHERE (limiter, key) > ($1::text, $2::bytea)
ORDER BY limiter, key
LIMIT $3::bigint
