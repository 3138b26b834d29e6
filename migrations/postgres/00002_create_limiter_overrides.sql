-- The table of overrides, for PostgreSQL 14 and later.
--
-- Do not pass this file to psql: it would also run the part after "goose Down", which drops the
-- table. migrations.Up replaces each /* schema */ by a quoted schema name.
--
-- Numbers have the types of PostgreSQL's own operators, as in the first migration.

-- +goose Up

-- One row for each key whose policy is not that of its limiter. Operators write the table, and
-- Store.Overrides reads all rows of a limiter. No other statement of a store uses it.
--
-- The CHECK accepts the policies that limiter.New accepts: a bucket's token takes at least 1 us, and a
-- bucket fills within 30 years. The time of one token, rounded up, is (period - 1) / refill + 1.
CREATE TABLE /* schema */limiter_overrides (
    capacity   bigint           NOT NULL,
    refill     bigint,
    period     bigint           NOT NULL,
    expires_at bigint,
    limiter    text COLLATE "C" NOT NULL,
    key        bytea            NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    note       text,
    CONSTRAINT limiter_overrides_pkey PRIMARY KEY (limiter, key),
    CONSTRAINT limiter_overrides_check CHECK (
        CASE kind
            WHEN 'bucket' THEN refill IS NOT NULL AND refill >= 1 AND capacity >= 1
                AND period BETWEEN 1 AND 946728000000000000 AND (period - 1) / refill >= 999
                AND capacity <= 946728000000000000 / ((period - 1) / refill + 1)
            WHEN 'window' THEN refill IS NULL AND capacity BETWEEN 1 AND 1152921504606846976
                AND period BETWEEN 1000000 AND 946728000000000000
            WHEN 'window_counting' THEN refill IS NULL AND capacity BETWEEN 1 AND 1152921504606846976
                AND period BETWEEN 1000000 AND 946728000000000000
            ELSE false
        END
        AND (expires_at IS NULL OR expires_at BETWEEN 0 AND 4611686018427387903)
    )
);

COMMENT ON TABLE /* schema */limiter_overrides IS
    'limiter: policies of single keys, written by operators and read by package overrides';
COMMENT ON COLUMN /* schema */limiter_overrides.capacity IS
    'capacity of the bucket, or limit of the window';
COMMENT ON COLUMN /* schema */limiter_overrides.refill IS
    'tokens that a bucket gets back per period; NULL for a window';
COMMENT ON COLUMN /* schema */limiter_overrides.period IS
    'interval of the bucket or length of the window, in ns';
COMMENT ON COLUMN /* schema */limiter_overrides.expires_at IS
    'instant (ns since 1970) at which the override ends; NULL: never';
COMMENT ON COLUMN /* schema */limiter_overrides.limiter IS
    'name of the limiter';
COMMENT ON COLUMN /* schema */limiter_overrides.key IS
    'the key as the tables of limiter store it';
COMMENT ON COLUMN /* schema */limiter_overrides.kind IS
    'bucket, window, or window_counting for a window that also counts refusals';
COMMENT ON COLUMN /* schema */limiter_overrides.note IS
    'for people: who asked for the override, and why';

-- +goose Down

DROP TABLE /* schema */limiter_overrides;
