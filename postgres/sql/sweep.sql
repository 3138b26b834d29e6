-- Deletes expired rows of a range of pages. Answers how many rows it deleted, how many it locked, how
-- many pages the table has, and how many ns the statement took.
--
-- It skips locked rows. The condition appears twice, because the second one checks the row as it
-- is when it is deleted. The range appears twice, so that no plan reads more of the table.
--
-- $1 first row, $2 row after the last one, $3 rows to delete, $4 grace in ns, $5 qualified name of
-- the table
WITH clock AS MATERIALIZED (
    SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000 AS now
), expired AS MATERIALIZED (
    SELECT b.ctid AS tid
    FROM /* table */ AS b
    CROSS JOIN clock
    WHERE b.ctid >= $1::text::tid AND b.ctid < $2::text::tid
      AND greatest(/* end */, at) <= clock.now - $4::bigint
    LIMIT $3::bigint
    FOR UPDATE OF b SKIP LOCKED
), removed AS (
    DELETE FROM /* table */ AS b
    USING expired, clock
    WHERE b.ctid = expired.tid
      AND b.ctid >= $1::text::tid AND b.ctid < $2::text::tid
      AND greatest(/* end */, at) <= clock.now - $4::bigint
    RETURNING 1
)
SELECT pg_catalog.count(*), (SELECT pg_catalog.count(*) FROM expired),
    pg_catalog.pg_relation_size($5::text::regclass) / pg_catalog.current_setting('block_size')::bigint,
    (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000 - (SELECT now FROM clock)
FROM removed
