package audit

import (
	"context"
	"database/sql"
	_ "embed" // for the triggers
	"errors"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite" // the driver

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/history"
)

//go:embed sqlite.sql
var sqliteTriggers string

// sqliteLog is the log of a SQLite database.
type sqliteLog struct{ db *sql.DB }

// SQLite adds the triggers to the migrated tables in the file at path, and returns their
// log, which has a connection of its own.
func SQLite(ctx context.Context, path string) (Log, error) {
	l, err := ReadSQLite(path)
	if err != nil {
		return nil, err
	}
	if _, err := l.(*sqliteLog).db.ExecContext(ctx, sqliteTriggers); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return l, nil
}

// ReadSQLite returns the log of a file that has the triggers.
func ReadSQLite(path string) (Log, error) {
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: "_pragma=busy_timeout(10000)&_txlock=immediate"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	db.SetMaxOpenConns(1)
	return &sqliteLog{db}, nil
}

func (l *sqliteLog) Read(ctx context.Context) ([]history.Transition, map[history.Key]limiter.Row, error) {
	log, err := l.readLog(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("audit: %w", err)
	}
	left, err := l.readRows(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("audit: %w", err)
	}
	return log, left, nil
}

func (l *sqliteLog) readLog(ctx context.Context) ([]history.Transition, error) {
	rows, err := l.db.QueryContext(ctx, `SELECT windows, limiter, key,
		coalesce(full_at, 0), coalesce(start, 0), coalesce(used, 0), coalesce(at, 0), coalesce(period, 0), coalesce(lim, 0),
		coalesce(new_full_at, 0), coalesce(new_start, 0), coalesce(new_used, 0), coalesce(new_at, 0), coalesce(new_period, 0), coalesce(new_lim, 0)
		FROM audit ORDER BY seq`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var log []history.Transition
	var key []byte
	for rows.Next() {
		var t history.Transition
		o, n := &t.Old, &t.New
		if err := rows.Scan(&t.Key.Window, &t.Key.Name, &key,
			&o.FullAt, &o.Start, &o.Used, &o.At, &o.Period, &o.Limit,
			&n.FullAt, &n.Start, &n.Used, &n.At, &n.Period, &n.Limit); err != nil {
			return nil, err
		}
		t.Key.Key = string(key)
		log = append(log, t)
	}
	return log, rows.Err()
}

func (l *sqliteLog) readRows(ctx context.Context) (map[history.Key]limiter.Row, error) {
	rows, err := l.db.QueryContext(ctx, left)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	left, err := leftIn(rows)
	return left, errors.Join(err, rows.Err())
}

func (l *sqliteLog) Clear(ctx context.Context) error {
	return l.change(ctx, func(tx *sql.Tx) error {
		for _, table := range []string{"limiter_token_buckets", "limiter_fixed_windows", "audit"} { // at last what the triggers wrote
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+table); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *sqliteLog) Seed(ctx context.Context, rows map[history.Key]limiter.Row) error {
	return l.change(ctx, func(tx *sql.Tx) error {
		var last int64
		if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM audit`).Scan(&last); err != nil {
			return err
		}
		for k, r := range rows {
			var err error
			if k.Window {
				_, err = tx.ExecContext(ctx, `INSERT INTO limiter_fixed_windows (limiter, key, window_start, used, at, win, lim, granted) VALUES (?, ?, ?, ?, ?, ?, ?, 1)`,
					k.Name, []byte(k.Key), r.Start, r.Used, r.At, r.Period, r.Limit)
			} else {
				_, err = tx.ExecContext(ctx, `INSERT INTO limiter_token_buckets (limiter, key, full_at, at, step, capacity, granted) VALUES (?, ?, ?, ?, ?, ?, 1)`,
					k.Name, []byte(k.Key), r.FullAt, r.At, r.Period, r.Limit)
			}
			if err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM audit WHERE seq > ?`, last)
		return err
	})
}

// change calls f in a transaction.
func (l *sqliteLog) change(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if err := f(tx); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

func (l *sqliteLog) Close() error { return l.db.Close() }
