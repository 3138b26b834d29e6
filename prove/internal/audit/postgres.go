package audit

import (
	"context"
	_ "embed" // for the triggers
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/prove/internal/history"
	charged "github.com/sqlimit/limiter/prove/internal/tables"
)

//go:embed postgres.sql
var postgresTriggers string

type postgresLog struct{ dsn string }

// Postgres adds the triggers to the migrated tables in the schema public, and returns
// their log. It needs a role that may do all that to them. The log connects anew for each
// call, so that it can be read after the server was killed.
func Postgres(ctx context.Context, dsn string) (Log, error) {
	l := &postgresLog{dsn}
	err := l.with(ctx, func(conn *pgx.Conn) error {
		sql := postgresTriggers
		for _, t := range tables.All {
			sql += "CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON " + t.Name + " FOR EACH ROW EXECUTE FUNCTION audit();"
		}
		_, err := conn.Exec(ctx, sql)
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
	left = map[history.Key]limiter.Row{}
	err = l.with(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT name, units, old, new FROM audit ORDER BY seq`)
		if err != nil {
			return err
		}
		defer rows.Close()
		if log, err = readLog(rows); err != nil {
			return err
		}
		return charged.Rows(ctx, conn, "", func(kind limiter.PolicyKind, name, key string, row limiter.Row) {
			left[history.Key{Kind: kind, Name: name, Key: key}] = row
		})
	})
	return log, left, err
}

func (l *postgresLog) Clear(ctx context.Context) error {
	return l.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "TRUNCATE audit, "+rowtest.SQL{}.Names())
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
			query, args := insert(rowtest.SQL{}, k, r)
			batch.Queue(query, args...)
		}
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}

func (l *postgresLog) Close() error { return nil }
