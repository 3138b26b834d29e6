-- Acquires a lease where the table is distributed by Citus. The store has read the row, which had a free
-- place. The statement returns what lease_take.sql does, but no row for a refusal.
--
-- Citus evaluates the clock in VALUES on the coordinator, and allows none elsewhere: see DESIGN.md, "On Citus
-- a take is one UPSERT".
--
-- $1 limiter, $2 key, $3 limit, $4 length of the lease in ns, $5 id, $6 time of the operation or NULL, $7 the
-- longest lease in ns, with a tolerance
INSERT INTO /* schema */limiter_leases AS b (limiter, key, at, ends, ids, lim, granted)
VALUES ($1::text, $2::bytea,
    coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000),
    ARRAY[coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000)
        + $4::bigint],
    ARRAY[$5::bigint], $3::bigint, 1)
ON CONFLICT (limiter, key) DO UPDATE
SET at = excluded.at,
    ends = pg_catalog.array_cat(
        pg_catalog.array_cat(
            b.ends[pg_catalog.width_bucket(excluded.at, b.ends) + 1 : pg_catalog.width_bucket(excluded.ends[1], b.ends)],
            excluded.ends),
        b.ends[pg_catalog.width_bucket(excluded.ends[1], b.ends) + 1 : pg_catalog.width_bucket(excluded.at + $7::bigint, b.ends)]),
    ids = pg_catalog.array_cat(
        pg_catalog.array_cat(
            b.ids[pg_catalog.width_bucket(excluded.at, b.ends) + 1 : pg_catalog.width_bucket(excluded.ends[1], b.ends)],
            excluded.ids),
        b.ids[pg_catalog.width_bucket(excluded.ends[1], b.ends) + 1 : pg_catalog.width_bucket(excluded.at + $7::bigint, b.ends)]),
    lim = excluded.lim,
    granted = 1
WHERE pg_catalog.width_bucket(excluded.at + $7::bigint, b.ends) - pg_catalog.width_bucket(excluded.at, b.ends) < $3::bigint
  AND b.at <= excluded.at + 2000000000
RETURNING 1, b.at, b.at, b.ends, b.ids, b.lim
