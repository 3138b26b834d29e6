-- Grants a take from a token bucket, or refuses it.
--
-- Answers one row (1, full_at, now, at) if the take was carried out, one row
-- (0, full_at, now, at) with what was found if it is refused, and none if the
-- row is another policy's, lies ahead of the clock, or was taken from under us.
--
-- A grant reads nothing but the target row, under its lock, in DO UPDATE: any
-- value computed before the lock may be stale, and would let too much in. A
-- refusal may come from the snapshot, because takes only lower what is left; it
-- takes no lock and no transaction id, and writes nothing. Nor does a row of
-- another policy that the snapshot shows: the INSERT could only lock it in vain.
--
-- The clock reaches the update through excluded, so that the statement also runs
-- where SET and WHERE must be immutable (Citus).
--
-- The epoch is read as a double, which takes less time than a numeric and has room for
-- every microsecond until 2106. What it is multiplied by is a double, too, as every operator
-- here has the types of one of PostgreSQL's own: else one that fits better could come from
-- whoever may create objects in a schema of search_path.
--
-- $1 limiter, $2 key, $3 step, $4 capacity, $5 spend: cost * step, $6 reach:
-- capacity * step + longest wait, $7 time of the operation or NULL
WITH clock AS MATERIALIZED (
    SELECT coalesce($7::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at/* commit */
), unfit AS (
    SELECT b.full_at, clock.at, b.at AS row_at, b.step, b.capacity
    FROM /* schema */limiter_token_buckets AS b, clock
    WHERE b.limiter = $1::text AND b.key = $2::bytea
      AND (b.step <> $3::bigint OR b.capacity <> $4::bigint
        OR b.full_at + $5::bigint > clock.at + $6::bigint)
), taken AS (
    INSERT INTO /* schema */limiter_token_buckets AS b (limiter, key, full_at, at, step, capacity, granted)
    SELECT $1::text, $2::bytea, at + $5::bigint, at, $3::bigint, $4::bigint, 1
    FROM clock
    WHERE NOT EXISTS (SELECT FROM unfit)
    ON CONFLICT (limiter, key) DO UPDATE
    SET full_at = greatest(b.full_at, excluded.at) + $5::bigint,
        at = excluded.at,
        granted = 1
    WHERE b.step = excluded.step AND b.capacity = excluded.capacity
      AND b.at <= excluded.at + 2000000000
      AND greatest(b.full_at, excluded.at) + $5::bigint <= excluded.at + $6::bigint
    RETURNING b.full_at, b.at
)
SELECT 1, full_at, at, at FROM taken
UNION ALL
SELECT 0, full_at, at, row_at FROM unfit WHERE step = $3::bigint AND capacity = $4::bigint
