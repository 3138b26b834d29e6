package sqlite

import (
	"database/sql/driver"
	"fmt"

	"github.com/sqlimit/limiter"
)

// table describes one of the two tables: its columns, and how its statements differ from those of
// the other. Its values are [buckets] and [windows].
type table struct {
	name    string
	kind    string   // the beginning of the names of its statements
	columns []string // of a row beside limiter, key and granted; the last two are the policy's
	end     string   // SQL: when a row is as if never used

	// fields returns the fields of a row, in the order of columns.
	fields func(row *limiter.Row) []*int64
	// numbers returns the two columns of op's policy, and op's cost in the unit of the state.
	numbers func(op *limiter.Op) (period, limit, cost int64)
	// takeStatement returns the statement that takes units of op at an instant, and appends its
	// arguments to those of the key.
	takeStatement func(op *limiter.Op, now, units int64, key []any) (statement, []any)
	// charged returns the field to which a take adds its cost.
	charged func(row *limiter.Row) *int64

	row, put            statement // read and write the row of a key
	before, page, sweep statement // of a sweep
}

// policyColumns is how many columns hold the policy: those of [limiter.Row].Period and Limit.
const policyColumns = 2

var buckets = newTable(table{
	name:    "limiter_token_buckets",
	kind:    "bucket",
	columns: []string{"full_at", "at", "step", "capacity"},
	end:     "full_at",
	fields: func(row *limiter.Row) []*int64 {
		return []*int64{&row.FullAt, &row.At, &row.Period, &row.Limit}
	},
	numbers: func(op *limiter.Op) (period, limit, cost int64) {
		p, step := bucketOf(op)
		return step, p.Capacity, op.Cost * step
	},
	takeStatement: func(op *limiter.Op, now, units int64, key []any) (statement, []any) {
		p, step := bucketOf(op)
		latest := now + p.Capacity*step + int64(op.MaxWait)
		return "bucket_take", append(key, now+units*op.Cost*step, now, step, p.Capacity, units, latest)
	},
	charged: func(row *limiter.Row) *int64 { return &row.FullAt },
})

var windows = newTable(table{
	name:    "limiter_fixed_windows",
	kind:    "window",
	columns: []string{"window_start", "used", "at", "win", "lim"},
	// A row that was reset has no window that could still be running. A window that starts at 1970
	// has a count.
	end: "iif(window_start > 0 OR used > 0, window_start + win, 0)",
	fields: func(row *limiter.Row) []*int64 {
		return []*int64{&row.Start, &row.Used, &row.At, &row.Period, &row.Limit}
	},
	numbers: func(op *limiter.Op) (period, limit, cost int64) {
		p, length := windowOf(op)
		return length, p.Limit, op.Cost
	},
	takeStatement: func(op *limiter.Op, now, units int64, key []any) (statement, []any) {
		p, length := windowOf(op)
		latestAt := now + op.Tolerance(limiter.Row{Period: length})
		args := append(key, now-now%length, units*op.Cost, now, length, p.Limit, units, latestAt)
		if p.CountRejected {
			return "window_count", args
		}
		return "window_take", append(args, now+int64(op.MaxWait))
	},
	charged: func(row *limiter.Row) *int64 { return &row.Used },
})

func newTable(t table) *table {
	of := func(file string) statement { return statement(t.kind + "_" + file) }
	t.row, t.put, t.before, t.page, t.sweep = of("row"), of("put"), of("before"), of("page"), of("sweep")
	return &t
}

// bucketOf returns op's policy, and the time of one token.
func bucketOf(op *limiter.Op) (p limiter.TokenBucket, step int64) {
	p = op.Policy.(limiter.TokenBucket)
	return p, int64(p.Step())
}

// windowOf returns op's policy, and the length of its windows.
func windowOf(op *limiter.Op) (p limiter.FixedWindow, length int64) {
	p = op.Policy.(limiter.FixedWindow)
	return p, int64(p.Window)
}

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

func countsRefusals(p limiter.Policy) bool {
	w, ok := p.(limiter.FixedWindow)
	return ok && w.CountRejected
}

// keyArgs returns the arguments that find the row of op, with capacity for those that follow.
func keyArgs(op *limiter.Op) []any { return append(make([]any, 0, 10), op.Name, []byte(op.Key)) }

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
