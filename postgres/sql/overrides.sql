-- Reads the overrides of a limiter that have not expired. The key is in hex, because the text form of
-- bytes depends on a setting of the session. NULL becomes 0 or ''.
--
-- $1 limiter, $2 rows to read at most
SELECT pg_catalog.encode(key, 'hex'), kind, capacity, coalesce(refill, 0), coalesce(period, 0),
    coalesce(note, ''), coalesce(expires_at, 0)
FROM /* schema */limiter_overrides
WHERE limiter = $1::text
    AND (expires_at IS NULL
        OR expires_at > (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000)
ORDER BY key
LIMIT $2::bigint
