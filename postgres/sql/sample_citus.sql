-- Chooses a random row among those of some random blocks. It returns no row if these blocks hold
-- none. The key is in hex, because the text form of bytes depends on a setting of the session.
--
-- $1 percent of the blocks
SELECT limiter, pg_catalog.encode(key, 'hex')
FROM /* table */ TABLESAMPLE SYSTEM ($1::double precision)
ORDER BY pg_catalog.random()
LIMIT 1
