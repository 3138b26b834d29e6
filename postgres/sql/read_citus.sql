-- Reads a row, and the clock of the worker that has it. Citus plans a statement of this form
-- quickly. It returns no row if there is none.
--
-- $1 limiter, $2 key
SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000, /* columns */
FROM /* table */
WHERE limiter = $1::text AND key = $2::bytea
