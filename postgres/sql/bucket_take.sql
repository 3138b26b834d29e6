-- Grants a take from a token bucket, or refuses it.
--
-- Returns one row (1, now, full_at, at) if it granted the take, and one row (0, now, full_at, at)
-- with the row that it found if it refused. It returns no row if the bucket has another policy or
-- lies ahead of the clock, or if another process changed it meanwhile.
--
-- A grant reads only the target row, under its lock, in DO UPDATE. Any value that was computed
-- before the lock may be stale and would admit too much. A refusal may come from the snapshot,
-- because takes only lower what is left. It takes no lock and no transaction id, and writes
-- nothing. So only a take that is not refused evaluates later, which sets lock_timeout, locks the key, and
-- then reads the clock again. If the snapshot shows a row of another policy, the INSERT is skipped, because
-- it could only lock the row.
--
-- The clock reaches the update through excluded, so that the statement also runs where SET and
-- WHERE must be immutable (Citus).
--
-- The epoch is read as a double, which is faster than a numeric and holds every microsecond until
-- 2106. It is multiplied by a double, because every operator must have the types of one in
-- pg_catalog: see DESIGN.md, "Operators have built-in types".
--
-- $1 limiter, $2 key, $3 step, $4 capacity, $5 spend: cost * step, $6 time of the operation or
-- NULL, $7 reach: capacity * step + longest wait
WITH clock AS MATERIALIZED (
    SELECT coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at
), blocked AS (
    SELECT b.full_at, clock.at, b.at AS row_at, b.step, b.capacity
    FROM /* schema */limiter_token_buckets AS b, clock
    WHERE b.limiter = $1::text AND b.key = $2::bytea
      AND (b.step <> $3::bigint OR b.capacity <> $4::bigint
        OR b.full_at + $5::bigint > clock.at + $7::bigint)
), later AS MATERIALIZED (
    SELECT /* key_lock */true AS bounded, coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at/* commit */
    WHERE NOT EXISTS (SELECT FROM blocked)
), taken AS (
    INSERT INTO /* schema */limiter_token_buckets AS b (limiter, key, full_at, at, step, capacity, granted)
    SELECT $1::text, $2::bytea, at + $5::bigint, at, $3::bigint, $4::bigint, 1
    FROM later
    ON CONFLICT (limiter, key) DO UPDATE
    SET full_at = greatest(b.full_at, excluded.at) + $5::bigint,
        at = excluded.at,
        granted = 1
    WHERE b.step = excluded.step AND b.capacity = excluded.capacity
      AND b.at <= excluded.at + 2000000000
      AND greatest(b.full_at, excluded.at) + $5::bigint <= excluded.at + $7::bigint
    RETURNING b.full_at, b.at
)
SELECT 1, at, full_at, at FROM taken
UNION ALL
SELECT 0, at, full_at, row_at FROM blocked WHERE step = $3::bigint AND capacity = $4::bigint
