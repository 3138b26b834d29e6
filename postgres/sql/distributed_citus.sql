-- Answers whether Citus distributes a table.
--
-- $1 and $2 qualified names of the tables
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_dist_partition
    WHERE partmethod = 'h'
      AND logicalrelid IN (pg_catalog.to_regclass($1::text), pg_catalog.to_regclass($2::text))
)
