-- Reads the clock, after the statement before it: see all_settle.go. On Citus it is that of the
-- coordinator, the one that bucket_take_citus.sql reads. There, read_citus.sql reads that of the
-- worker that has the row.
SELECT (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000
