-- Grants takes of one key where the table is distributed by Citus: as many of $8 units as there is room for.
-- A unit costs $5. It returns what sliding_take.sql does, but no row for a refusal. It works like
-- bucket_take_citus.sql.
--
-- RETURNING cannot name the clock, so it returns the row's at as now. That is later than the clock only if
-- another clock was ahead of it.
--
-- $1 limiter, $2 key, $3 slice, $4 limit, $5 cost, $6 time of the operation or NULL,
-- $7 how far the row may lie ahead of the clock, $8 units
INSERT INTO /* schema */limiter_sliding_windows AS b (limiter, key, head, slice, lim, at, granted, cum)
VALUES ($1::text, $2::bytea,
    coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000)
        - coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000) % $3::bigint,
    $3::bigint, $4::bigint,
    coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000),
    least($8::bigint, $4::bigint / $5::bigint),
    pg_catalog.array_append(pg_catalog.array_fill(0::bigint, ARRAY[17]), least($8::bigint, $4::bigint / $5::bigint) * $5::bigint))
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
RETURNING b.granted, b.at, b.head, b.at, b.cum
