-- Deletes expired rows among the rows after a cursor. Answers how many it deleted, how many it
-- read, and the last row that it read. The key is in hex, because the text form of bytes depends
-- on a setting of the session.
--
-- It skips locked rows. The condition appears twice, because the second one checks the row as it
-- is when it is deleted.
--
-- $1 limiter and $2 key of the cursor, $3 rows to read, $4 rows to delete, $5 grace in ns
WITH clock AS MATERIALIZED (
    SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000 AS now
), page AS MATERIALIZED (
    SELECT limiter, key, greatest(/* end */, at) AS unused_since
    FROM /* table */
    WHERE (limiter, key) > ($1::text, $2::bytea)
    ORDER BY limiter, key
    LIMIT $3::bigint
), expired AS MATERIALIZED (
    SELECT b.limiter, b.key
    FROM /* table */ AS b
    JOIN page ON b.limiter = page.limiter AND b.key = page.key
    CROSS JOIN clock
    WHERE page.unused_since <= clock.now - $5::bigint
    ORDER BY b.limiter, b.key
    LIMIT $4::bigint
    FOR UPDATE OF b SKIP LOCKED
), removed AS (
    DELETE FROM /* table */ AS b
    USING expired, clock
    WHERE b.limiter = expired.limiter AND b.key = expired.key
      AND greatest(/* end */, at) <= clock.now - $5::bigint
    RETURNING 1
)
SELECT (SELECT pg_catalog.count(*) FROM removed), (SELECT pg_catalog.count(*) FROM page), limiter, pg_catalog.encode(key, 'hex')
FROM page
ORDER BY limiter DESC, key DESC
LIMIT 1
