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

// Querier is a connection or a pool of pgx.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Rows reads the rows of all tables for which a condition holds: SQL that begins with WHERE, or is empty.
func Rows(ctx context.Context, db Querier, where string, each func(kind limiter.PolicyKind, name, key string, row limiter.Row), args ...any) error {
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

// Spent returns what keys of a limiter have spent; without names, of all its keys. That is leases, tokens of
// a bucket that gains none while it is used, or units of the window of the row. A key without a row is left
// out.
//
// A token that was spent less than a step ago has not come back at all: what a bucket
// owes is then told in whole tokens, whenever it is asked. A bucket in limiter and one
// window that a key has in it count together, as no test has both.
func Spent(ctx context.Context, db Querier, name string, keys ...string) (map[string]int64, error) {
	found := map[string]int64{}
	err := OfKeys(ctx, db, name, keys, func(kind limiter.PolicyKind, key string, row limiter.Row) {
		found[key] += rowtest.Used(kind, row, row.At)
	})
	return found, err
}

// OfKeys reads the rows of keys of a limiter; without keys, of all its keys.
func OfKeys(ctx context.Context, db Querier, name string, keys []string, each func(kind limiter.PolicyKind, key string, row limiter.Row)) error {
	var wanted [][]byte
	for _, k := range keys {
		wanted = append(wanted, []byte(k))
	}
	return Rows(ctx, db, "WHERE limiter = $1 AND ($2::bytea[] IS NULL OR key = ANY ($2))",
		func(kind limiter.PolicyKind, _, key string, row limiter.Row) { each(kind, key, row) }, name, wanted)
}
