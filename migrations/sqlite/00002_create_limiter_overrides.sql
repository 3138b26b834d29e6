-- The table of overrides, for SQLite 3.42 and later.
--
-- Do not pass this file to the sqlite3 shell: it would also run the part after "goose Down", which
-- drops the table.

-- +goose Up

-- One row for each key whose policy is not that of its limiter. Operators write the table, and
-- Store.Overrides reads all rows of a limiter. No other statement of a store uses it.
--
-- The CHECK accepts the policies that limiter.New accepts: a bucket's token takes at least 1 us, and a
-- bucket fills within 30 years. The time of one token, rounded up, is (period - 1) / refill + 1.
CREATE TABLE limiter_overrides (
    limiter    TEXT    NOT NULL, -- name of the limiter
    key        BLOB    NOT NULL, -- the key as the tables of limiter store it
    kind       TEXT    NOT NULL, -- bucket, window, or window_counting for a window that also counts refusals
    capacity   INTEGER NOT NULL, -- capacity of the bucket, or limit of the window
    refill     INTEGER,          -- tokens that a bucket gets back per period, NULL for a window
    period     INTEGER NOT NULL, -- interval of the bucket or length of the window, in ns
    note       TEXT,             -- for people: who asked for the override, and why
    expires_at INTEGER,          -- instant (ns since 1970) at which the override ends, NULL: never
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
            ELSE 0
        END
        AND (expires_at IS NULL OR expires_at BETWEEN 0 AND 4611686018427387903)
    )
) STRICT, WITHOUT ROWID;

-- +goose Down

DROP TABLE limiter_overrides;
