-- Grants takes in a sliding window, as many of $8 units as there is room for, or refuses them. A unit costs
-- $5.
--
-- If it granted any, it returns one row (granted, now, head, at, cum). If it refused, it returns one row
-- (0, now, head, at, cum) with the row that it found. It returns no row if the row has another policy, was
-- reset, lies ahead of the clock, or has sums that Op.Apply must rebase. It also returns none if another
-- process changed the row meanwhile. See bucket_take.sql for locks and snapshots.
--
-- The slice that the clock is in and the 16 before it count. These 17 slices cover the whole window. In the
-- slice that starts d slices after the newest one of the row, cum[18] - cum[1 + d] counts; d is 0 to 17. If
-- the clock is behind the row's, the take counts in the row's slice: hence greatest().
--
-- Arrays are joined by functions, because the operators of pg_catalog on arrays are for any type: see
-- DESIGN.md, "Operators have built-in types".
--
-- $1 limiter, $2 key, $3 slice, $4 limit, $5 cost, $6 time of the operation or NULL,
-- $7 how far the row may lie ahead of the clock, $8 units
WITH clock AS MATERIALIZED (
    SELECT at, at - at % $3::bigint AS cur
    FROM (SELECT coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at) AS reading
), blocked AS (
    SELECT b.head, b.cum, clock.at, b.at AS row_at, b.slice = $3::bigint AND b.lim = $4::bigint AND b.cum[18] < 2305843009213693952 AS same
    FROM /* schema */limiter_sliding_windows AS b, clock
    WHERE b.limiter = $1::text AND b.key = $2::bytea
      AND (b.slice <> $3::bigint OR b.lim <> $4::bigint
        OR coalesce(b.cum[18], 2305843009213693952) >= 2305843009213693952
        OR b.head > greatest(b.at, clock.at)
        OR b.cum[18] - b.cum[1 + least(17, greatest(0, (clock.cur - b.head) / $3::bigint))::integer] + $5::bigint > $4::bigint)
), later AS MATERIALIZED (
    SELECT /* key_lock */true AS bounded, coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at/* commit */
    WHERE NOT EXISTS (SELECT FROM blocked)
), taken AS (
    INSERT INTO /* schema */limiter_sliding_windows AS b (limiter, key, head, slice, lim, at, granted, cum)
    SELECT $1::text, $2::bytea, at - at % $3::bigint, $3::bigint, $4::bigint, at, least($8::bigint, $4::bigint / $5::bigint),
        pg_catalog.array_append(pg_catalog.array_fill(0::bigint, ARRAY[17]), least($8::bigint, $4::bigint / $5::bigint) * $5::bigint)
    FROM later
    ON CONFLICT (limiter, key) DO UPDATE
    SET head = greatest(b.head, excluded.head), at = greatest(b.at, excluded.at),
        granted = least(excluded.granted, ($4::bigint - b.cum[18] + b.cum[1 + least(17, greatest(0, (excluded.head - b.head) / $3::bigint))::integer]) / $5::bigint),
        cum = pg_catalog.array_append(
            pg_catalog.array_cat(
                b.cum[1 + least(17, greatest(0, (excluded.head - b.head) / $3::bigint))::integer : 17],
                pg_catalog.array_fill(b.cum[18], ARRAY[least(17, greatest(0, (excluded.head - b.head) / $3::bigint))::integer])),
            b.cum[18] + least(excluded.granted, ($4::bigint - b.cum[18] + b.cum[1 + least(17, greatest(0, (excluded.head - b.head) / $3::bigint))::integer]) / $5::bigint) * $5::bigint)
    WHERE b.slice = excluded.slice AND b.lim = excluded.lim
      AND b.at <= excluded.at + $7::bigint
      AND b.head <= greatest(b.at, excluded.at) AND b.cum[18] < 2305843009213693952
      AND b.cum[18] - b.cum[1 + least(17, greatest(0, (excluded.head - b.head) / $3::bigint))::integer] + $5::bigint <= $4::bigint
    RETURNING b.granted, b.head, b.at, b.cum
)
SELECT granted, later.at, head, taken.at, cum FROM taken, later
UNION ALL
SELECT 0, at, head, row_at, cum FROM blocked WHERE same
