-- Grants takes of one key where the table is distributed by Citus: as many of $8 units as the
-- window has room for. A unit costs $5. It works like bucket_take_citus.sql.
--
-- RETURNING cannot name the clock, so now in the row that it returns is the row's at. It is later than the clock
-- only if another clock was ahead of it.
--
-- See window_take.sql for the calendar. VALUES must insert something: outside of the period that is an unused
-- row with 0 units granted, which decides nothing.
--
-- $1 limiter, $2 key, $3 window, $4 limit, $5 cost, $6 time of the operation or NULL, $7 how far
-- the row may lie ahead of the clock, $8 units. $9 is the start of the calendar's period.
INSERT INTO /* schema */limiter_fixed_windows AS b (limiter, key, window_start, win, lim, used, at, granted)
VALUES ($1::text, $2::bytea,
    /* if fixed */coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000)
        - coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000) % $3::bigint/* if calendar */CASE WHEN coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000) >= $9::bigint AND coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000) < $9::bigint + $3::bigint THEN $9::bigint ELSE 0 END/* end if */,
    $3::bigint, $4::bigint,
    /* if fixed */least($8::bigint, $4::bigint / $5::bigint) * $5::bigint
    /* if calendar */CASE WHEN coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000) >= $9::bigint AND coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000) < $9::bigint + $3::bigint THEN least($8::bigint, $4::bigint / $5::bigint) * $5::bigint ELSE 0 END
    /* end if */,
    /* if fixed */coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000)
    /* if calendar */CASE WHEN coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000) >= $9::bigint AND coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000) < $9::bigint + $3::bigint THEN coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000) ELSE 0 END
    /* end if */,
    /* if fixed */least($8::bigint, $4::bigint / $5::bigint)
    /* if calendar */CASE WHEN coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000) >= $9::bigint AND coalesce($6::bigint, (pg_catalog.date_part('epoch', pg_catalog.statement_timestamp()) * 1000000::double precision)::bigint * 1000) < $9::bigint + $3::bigint THEN least($8::bigint, $4::bigint / $5::bigint) ELSE 0 END
    /* end if */)
ON CONFLICT (limiter, key) DO UPDATE
SET /* if fixed */window_start = CASE
        WHEN b.window_start < excluded.window_start THEN excluded.window_start
        WHEN b.used + $5::bigint <= b.lim THEN b.window_start
        ELSE b.window_start + b.win
    END,
    /* if calendar */window_start = excluded.window_start, win = excluded.win, lim = excluded.lim,
    /* end if */    used = CASE
        WHEN b.window_start >= excluded.window_start AND b.used + $5::bigint <= b.lim
        THEN b.used + least(excluded.granted, (b.lim - b.used) / $5::bigint) * $5::bigint
        ELSE excluded.used
    END,
    at = greatest(b.at, excluded.at),
    granted = CASE
        WHEN b.window_start >= excluded.window_start AND b.used + $5::bigint <= b.lim
        THEN least(excluded.granted, (b.lim - b.used) / $5::bigint)
        ELSE excluded.granted
    END
WHERE b.at <= excluded.at + $7::bigint
  AND /* if fixed */b.win = excluded.win AND b.lim = excluded.lim AND b.window_start % excluded.win = 0
  AND (b.window_start < excluded.window_start
    OR CASE WHEN b.used + $5::bigint <= b.lim THEN b.window_start ELSE b.window_start + b.win END
       <= greatest(b.at, excluded.at))
  /* if calendar */excluded.granted > 0 AND b.at < b.window_start + b.win
  AND (b.window_start + b.win <= excluded.window_start
    OR b.window_start = excluded.window_start AND b.win = excluded.win AND b.lim = excluded.lim
      AND b.used + $5::bigint <= b.lim)
  /* end if */
RETURNING b.granted, b.at, b.window_start, b.used, b.at
