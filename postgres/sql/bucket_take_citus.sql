-- Grants takes of one key where the table is distributed by Citus: as many of $8 units as there is
-- room for. A unit costs $5. It returns what bucket_take.sql does, but no row for a refusal: see
-- DESIGN.md, "On Citus a take is one UPSERT".
--
-- Citus sends this form to one shard. It evaluates the clock in VALUES on the coordinator, and
-- allows none elsewhere. Both readings of it are the same.
--
-- $1 limiter, $2 key, $3 step, $4 capacity, $5 spend: cost * step, $6 time of the operation or
-- NULL, $7 reach: capacity * step, $8 units
INSERT INTO /* schema */limiter_token_buckets AS b (limiter, key, full_at, at, step, capacity, granted)
VALUES ($1::text, $2::bytea,
    coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000)
        + least($8::bigint, $7::bigint / $5::bigint) * $5::bigint,
    coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000),
    $3::bigint, $4::bigint, least($8::bigint, $7::bigint / $5::bigint))
ON CONFLICT (limiter, key) DO UPDATE
SET full_at = greatest(b.full_at, excluded.at)
        + least(excluded.granted, (excluded.at + $7::bigint - greatest(b.full_at, excluded.at)) / $5::bigint) * $5::bigint,
    at = excluded.at,
    granted = least(excluded.granted, (excluded.at + $7::bigint - greatest(b.full_at, excluded.at)) / $5::bigint)
WHERE b.step = excluded.step AND b.capacity = excluded.capacity
  AND b.at <= excluded.at + 2000000000
  AND greatest(b.full_at, excluded.at) + $5::bigint <= excluded.at + $7::bigint
RETURNING b.granted, b.at, b.full_at, b.at
