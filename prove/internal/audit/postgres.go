package audit

import (
	"context"
	_ "embed" // for the triggers
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/history"
)

//go:embed postgres.sql
var postgresTriggers string

// postgresLog is the log of a PostgreSQL database.
type postgresLog struct{ dsn string }

// Postgres adds the triggers to the migrated tables in the schema public, and returns
// their log. It needs a role that may do all that to them. The log connects anew for each
// call, so that it can be read after the server was killed.
func Postgres(ctx context.Context, dsn string) (Log, error) {
	l := &postgresLog{dsn}
	err := l.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, postgresTriggers)
		return err
	})
	return l, err
}

func (l *postgresLog) with(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, l.dsn)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := errors.Join(f(conn), conn.Close(context.WithoutCancel(ctx))); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

func (l *postgresLog) Read(ctx context.Context) (log []history.Transition, left map[history.Key]limiter.Row, err error) {
	err = l.with(ctx, func(conn *pgx.Conn) (err error) {
		if log, err = readLog(ctx, conn); err != nil {
			return err
		}
		left, err = readRows(ctx, conn)
		return err
	})
	return log, left, err
}

func readLog(ctx context.Context, conn *pgx.Conn) ([]history.Transition, error) {
	rows, err := conn.Query(ctx, `SELECT windows, limiter, key, units, old, new FROM audit ORDER BY seq`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var log []history.Transition
	var key []byte
	var from, to []int64
	for rows.Next() {
		var t history.Transition
		if err := rows.Scan(&t.Key.Window, &t.Key.Name, &key, &t.Units, &from, &to); err != nil {
			return nil, err
		}
		t.Key.Key, t.Old, t.New = string(key), rowOf(from), rowOf(to)
		log = append(log, t)
	}
	return log, rows.Err()
}

// rowOf is the row of the numbers that the triggers write.
func rowOf(n []int64) limiter.Row {
	return limiter.Row{FullAt: n[0], Start: n[1], Used: n[2], At: n[3], Period: n[4], Limit: n[5]}
}

func readRows(ctx context.Context, conn *pgx.Conn) (map[history.Key]limiter.Row, error) {
	rows, err := conn.Query(ctx, left)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	left, err := leftIn(rows)
	return left, errors.Join(err, rows.Err())
}

func (l *postgresLog) Clear(ctx context.Context) error {
	return l.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `TRUNCATE audit, limiter_token_buckets, limiter_fixed_windows`)
		return err
	})
}

func (l *postgresLog) Seed(ctx context.Context, rows map[history.Key]limiter.Row) error {
	return l.with(ctx, func(conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // after a commit it does nothing
		// Triggers are silent in the session that plays back what others have written.
		if _, err := tx.Exec(ctx, `SET LOCAL session_replication_role = replica`); err != nil {
			return err
		}
		var batch pgx.Batch
		for k, r := range rows {
			if k.Window {
				batch.Queue(`INSERT INTO limiter_fixed_windows (limiter, key, window_start, used, at, win, lim, granted) VALUES ($1, $2, $3, $4, $5, $6, $7, 1)`,
					k.Name, []byte(k.Key), r.Start, r.Used, r.At, r.Period, r.Limit)
			} else {
				batch.Queue(`INSERT INTO limiter_token_buckets (limiter, key, full_at, at, step, capacity, granted) VALUES ($1, $2, $3, $4, $5, $6, 1)`,
					k.Name, []byte(k.Key), r.FullAt, r.At, r.Period, r.Limit)
			}
		}
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}

func (l *postgresLog) Close() error { return nil }
