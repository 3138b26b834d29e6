-- Releases a lease. It returns no row if the key has no lease of this id: the lease was released, or it
-- ended and was removed.
--
-- $1 limiter, $2 key, $3 id
UPDATE /* schema */limiter_leases AS b
SET ends = pg_catalog.array_cat(
        b.ends[: pg_catalog.array_position(b.ids, $3::bigint) - 1],
        b.ends[pg_catalog.array_position(b.ids, $3::bigint) + 1 :]),
    ids = pg_catalog.array_cat(
        b.ids[: pg_catalog.array_position(b.ids, $3::bigint) - 1],
        b.ids[pg_catalog.array_position(b.ids, $3::bigint) + 1 :])
WHERE b.limiter = $1::text AND b.key = $2::bytea AND /* lock_timeout */true
  AND pg_catalog.array_position(b.ids, $3::bigint) > 0
RETURNING b.at, b.ends, b.ids, b.lim
