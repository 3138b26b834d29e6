package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // driver "sqlite"
)

// instants are the columns of tables with one instant a key.
const instants = `key text COLLATE "C" PRIMARY KEY, full_at timestamptz NOT NULL`

// upsertSQL is the leanest exact token bucket that PostgreSQL carries out in one statement: one
// instant a key, no conversion of it, two parameters beside the key. No row means refused.
const upsertSQL = `
INSERT INTO %s AS b (key, full_at) VALUES ($1, clock_timestamp() + $2::interval)
ON CONFLICT (key) DO UPDATE SET full_at = greatest(b.full_at, excluded.full_at - $2::interval) + $2::interval
WHERE greatest(b.full_at, excluded.full_at - $2::interval) + $2::interval <= excluded.full_at - $2::interval + $3::interval
RETURNING full_at`

// openUpserts opens what one writes without a library: the statement above, prepared, on a pool. For
// several limits it sends one for each, in a transaction that is rolled back if one refuses.
func openUpserts(limits int) opener {
	return func(ctx context.Context, b *backends, p policy) decider {
		statements := make([]string, limits)
		for i := range statements {
			statements[i] = fmt.Sprintf(upsertSQL, b.pg.table(ctx, fmt.Sprintf("upsert_%s_%d_of_%d", p.name, i, limits), instants))
		}
		type querier interface {
			QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
		}
		capacity := time.Duration(p.capacity) * p.step
		pass := func(ctx context.Context, db querier, key string) error {
			for _, statement := range statements {
				var fullAt time.Time
				if err := db.QueryRow(ctx, statement, key, p.step, capacity).Scan(&fullAt); err != nil {
					return err
				}
			}
			return nil
		}
		return single(func(ctx context.Context, key string) (bool, error) {
			var err error
			if limits == 1 {
				err = pass(ctx, b.pg, key)
			} else {
				err = pgx.BeginFunc(ctx, b.pg, func(tx pgx.Tx) error { return pass(ctx, tx, key) })
			}
			if errors.Is(err, pgx.ErrNoRows) {
				return false, nil
			}
			return err == nil, err
		})
	}
}

// openSelect is no limiter: it reads a row by its key, which is the least that a refusal costs. The
// first request for a key writes the row.
func openSelect(ctx context.Context, b *backends, p policy) decider {
	table := b.pg.table(ctx, "select_"+p.name, instants)
	read := fmt.Sprintf("SELECT full_at FROM %s WHERE key = $1", table)
	write := fmt.Sprintf("INSERT INTO %s (key, full_at) VALUES ($1, clock_timestamp())", table)
	return single(func(ctx context.Context, key string) (bool, error) {
		var fullAt time.Time
		err := b.pg.QueryRow(ctx, read, key).Scan(&fullAt)
		if !errors.Is(err, pgx.ErrNoRows) {
			return false, err
		}
		_, err = b.pg.Exec(ctx, write, key)
		return err == nil, err
	})
}

// rowsSQL carries out the takes of many keys: all of those of a key, or none. The order keeps two such
// statements from waiting for each other in a circle.
const rowsSQL = `
INSERT INTO %s AS b (key, full_at, spend, units)
SELECT u.key, clock.at + u.units * $3::interval, u.units * $3::interval, u.units
FROM unnest($1::text[], $2::bigint[]) AS u (key, units), (SELECT clock_timestamp() AS at) AS clock
ORDER BY u.key COLLATE "C"
ON CONFLICT (key) DO UPDATE
SET full_at = greatest(b.full_at, excluded.full_at - excluded.spend) + excluded.spend, spend = excluded.spend, units = excluded.units
WHERE greatest(b.full_at, excluded.full_at - excluded.spend) + excluded.spend <= excluded.full_at - excluded.spend + $4::interval
RETURNING units`

// openRows is no limiter that one could use, because nobody waits for a decision of their own. It is what
// PostgreSQL can do at best if requests come together in statements.
func openRows(ctx context.Context, b *backends, p policy) decider {
	table := b.pg.table(ctx, "rows_"+p.name, instants+", spend interval NOT NULL, units bigint NOT NULL")
	statement := fmt.Sprintf(rowsSQL, table)
	capacity := time.Duration(p.capacity) * p.step
	return func(ctx context.Context, keys []string) (int, error) {
		names, units := merged(keys)
		rows, err := b.pg.Query(ctx, statement, names, units, p.step, capacity)
		if err != nil {
			return 0, err
		}
		granted, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		var sum int64
		for _, n := range granted {
			sum += n
		}
		return int(sum), err
	}
}

// merged returns each key once, and how many times it was there.
func merged(keys []string) (names []string, units []int64) {
	at := make(map[string]int, len(keys))
	for _, key := range keys {
		i, ok := at[key]
		if !ok {
			i = len(names)
			at[key] = i
			names, units = append(names, key), append(units, 0)
		}
		units[i]++
	}
	return names, units
}

// sqliteUpsertSQL is the same for SQLite, in nanoseconds: ?2 is now, ?3 a token's time, ?4 the bucket's.
const sqliteUpsertSQL = `
INSERT INTO buckets AS b (key, full_at) VALUES (?1, ?2 + ?3)
ON CONFLICT (key) DO UPDATE SET full_at = max(b.full_at, ?2) + ?3
WHERE max(b.full_at, ?2) + ?3 <= ?2 + ?4
RETURNING full_at`

// openUpsertSQLite has the settings of sqlite.Open, and one connection, as SQLite has one writer.
func openUpsertSQLite(ctx context.Context, b *backends, p policy) decider {
	path := b.file("upsert-" + p.name + ".db")
	db := try(sql.Open("sqlite", "file:"+path+"?_busy_timeout=5000&_journal_mode=WAL&_synchronous=NORMAL&_txlock=immediate"))
	db.SetMaxOpenConns(1)
	b.atClose(db.Close)
	try(db.ExecContext(ctx, "CREATE TABLE buckets (key TEXT PRIMARY KEY, full_at INTEGER NOT NULL) STRICT, WITHOUT ROWID"))
	statement := try(db.PrepareContext(ctx, sqliteUpsertSQL))
	b.atClose(statement.Close)
	return single(func(_ context.Context, key string) (bool, error) {
		var fullAt int64
		// Without the caller's context, for which the driver would start goroutines.
		row := statement.QueryRowContext(context.Background(), key, time.Now().UnixNano(), int64(p.step), p.capacity*int64(p.step))
		err := row.Scan(&fullAt)
		if errors.Is(err, sql.ErrNoRows) {
			return false, nil
		}
		return err == nil, err
	})
}
