-- The tables and the view of limiter, for SQLite 3.42 and later.
--
-- Do not pass this file to the sqlite3 shell: it would also run the part after "goose Down", which
-- drops all tables.
--
-- Every instant is an integer: nanoseconds since 1970-01-01 00:00 UTC, on the clock of the process.
-- Every instant lies in [0, 2^62], which leaves room to add two of them without an overflow.
--
-- STRICT, because without it a sum that overflows is stored as a REAL and nobody is told.
-- WITHOUT ROWID, because the primary key is composite: otherwise the table is a tree by rowid with a
-- second tree for the key, and each take looks into both and may write to both. Rows are small (100
-- bytes, seldom more than 200), which is what such a table is made for.

-- +goose Up

-- One row a (limiter, key). A row whose full_at has passed means the same as no row at all.
CREATE TABLE limiter_token_buckets (
    limiter  TEXT    NOT NULL, -- name of the limiter
    key      BLOB    NOT NULL, -- the key as bytes, 0x00 and a digest for a key that is long or private
    full_at  INTEGER NOT NULL, -- instant (ns since 1970) at which the bucket is full again
    at       INTEGER NOT NULL, -- clock reading (ns since 1970) of the latest take
    step     INTEGER NOT NULL, -- time of one token, in ns, under the policy that wrote the row
    capacity INTEGER NOT NULL, -- most tokens that the bucket holds, under that policy
    granted  INTEGER NOT NULL, -- units that the latest take was granted
    CONSTRAINT limiter_token_buckets_pkey PRIMARY KEY (limiter, key),
    CONSTRAINT limiter_token_buckets_full_at_check CHECK (full_at BETWEEN 0 AND 4611686018427387904),
    CONSTRAINT limiter_token_buckets_at_check CHECK (at BETWEEN 0 AND 4611686018427387904),
    CONSTRAINT limiter_token_buckets_step_check CHECK (step >= 1),
    CONSTRAINT limiter_token_buckets_capacity_check CHECK (capacity >= 1),
    CONSTRAINT limiter_token_buckets_granted_check CHECK (granted >= 0)
) STRICT, WITHOUT ROWID;

-- One row a (limiter, key), reused from window to window. The window that it tells of is the
-- frontier: with reservations it may lie ahead, and then all windows before it count as full.
CREATE TABLE limiter_fixed_windows (
    limiter      TEXT    NOT NULL, -- name of the limiter
    key          BLOB    NOT NULL, -- the key as bytes, 0x00 and a digest for a key that is long or private
    window_start INTEGER NOT NULL, -- instant (ns since 1970) at which the frontier window starts
    win          INTEGER NOT NULL, -- length of a window, in ns, under the policy that wrote the row
    lim          INTEGER NOT NULL, -- limit of a window, under that policy
    used         INTEGER NOT NULL, -- units counted in the frontier window, above lim where refusals count, too
    at           INTEGER NOT NULL, -- clock reading (ns since 1970) of the latest take
    granted      INTEGER NOT NULL, -- units that the latest take was granted
    CONSTRAINT limiter_fixed_windows_pkey PRIMARY KEY (limiter, key),
    CONSTRAINT limiter_fixed_windows_window_start_check CHECK (window_start BETWEEN 0 AND 4611686018427387904),
    CONSTRAINT limiter_fixed_windows_win_check CHECK (win >= 1),
    CONSTRAINT limiter_fixed_windows_lim_check CHECK (lim >= 1),
    CONSTRAINT limiter_fixed_windows_used_check CHECK (used BETWEEN 0 AND 4611686018427387904),
    CONSTRAINT limiter_fixed_windows_at_check CHECK (at BETWEEN 0 AND 4611686018427387904),
    CONSTRAINT limiter_fixed_windows_granted_check CHECK (granted >= 0)
) STRICT, WITHOUT ROWID;

-- One row a (limiter, key): the leases that are held, in the order of their ends, and some that have ended. The
-- lists belong together. Each of their numbers has 8 bytes, the highest byte first.
CREATE TABLE limiter_leases (
    limiter TEXT    NOT NULL, -- name of the limiter
    key     BLOB    NOT NULL, -- the key as bytes, 0x00 and a digest for a key that is long or private
    at      INTEGER NOT NULL, -- clock reading (ns since 1970) of the latest acquire or extend
    lim     INTEGER NOT NULL, -- how many leases may be held, under the policy that wrote the row
    granted INTEGER NOT NULL, -- no statement reads it
    ends    BLOB    NOT NULL, -- instants (ns since 1970) at which the leases end, in order
    ids     BLOB    NOT NULL, -- ids of the leases, in the order of ends
    CONSTRAINT limiter_leases_pkey PRIMARY KEY (limiter, key),
    CONSTRAINT limiter_leases_at_check CHECK (at BETWEEN 0 AND 4611686018427387904),
    CONSTRAINT limiter_leases_lim_check CHECK (lim >= 1),
    CONSTRAINT limiter_leases_granted_check CHECK (granted >= 0),
    CONSTRAINT limiter_leases_ends_check CHECK (length(ends) % 8 = 0 AND length(ends) = length(ids))
) STRICT, WITHOUT ROWID;

-- One row a (limiter, key). cum has the cumulative counts of slices, the newest last: 18 numbers of 8 bytes,
-- the highest byte first. The count of the slice that begins d slices after head and of the 16 before it is the
-- last number minus the one at byte 8 * d. cum is empty if nothing was counted since the key was reset.
CREATE TABLE limiter_sliding_windows (
    limiter TEXT    NOT NULL, -- name of the limiter
    key     BLOB    NOT NULL, -- the key as bytes, 0x00 and a digest for a key that is long or private
    head    INTEGER NOT NULL, -- instant (ns since 1970) at which the newest slice starts
    slice   INTEGER NOT NULL, -- length of a slice, a 16th of the window, in ns, under the policy that wrote the row
    lim     INTEGER NOT NULL, -- limit of a window, under that policy
    at      INTEGER NOT NULL, -- clock reading (ns since 1970) of the latest take
    granted INTEGER NOT NULL, -- units that the latest take was granted
    cum     BLOB    NOT NULL, -- what was counted up to and including each slice, oldest first
    CONSTRAINT limiter_sliding_windows_pkey PRIMARY KEY (limiter, key),
    CONSTRAINT limiter_sliding_windows_head_check CHECK (head BETWEEN 0 AND 4611686018427387904),
    CONSTRAINT limiter_sliding_windows_slice_check CHECK (slice >= 1),
    CONSTRAINT limiter_sliding_windows_lim_check CHECK (lim >= 1),
    CONSTRAINT limiter_sliding_windows_at_check CHECK (at BETWEEN 0 AND 4611686018427387904),
    CONSTRAINT limiter_sliding_windows_granted_check CHECK (granted >= 0),
    CONSTRAINT limiter_sliding_windows_cum_check CHECK (length(cum) IN (0, 144))
) STRICT, WITHOUT ROWID;

-- What every key has left right now, under the policy that wrote its row. For people: no statement
-- of limiter reads it. A key without a row has all of its limit left and does not appear.
-- resets_at is when the key is as if never used, in UTC, and NULL when it is so now.
--
-- A bucket owes debt = max(0, full_at - now) and has (capacity * step - debt) / step left, rounded
-- down. capacity - ceil(debt / step) is the same number and cannot overflow.
-- A window that has ended has lim left, one that is under way lim - used, one that lies ahead 0.
-- A lease that ends more than 24 h and 2 s ahead was taken before the clock was stepped back: it has ended.
-- A row that a clock far ahead of this one wrote counts as in the stores. A bucket keeps the debt that
-- it had by that clock, and a window that has not begun has nothing left.
-- Of a sliding window, what counted by the row's own clock counts. The key is unused when its latest count no
-- longer counts. SQLite converts hexadecimal digits only in JSON.
-- The clock counts milliseconds: a token that is back for less than one may not show yet.
CREATE VIEW limiter_remaining AS
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000000 AS now
), buckets AS (
    SELECT b.limiter, b.key, b.step, b.capacity, clock.now,
        max(0, b.full_at - CASE WHEN b.at > clock.now + 2000000000 THEN b.at ELSE clock.now END) AS debt
    FROM limiter_token_buckets AS b CROSS JOIN clock
), place (i) AS (
    SELECT 1 UNION ALL SELECT i + 1 FROM place WHERE i < 1000
), leases AS (
    SELECT b.limiter, b.key, b.lim, CASE WHEN i > 0 THEN ('[0x' || hex(substr(b.ends, 8 * i - 7, 8)) || ']') ->> 0 END AS ends
    FROM limiter_leases AS b LEFT JOIN place ON i <= length(b.ends) / 8
), sums (i) AS (
    VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15), (16), (17)
), slides AS (
    SELECT s.limiter, s.key, s.head, s.slice, s.lim, s.cum, clock.now, max(s.at, clock.now) AS later,
        (SELECT count(*) FROM sums WHERE substr(s.cum, 8 * i + 1, 8) < substr(s.cum, 137, 8)) AS older
    FROM limiter_sliding_windows AS s CROSS JOIN clock
)
SELECT limiter, key, 'token bucket' AS policy,
    max(0, capacity - debt / step - (debt % step > 0)) AS remaining,
    capacity AS lim,
    CASE WHEN debt > 0 THEN strftime('%Y-%m-%d %H:%M:%f', (now + debt) / 1e9, 'unixepoch') END AS resets_at
FROM buckets
UNION ALL
SELECT w.limiter, w.key, 'fixed window',
    CASE
        WHEN w.window_start <= clock.now - w.win THEN w.lim
        WHEN w.window_start > max(w.at, clock.now) THEN 0
        WHEN w.at > clock.now + 2000000000 AND w.window_start > clock.now THEN 0
        ELSE max(0, w.lim - w.used)
    END,
    w.lim,
    CASE WHEN w.used > 0 AND w.window_start > clock.now - w.win
        THEN strftime('%Y-%m-%d %H:%M:%f', w.window_start / 1e9 + w.win / 1e9, 'unixepoch') END
FROM limiter_fixed_windows AS w CROSS JOIN clock
UNION ALL
SELECT limiter, key, 'in flight', max(0, lim - count(held)), lim, strftime('%Y-%m-%d %H:%M:%f', max(held) / 1e9, 'unixepoch')
FROM (
    SELECT limiter, key, lim, CASE WHEN ends > clock.now AND ends <= clock.now + 86402000000000 THEN ends END AS held
    FROM leases CROSS JOIN clock
)
GROUP BY limiter, key, lim
UNION ALL
SELECT limiter, key, 'sliding window',
    CASE
        WHEN head > later THEN 0
        WHEN cum = x'' OR (later - head) / slice >= 17 THEN lim
        ELSE max(0, lim - (('[0x' || hex(substr(cum, 137, 8)) || ']') ->> 0)
            + (('[0x' || hex(substr(cum, (later - head) / slice * 8 + 1, 8)) || ']') ->> 0))
    END,
    lim,
    CASE WHEN cum <> x'' AND head + older * slice > now
        THEN strftime('%Y-%m-%d %H:%M:%f', head / 1e9 + older * (slice / 1e9), 'unixepoch') END
FROM slides;

-- One row for each key whose policy is not that of its limiter. Operators write the table, and
-- Store.Overrides reads all rows of a limiter. No other statement of a store uses it.
--
-- The CHECK accepts the policies that limiter.New accepts: a bucket's token takes at least 1 us, and a
-- bucket fills within 30 years. The time of one token, rounded up, is (period - 1) / refill + 1.
CREATE TABLE limiter_overrides (
    limiter    TEXT    NOT NULL, -- name of the limiter
    key        BLOB    NOT NULL, -- the key as the tables of limiter store it
    kind       TEXT    NOT NULL, -- bucket, window, window_counting for a window that also counts refusals, sliding, or limit for a limit alone
    capacity   INTEGER NOT NULL, -- capacity of the bucket, or limit of the window
    refill     INTEGER,          -- tokens that a bucket gets back per period, NULL for a window or a limit alone
    period     INTEGER,          -- interval of the bucket or length of the window, in ns; NULL for a limit alone
    note       TEXT,             -- for people: who asked for the override, and why
    expires_at INTEGER,          -- instant (ns since 1970) at which the override ends, NULL: never
    CONSTRAINT limiter_overrides_pkey PRIMARY KEY (limiter, key),
    CONSTRAINT limiter_overrides_check CHECK (
        CASE kind
            WHEN 'bucket' THEN refill IS NOT NULL AND period IS NOT NULL AND refill >= 1 AND capacity >= 1
                AND period BETWEEN 1 AND 946728000000000000 AND (period - 1) / refill >= 999
                AND capacity <= 946728000000000000 / ((period - 1) / refill + 1)
            WHEN 'window' THEN refill IS NULL AND period IS NOT NULL AND capacity BETWEEN 1 AND 1152921504606846976
                AND period BETWEEN 1000000 AND 946728000000000000
            WHEN 'window_counting' THEN refill IS NULL AND period IS NOT NULL AND capacity BETWEEN 1 AND 1152921504606846976
                AND period BETWEEN 1000000 AND 946728000000000000
            WHEN 'sliding' THEN refill IS NULL AND period IS NOT NULL AND capacity BETWEEN 1 AND 1152921504606846976
                AND period BETWEEN 16000000 AND 946728000000000000
            WHEN 'limit' THEN refill IS NULL AND period IS NULL AND capacity BETWEEN 1 AND 1152921504606846976
            ELSE 0
        END
        AND (expires_at IS NULL OR expires_at BETWEEN 0 AND 4611686018427387903)
    )
) STRICT, WITHOUT ROWID;

-- +goose Down

DROP TABLE limiter_overrides;
DROP VIEW limiter_remaining;
DROP TABLE limiter_leases;
DROP TABLE limiter_sliding_windows;
DROP TABLE limiter_fixed_windows;
DROP TABLE limiter_token_buckets;
