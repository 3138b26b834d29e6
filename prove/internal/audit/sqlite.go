package audit

import (
	"context"
	"database/sql"
	_ "embed" // for the triggers
	"errors"
	"fmt"
	"net/url"
	"strings"

	_ "modernc.org/sqlite" // the driver

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/prove/internal/history"
)

//go:embed sqlite.sql
var sqliteTriggers string

type sqliteLog struct{ db *sql.DB }

// SQLite adds the triggers to the migrated tables in the file at path, and returns their
// log, which has a connection of its own.
func SQLite(ctx context.Context, path string) (Log, error) {
	l, err := ReadSQLite(path)
	if err != nil {
		return nil, err
	}
	for _, t := range tables.All {
		of := strings.NewReplacer("TABLE_NAME", t.Name, "OLD_ROW", jsonRow(t, "OLD"), "NEW_ROW", jsonRow(t, "NEW"))
		if _, err := l.(*sqliteLog).db.ExecContext(ctx, of.Replace(sqliteTriggers)); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
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

// jsonRow is SQL for the JSON of a row of a trigger, which is OLD or NEW.
func jsonRow(t *tables.Table, row string) string {
	pairs := "'limiter', " + row + ".limiter, 'key', hex(" + row + ".key)"
	for _, column := range t.Columns {
		value := row + "." + column
		if column == t.List {
			value = "hex(" + value + ")"
		}
		pairs += ", '" + column + "', " + value
	}
	return "json_object(" + pairs + ")"
}

func (l *sqliteLog) Read(ctx context.Context) (log []history.Transition, left map[history.Key]limiter.Row, err error) {
	left = map[history.Key]limiter.Row{}
	err = l.query(ctx, `SELECT name, 0, old, new FROM audit ORDER BY seq`, func(rows *sql.Rows) (err error) {
		log, err = readLog(rows)
		return err
	})
	for _, t := range tables.All {
		if err == nil {
			err = l.query(ctx, rowtest.SQL{SQLite: true}.Select(t), func(rows *sql.Rows) error {
				return rowtest.Read(t, rows, func(name, key string, row limiter.Row) {
					left[history.Key{Kind: t.Kind, Name: name, Key: key}] = row
				})
			})
		}
	}
	return log, left, err
}

func (l *sqliteLog) query(ctx context.Context, query string, read func(*sql.Rows) error) error {
	rows, err := l.db.QueryContext(ctx, query)
	if err == nil {
		defer rows.Close()
		err = errors.Join(read(rows), rows.Err())
	}
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

func (l *sqliteLog) Clear(ctx context.Context) error {
	return l.change(ctx, func(tx *sql.Tx) error {
		for _, t := range tables.All {
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+t.Name); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "DELETE FROM audit") // also what the triggers wrote now
		return err
	})
}

func (l *sqliteLog) Seed(ctx context.Context, rows map[history.Key]limiter.Row) error {
	return l.change(ctx, func(tx *sql.Tx) error {
		var last int64
		if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM audit`).Scan(&last); err != nil {
			return err
		}
		for k, r := range rows {
			query, args := insert(rowtest.SQL{SQLite: true}, k, r)
			if _, err := tx.ExecContext(ctx, query, args...); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM audit WHERE seq > ?`, last)
		return err
	})
}

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
