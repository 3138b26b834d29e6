-- Reads a row and the clock at once. Without a row, its columns are 0.
--
-- $1 limiter, $2 key
WITH clock AS MATERIALIZED (
    SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000 AS now
)
SELECT clock.now, /* columns or 0 */
FROM clock
LEFT JOIN /* table */ AS b ON b.limiter = $1::text AND b.key = $2::bytea
