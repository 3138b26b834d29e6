-- The tables and the view of limiter, for PostgreSQL 15 and later.
--
-- Do not pass this file to psql: it would also run the part after "goose Down", which drops all
-- tables. The goose command line puts the objects into the first schema of search_path.
-- migrations.Up replaces each /* schema */ by a quoted schema name.
--
-- Every instant is an integer: nanoseconds since 1970-01-01 00:00 UTC, on the database's clock.
-- Every instant lies in [0, 2^62), which leaves room to add two of them without an overflow.
-- One CHECK joins all numbers of a table by |. If the sign or the bit below it is set in one of them,
-- it is set in the result. PostgreSQL reads and plans each CHECK anew for each statement that writes.
-- Numbers in the view have the types of PostgreSQL's own operators. An operator that needs a conversion
-- could come from any role that may create objects in a schema of search_path. Each reader of the view
-- would run it.
-- Columns of eight bytes come first and those of varying length last, so that no row is padded.

-- +goose Up

-- One row a (limiter, key). A row whose full_at has passed means the same as no row at all.
--
-- There is no index but the primary key. An update that changes no indexed column can be HOT: it touches
-- no index, and the next reader of the page removes the old version.
-- For that, the page needs room for the new version. Of 200,000 takes on 50,000 keys, 99.2 % were
-- HOT with fillfactor 100, 99.9 % with 80 and all with 70, where the table did not grow, either.
CREATE TABLE /* schema */limiter_token_buckets (
    full_at  bigint           NOT NULL,
    at       bigint           NOT NULL,
    step     bigint           NOT NULL,
    capacity bigint           NOT NULL,
    granted  bigint           NOT NULL,
    limiter  text COLLATE "C" NOT NULL,
    key      bytea            NOT NULL,
    CONSTRAINT limiter_token_buckets_pkey PRIMARY KEY (limiter, key),
    CONSTRAINT limiter_token_buckets_check CHECK ((full_at | at | step - 1 | capacity - 1 | granted) >> 62 = 0)
) WITH (fillfactor = 70, vacuum_truncate = off);

COMMENT ON TABLE /* schema */limiter_token_buckets IS
    'limiter: token buckets, one row a (limiter, key); a row whose full_at has passed equals no row';
COMMENT ON COLUMN /* schema */limiter_token_buckets.full_at IS
    'instant (ns since 1970) at which the bucket is full again';
COMMENT ON COLUMN /* schema */limiter_token_buckets.at IS
    'clock reading (ns since 1970) of the latest take';
COMMENT ON COLUMN /* schema */limiter_token_buckets.step IS
    'time of one token, in ns, under the policy that wrote the row';
COMMENT ON COLUMN /* schema */limiter_token_buckets.capacity IS
    'most tokens that the bucket holds, under the policy that wrote the row';
COMMENT ON COLUMN /* schema */limiter_token_buckets.granted IS
    'units that the latest take was granted';
COMMENT ON COLUMN /* schema */limiter_token_buckets.limiter IS
    'name of the limiter';
COMMENT ON COLUMN /* schema */limiter_token_buckets.key IS
    'the key as bytes; 0x00 and a digest for a key that is long or private';

-- One row a (limiter, key), reused from window to window. The window that it tells of is the
-- frontier: with reservations it may lie ahead, and then all windows before it count as full.
CREATE TABLE /* schema */limiter_fixed_windows (
    window_start bigint           NOT NULL,
    win          bigint           NOT NULL,
    lim          bigint           NOT NULL,
    used         bigint           NOT NULL,
    at           bigint           NOT NULL,
    granted      bigint           NOT NULL,
    limiter      text COLLATE "C" NOT NULL,
    key          bytea            NOT NULL,
    CONSTRAINT limiter_fixed_windows_pkey PRIMARY KEY (limiter, key),
    CONSTRAINT limiter_fixed_windows_check CHECK (
        (window_start | at | win - 1 | lim - 1 | granted) >> 62 = 0 AND used BETWEEN 0 AND 4611686018427387904)
) WITH (fillfactor = 70, vacuum_truncate = off);

COMMENT ON TABLE /* schema */limiter_fixed_windows IS
    'limiter: fixed windows, one row a (limiter, key); a row whose window has ended equals no row';
COMMENT ON COLUMN /* schema */limiter_fixed_windows.window_start IS
    'instant (ns since 1970) at which the frontier window starts';
COMMENT ON COLUMN /* schema */limiter_fixed_windows.win IS
    'length of a window, in ns, under the policy that wrote the row';
COMMENT ON COLUMN /* schema */limiter_fixed_windows.lim IS
    'limit of a window, under the policy that wrote the row';
COMMENT ON COLUMN /* schema */limiter_fixed_windows.used IS
    'units counted in the frontier window; above lim where refusals count, too';
COMMENT ON COLUMN /* schema */limiter_fixed_windows.at IS
    'clock reading (ns since 1970) of the latest take';
COMMENT ON COLUMN /* schema */limiter_fixed_windows.granted IS
    'units that the latest take was granted';
COMMENT ON COLUMN /* schema */limiter_fixed_windows.limiter IS
    'name of the limiter';
COMMENT ON COLUMN /* schema */limiter_fixed_windows.key IS
    'the key as bytes; 0x00 and a digest for a key that is long or private';

-- One row a (limiter, key): the leases that are held, in the order of their ends, and some that have ended. The
-- lists belong together: ids[i] is the id of the lease that ends at ends[i].
CREATE TABLE /* schema */limiter_leases (
    at      bigint           NOT NULL,
    lim     bigint           NOT NULL,
    granted bigint           NOT NULL,
    limiter text COLLATE "C" NOT NULL,
    key     bytea            NOT NULL,
    ends    bigint[]         NOT NULL,
    ids     bigint[]         NOT NULL,
    CONSTRAINT limiter_leases_pkey PRIMARY KEY (limiter, key),
    CONSTRAINT limiter_leases_check CHECK ((at | lim - 1 | granted) >> 62 = 0 AND pg_catalog.cardinality(ends) = pg_catalog.cardinality(ids))
) WITH (fillfactor = 70, vacuum_truncate = off);

COMMENT ON TABLE /* schema */limiter_leases IS
    'limiter: requests in flight, one row a (limiter, key); a row whose leases have ended equals no row';
COMMENT ON COLUMN /* schema */limiter_leases.at IS
    'clock reading (ns since 1970) of the latest acquire or extend';
COMMENT ON COLUMN /* schema */limiter_leases.lim IS
    'how many leases may be held, under the policy that wrote the row';
COMMENT ON COLUMN /* schema */limiter_leases.granted IS
    'no statement reads it';
COMMENT ON COLUMN /* schema */limiter_leases.limiter IS
    'name of the limiter';
COMMENT ON COLUMN /* schema */limiter_leases.key IS
    'the key as bytes; 0x00 and a digest for a key that is long or private';
COMMENT ON COLUMN /* schema */limiter_leases.ends IS
    'instants (ns since 1970) at which the leases end, in order';
COMMENT ON COLUMN /* schema */limiter_leases.ids IS
    'ids of the leases, in the order of ends';

-- One row a (limiter, key). cum has the cumulative counts of slices, the newest last. The slice that begins d
-- slices after head and the 16 before it have the count cum[18] - cum[1 + d]. cum is empty if nothing was
-- counted since the key was reset.
CREATE TABLE /* schema */limiter_sliding_windows (
    head    bigint           NOT NULL,
    slice   bigint           NOT NULL,
    lim     bigint           NOT NULL,
    at      bigint           NOT NULL,
    granted bigint           NOT NULL,
    limiter text COLLATE "C" NOT NULL,
    key     bytea            NOT NULL,
    cum     bigint[]         NOT NULL,
    CONSTRAINT limiter_sliding_windows_pkey PRIMARY KEY (limiter, key),
    CONSTRAINT limiter_sliding_windows_check CHECK (
        (head | at | slice - 1 | lim - 1 | granted) >> 62 = 0 AND pg_catalog.cardinality(cum) IN (0, 18))
) WITH (fillfactor = 70, vacuum_truncate = off);

COMMENT ON TABLE /* schema */limiter_sliding_windows IS
    'limiter: sliding windows, one row a (limiter, key); a row of which no slice counts equals no row';
COMMENT ON COLUMN /* schema */limiter_sliding_windows.head IS
    'instant (ns since 1970) at which the newest slice starts';
COMMENT ON COLUMN /* schema */limiter_sliding_windows.slice IS
    'length of a slice, a 16th of the window, in ns, under the policy that wrote the row';
COMMENT ON COLUMN /* schema */limiter_sliding_windows.lim IS
    'limit of a window, under the policy that wrote the row';
COMMENT ON COLUMN /* schema */limiter_sliding_windows.at IS
    'clock reading (ns since 1970) of the latest take';
COMMENT ON COLUMN /* schema */limiter_sliding_windows.granted IS
    'units that the latest take was granted';
COMMENT ON COLUMN /* schema */limiter_sliding_windows.limiter IS
    'name of the limiter';
COMMENT ON COLUMN /* schema */limiter_sliding_windows.key IS
    'the key as bytes; 0x00 and a digest for a key that is long or private';
COMMENT ON COLUMN /* schema */limiter_sliding_windows.cum IS
    'what was counted up to and including each slice, oldest first; 18 numbers or none';

-- A floor of 32 pages (256 kB) under each table, which vacuum_truncate = off keeps.
--
-- A session keeps its plans until VACUUM or ANALYZE runs. The planner reads a table of one or two pages
-- as a whole instead of by the index. Such a plan still reads the whole table after it has grown to
-- 100,000 rows. The planner counts seq_page_cost, 1, for each page of the table, also for an empty one.
-- To read a row by its key costs random_page_cost, 4, for a page of the index and for one of the table.
-- So every statement uses the index from 9 pages on (3 if random_page_cost is 1.1), on PostgreSQL 15, 17
-- and 18. With 32 pages it does so up to a random_page_cost of 15. It also does so if the index has grown
-- to 12 pages and a sweep has left two rows: the planner then counts half of the index for a key.
--
-- Rows that were stored and deleted leave their pages, and their keys in the index. A page with
-- fillfactor 10 is full with nine or ten rows. So few rows are enough, and their keys fit into one page.
-- No limiter has an empty name: these statements may run again where the floor was lost.
ALTER TABLE /* schema */limiter_token_buckets SET (fillfactor = 10);
INSERT INTO /* schema */limiter_token_buckets (full_at, at, step, capacity, granted, limiter, key)
SELECT 0, 0, 1, 1, 0, '', int4send(i) FROM generate_series(1, 320) AS i;
DELETE FROM /* schema */limiter_token_buckets WHERE limiter = '';
ALTER TABLE /* schema */limiter_token_buckets SET (fillfactor = 70);

ALTER TABLE /* schema */limiter_fixed_windows SET (fillfactor = 10);
INSERT INTO /* schema */limiter_fixed_windows (window_start, win, lim, used, at, granted, limiter, key)
SELECT 0, 1, 1, 0, 0, 0, '', int4send(i) FROM generate_series(1, 288) AS i;
DELETE FROM /* schema */limiter_fixed_windows WHERE limiter = '';
ALTER TABLE /* schema */limiter_fixed_windows SET (fillfactor = 70);

ALTER TABLE /* schema */limiter_leases SET (fillfactor = 10);
INSERT INTO /* schema */limiter_leases (at, lim, granted, limiter, key, ends, ids)
SELECT 0, 1, 0, '', int4send(i), ARRAY[]::bigint[], ARRAY[]::bigint[] FROM generate_series(1, 288) AS i;
DELETE FROM /* schema */limiter_leases WHERE limiter = '';
ALTER TABLE /* schema */limiter_leases SET (fillfactor = 70);

ALTER TABLE /* schema */limiter_sliding_windows SET (fillfactor = 10);
INSERT INTO /* schema */limiter_sliding_windows (head, slice, lim, at, granted, limiter, key, cum)
SELECT 0, 1, 1, 0, 0, '', int4send(i), '{}'::bigint[] FROM generate_series(1, 256) AS i;
DELETE FROM /* schema */limiter_sliding_windows WHERE limiter = '';
ALTER TABLE /* schema */limiter_sliding_windows SET (fillfactor = 70);

-- What every key has left right now, under the policy that wrote its row. For people: no statement
-- of limiter reads it. A key without a row has all of its limit left and does not appear.
--
-- A bucket owes debt = max(0, full_at - now) and has (capacity * step - debt) / step left, rounded
-- down. capacity - ceil(debt / step) is the same number and cannot overflow.
-- A window that has ended has lim left, one that is under way lim - used, one that lies ahead 0.
-- A lease that ends more than 24 h and 2 s ahead was taken before the clock was stepped back: it has ended.
-- A row that a clock far ahead of this one wrote counts as in the stores. A bucket keeps the debt that
-- it had by that clock, and a window that has not begun has nothing left.
-- Of a sliding window, what counted by the row's own clock counts. The key is unused when its latest count no
-- longer counts.
CREATE VIEW /* schema */limiter_remaining AS
WITH clock AS MATERIALIZED (
    SELECT (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000000::double precision)::bigint * 1000 AS now
), buckets AS (
    SELECT b.limiter, b.key, b.step, b.capacity, clock.now,
        greatest(0, b.full_at - CASE WHEN b.at > clock.now + 2000000000 THEN b.at ELSE clock.now END) AS debt
    FROM /* schema */limiter_token_buckets AS b CROSS JOIN clock
), slides AS (
    SELECT s.limiter, s.key, s.head, s.slice, s.lim, s.cum, clock.now, greatest(s.at, clock.now) AS later,
        pg_catalog.width_bucket(s.cum[18] - 1, s.cum) AS older
    FROM /* schema */limiter_sliding_windows AS s CROSS JOIN clock
)
SELECT limiter, key, 'token bucket'::text AS policy,
    greatest(0, capacity - debt / step - CASE WHEN debt % step > 0 THEN 1 ELSE 0 END) AS remaining,
    capacity AS lim,
    CASE WHEN debt > 0 THEN pg_catalog.to_timestamp((now + debt)::numeric / 1e9) END AS resets_at
FROM buckets
UNION ALL
SELECT w.limiter, w.key, 'fixed window'::text,
    CASE
        WHEN w.window_start <= clock.now - w.win THEN w.lim
        WHEN w.window_start > greatest(w.at, clock.now) THEN 0
        WHEN w.at > clock.now + 2000000000 AND w.window_start > clock.now THEN 0
        ELSE greatest(0, w.lim - w.used)
    END,
    w.lim,
    CASE WHEN w.used > 0 AND w.window_start > clock.now - w.win THEN pg_catalog.to_timestamp((w.window_start::numeric + w.win::numeric) / 1e9) END
FROM /* schema */limiter_fixed_windows AS w CROSS JOIN clock
UNION ALL
SELECT l.limiter, l.key, 'in flight'::text, greatest(0, l.lim - (l.latest - l.ended)), l.lim,
    CASE WHEN l.latest > l.ended THEN pg_catalog.to_timestamp(l.ends[l.latest]::numeric / 1e9) END
FROM (
    SELECT b.limiter, b.key, b.lim, b.ends, pg_catalog.width_bucket(clock.now, b.ends) AS ended,
        pg_catalog.width_bucket(clock.now + 86402000000000, b.ends) AS latest
    FROM /* schema */limiter_leases AS b CROSS JOIN clock
) AS l
UNION ALL
SELECT limiter, key, 'sliding window'::text,
    CASE
        WHEN head > later THEN 0
        WHEN older IS NULL OR (later - head) / slice >= 17 THEN lim
        ELSE greatest(0, lim - cum[18] + cum[1 + ((later - head) / slice)::integer])
    END,
    lim,
    CASE WHEN older IS NOT NULL AND head::numeric + older::numeric * slice::numeric > now::numeric
        THEN pg_catalog.to_timestamp((head::numeric + older::numeric * slice::numeric) / 1e9) END
FROM slides;

COMMENT ON VIEW /* schema */limiter_remaining IS
    'limiter: what every key has left now, for people to read; no row: the key has all of its limit';
COMMENT ON COLUMN /* schema */limiter_remaining.policy IS
    'token bucket, fixed window, in flight or sliding window';
COMMENT ON COLUMN /* schema */limiter_remaining.remaining IS
    'what a request could still take now, or how many places are free';
COMMENT ON COLUMN /* schema */limiter_remaining.lim IS
    'capacity of the bucket, limit of the window, or number of places';
COMMENT ON COLUMN /* schema */limiter_remaining.resets_at IS
    'when the key is as if never used; NULL: it is so now';

-- One row for each key whose policy is not that of its limiter. Operators write the table, and
-- Store.Overrides reads all rows of a limiter. No other statement of a store uses it.
--
-- The CHECK accepts the policies that limiter.New accepts: a bucket's token takes at least 1 us, and a
-- bucket fills within 30 years. The time of one token, rounded up, is (period - 1) / refill + 1.
CREATE TABLE /* schema */limiter_overrides (
    capacity   bigint           NOT NULL,
    refill     bigint,
    period     bigint,
    expires_at bigint,
    limiter    text COLLATE "C" NOT NULL,
    key        bytea            NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    note       text,
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
    'tokens that a bucket gets back per period; NULL for a window or a limit alone';
COMMENT ON COLUMN /* schema */limiter_overrides.period IS
    'interval of the bucket or length of the window, in ns; NULL for a limit alone';
COMMENT ON COLUMN /* schema */limiter_overrides.expires_at IS
    'instant (ns since 1970) at which the override ends; NULL: never';
COMMENT ON COLUMN /* schema */limiter_overrides.limiter IS
    'name of the limiter';
COMMENT ON COLUMN /* schema */limiter_overrides.key IS
    'the key as the tables of limiter store it';
COMMENT ON COLUMN /* schema */limiter_overrides.kind IS
    'bucket, window, window_counting for a window that also counts refusals, sliding, or limit for a limit alone';
COMMENT ON COLUMN /* schema */limiter_overrides.note IS
    'for people: who asked for the override, and why';

-- +goose Down

DROP TABLE /* schema */limiter_overrides;
DROP VIEW /* schema */limiter_remaining;
DROP TABLE /* schema */limiter_leases;
DROP TABLE /* schema */limiter_sliding_windows;
DROP TABLE /* schema */limiter_fixed_windows;
DROP TABLE /* schema */limiter_token_buckets;
