-- Returns whether Citus distributes a table.
--
-- $1 qualified names of the tables
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_dist_partition
    WHERE partmethod = 'h'
      AND logicalrelid IN (SELECT pg_catalog.to_regclass(name) FROM pg_catalog.unnest($1::text[]) AS names (name))
)
