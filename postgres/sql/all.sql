-- Takes from several rows, or from none of them. The store makes one text for each number of
-- buckets and windows. The sections of all_bucket.sql replace the markers of their names, once for each
-- bucket. Those of all_window.sql follow, once for each window. The sections added and taken
-- come once for each table. {i} is the number of a row, counted from 1. {before} is the row that is
-- locked before it, 0 for the first.
--
-- Returns one row: the clock, whether it took, whether it added rows, which rows it could lock, and
-- for each row its columns as an array, NULL if the row is missing. If it locked all rows, these are
-- the rows that it locked, and the clock was read after the last lock. Otherwise it has read the rows
-- only. Which rows it could lock is an array in the order of the locks, NULL if it locked all or none.
--
-- Every row is read first. If one of them refuses, has another policy or lies ahead of the clock, the
-- statement takes no lock and no transaction id, and writes nothing: takes only lower what is left.
-- If rows are missing and no row refuses, the statement adds them unused, and has to be sent
-- again. A row that was added charged could be locked before others that come earlier in the order.
--
-- The statement waits for its first row, or for none. It skips each other row that another session has
-- locked, and then takes nothing. So it never waits for a row while it holds another one, and no two
-- statements wait for each other. In the caller's transaction it waits for each row, in order. See
-- key_lock.sql, which a later try sends first.
--
-- The values of a grant are those of the locked rows. UPDATE finds the version that was locked only if
-- its WHERE names nothing but the key: any other condition is checked on the version of the snapshot
-- first. There is one UPDATE for each table, because each compiles the CHECK of its table anew. See
-- bucket_takes.sql for = ANY and the conditions that are always true.
--
-- $1 time of the operation or NULL, then six parameters for each row
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at, /* lock_timeout */true AS bounded/* commit */
), /* seen */, gate AS MATERIALIZED (
    SELECT pg_catalog.bool_and(coalesce(s.fits, true)) AS fits, pg_catalog.bool_or(s.fits IS NULL) AS missing
    FROM (VALUES /* fits */) AS s (fits)
), /* added */, held0 AS MATERIALIZED (
    SELECT FROM gate WHERE fits AND NOT missing
), /* held */, later AS MATERIALIZED (
    SELECT coalesce($1::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at
    FROM held{last}
), passed AS MATERIALIZED (
    SELECT later.at FROM later WHERE /* room */
), /* taken */
SELECT coalesce(later.at, clock.at), EXISTS (SELECT FROM passed), (SELECT gate.fits AND gate.missing FROM gate),
    CASE WHEN later.at IS NULL AND EXISTS (SELECT FROM held0) THEN ARRAY[/* found */] END, /* row */
FROM clock LEFT JOIN later ON true
