-- Reads a token bucket and the clock at once; zeros if there is no row.
-- $1 limiter, $2 key, $3 time of the operation or NULL
WITH clock AS MATERIALIZED (
    SELECT coalesce($3::bigint, (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000) AS at
)
SELECT clock.at, coalesce(b.full_at, 0), coalesce(b.at, 0), coalesce(b.step, 0), coalesce(b.capacity, 0)
FROM clock
LEFT JOIN /* schema */limiter_token_buckets AS b ON b.limiter = $1::text AND b.key = $2::bytea
