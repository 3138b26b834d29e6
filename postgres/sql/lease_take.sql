-- Acquires a lease, or refuses it.
--
-- If it took a place, it returns one row (1, now, at, ends, ids, lim). If it refused, it returns one row
-- (0, now, at, ends, ids, lim) with the row that it found. It returns no row if another process took the last
-- place meanwhile, or if the row is ahead of the clock. Then the statement may have waited for the row, and what
-- others took in that time must count.
--
-- A place is taken only under the lock of the row, in DO UPDATE. A refusal may come from the snapshot: it
-- takes no lock and writes nothing.
--
-- The ends are in order, so width_bucket counts the leases that have ended, without a subquery. A lease that
-- ends later than any lease can was taken before the clock was stepped back: it counts as ended. Arrays are
-- joined by functions: see DESIGN.md, "Operators have built-in types".
--
-- $1 limiter, $2 key, $3 limit, $4 length of the lease in ns, $5 id, $6 time of the operation or NULL, $7 the
-- longest lease in ns, with a tolerance
WITH clock AS MATERIALIZED (
    SELECT coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at
), blocked AS (
    SELECT clock.at, b.at AS row_at, b.ends, b.ids, b.lim
    FROM /* schema */limiter_leases AS b, clock
    WHERE b.limiter = $1::text AND b.key = $2::bytea
      AND pg_catalog.width_bucket(clock.at + $7::bigint, b.ends) - pg_catalog.width_bucket(clock.at, b.ends) >= $3::bigint
), later AS MATERIALIZED (
    SELECT /* key_lock */true AS bounded, coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at/* commit */
    WHERE NOT EXISTS (SELECT FROM blocked)
), taken AS (
    INSERT INTO /* schema */limiter_leases AS b (limiter, key, at, ends, ids, lim, granted)
    SELECT $1::text, $2::bytea, at, ARRAY[at + $4::bigint], ARRAY[$5::bigint], $3::bigint, 1
    FROM later
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
    RETURNING b.at, b.ends, b.ids, b.lim
)
SELECT 1, at, at, ends, ids, lim FROM taken
UNION ALL
SELECT 0, at, row_at, ends, ids, lim FROM blocked
