package sqlite

import (
	"database/sql/driver"
	"fmt"

	"github.com/sqlimit/limiter"
)

// table holds the statements for one kind of policy, with their arguments and columns.
type table struct {
	row, put    statement // read and write the row of a key
	before      statement // reads keys, for a sweep
	page, sweep statement
	scan        func(columns []driver.Value, r *limiter.Row) error
	append      func(args []any, r *limiter.Row) []any // to the limiter and the key, for put
}

var buckets = &table{
	row: "bucket_row", put: "bucket_put", before: "bucket_before", page: "bucket_page", sweep: "bucket_sweep",
	scan: func(columns []driver.Value, r *limiter.Row) error {
		return scan(columns, &r.FullAt, &r.At, &r.Period, &r.Limit)
	},
	append: func(args []any, r *limiter.Row) []any {
		return append(args, r.FullAt, r.At, r.Period, r.Limit)
	},
}

var windows = &table{
	row: "window_row", put: "window_put", before: "window_before", page: "window_page", sweep: "window_sweep",
	scan: func(columns []driver.Value, r *limiter.Row) error {
		return scan(columns, &r.Start, &r.Used, &r.At, &r.Period, &r.Limit)
	},
	append: func(args []any, r *limiter.Row) []any {
		return append(args, r.Start, r.Used, r.At, r.Period, r.Limit)
	},
}

// find returns the arguments that find the row of op, with capacity for what put appends.
func find(op limiter.Op) []any { return append(make([]any, 0, 7), op.Name, []byte(op.Key)) }

// tableOf returns the table for a kind of policy.
func tableOf(p limiter.Policy) (*table, error) {
	switch p.(type) {
	case limiter.TokenBucket:
		return buckets, nil
	case limiter.FixedWindow:
		return windows, nil
	}
	return nil, unsupported(p)
}

// scan reads columns that are integers.
func scan(columns []driver.Value, dest ...*int64) error {
	if len(columns) != len(dest) {
		return fmt.Errorf("%w: a row of %d columns, want %d", limiter.ErrMisconfigured, len(columns), len(dest))
	}
	for i, d := range dest {
		n, ok := columns[i].(int64)
		if !ok {
			return fmt.Errorf("%w: a column is not an integer: %s", limiter.ErrMisconfigured, migrateTables)
		}
		*d = n
	}
	return nil
}
