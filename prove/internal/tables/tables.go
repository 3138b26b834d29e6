// Package tables reads from the limiter's tables what was charged, past every store.
package tables

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/tables"
)

// Names are the names of all tables, separated by commas.
var Names = rowtest.SQL{}.Names()

// Rows reads the rows of all tables for which a condition holds: SQL that begins with WHERE, or is empty.
func Rows(ctx context.Context, db *pgx.Conn, where string, each func(kind limiter.PolicyKind, name, key string, row limiter.Row), args ...any) error {
	for _, t := range tables.All {
		rows, err := db.Query(ctx, rowtest.SQL{}.Select(t)+" "+where, args...)
		if err != nil {
			return err
		}
		err = rowtest.Read(t, rows, func(name, key string, row limiter.Row) { each(t.Kind, name, key, row) })
		if rows.Close(); err != nil {
			return err
		}
	}
	return nil
}
