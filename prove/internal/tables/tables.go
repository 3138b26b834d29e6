// Package tables reads from the limiter's tables what was charged, past every store.
package tables

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Querier is a connection or a pool of pgx.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// A token that was spent less than a step ago has not come back at all: what a bucket
// owes is then told in whole tokens, whenever it is asked. A bucket in limiter and one
// window that a key has in it count together, as no test has both.
const spent = `SELECT convert_from(key, 'UTF8'), greatest(0, (full_at - at + step - 1) / step) FROM limiter_token_buckets
WHERE limiter = $1 AND ($2::bytea[] IS NULL OR key = ANY ($2))
UNION ALL SELECT convert_from(key, 'UTF8'), used FROM limiter_fixed_windows
WHERE limiter = $1 AND ($2::bytea[] IS NULL OR key = ANY ($2))`

// Spent returns what keys of a limiter have spent; without names, of all its keys. That is tokens of a
// bucket that gains none while it is used, or units of the window of the row. A key without a row is
// left out.
func Spent(ctx context.Context, db Querier, limiter string, keys ...string) (map[string]int64, error) {
	var wanted [][]byte
	for _, k := range keys {
		wanted = append(wanted, []byte(k))
	}
	rows, err := db.Query(ctx, spent, limiter, wanted)
	if err != nil {
		return nil, err
	}
	found := map[string]int64{}
	var key string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&key, &n}, func() error {
		found[key] += n
		return nil
	})
	return found, err
}
