-- Deletes rows of one limiter that are still expired by the coordinator's clock, where the table is
-- distributed by Citus.
--
-- $1 limiter, $2 keys, $3 grace in ns
DELETE FROM /* table */
WHERE limiter = $1::text AND key = ANY ($2::bytea[])
  AND greatest(/* end */, at)
      <= (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000 - $3::bigint
