package sqlite

import (
	"database/sql/driver"
	"fmt"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowlist"
	"github.com/sqlimit/limiter/internal/tables"
)

// table is the table of one kind of policy, with the names of its statements.
type table struct {
	*tables.Table
	// take returns the statement that takes units of op at an instant, and appends its arguments to
	// those of the key. It is nil if [limiter.Op.Apply] decides every take of the kind.
	take func(op *limiter.Op, now, units int64, key []any) (statement, []any)

	row, put            statement // read and write the row of a key
	before, page, sweep statement // of a sweep
	check               statement // names all columns
}

// allTables has the tables, in the order of their kinds.
var allTables = func() (all []*table) {
	for _, t := range tables.All {
		of := func(file string) statement { return statement(t.Prefix + "_" + file) }
		all = append(all, &table{t, takes[t.Kind], of("row"), of("put"), of("before"), of("page"), of("sweep"), of("check_columns")})
	}
	return all
}()

// tableOf returns the table for a kind of policy.
func tableOf(p limiter.Policy) *table { return allTables[limiter.KindOf(p)-1] }

// takes has the function take of each table.
var takes = map[limiter.PolicyKind]func(op *limiter.Op, now, units int64, key []any) (statement, []any){
	limiter.KindBucket: func(op *limiter.Op, now, units int64, key []any) (statement, []any) {
		p := op.Policy.(limiter.TokenBucket)
		step := int64(p.Step())
		latest := now + p.Capacity*step + int64(op.MaxWait)
		return "bucket_take", append(key, now+units*op.Cost*step, now, step, p.Capacity, units, latest)
	},
	limiter.KindWindow: func(op *limiter.Op, now, units int64, key []any) (statement, []any) {
		n := tables.All[limiter.KindWindow-1].Numbers(op, now)
		latestAt := now + op.Tolerance(limiter.Row{At: n.Start, Period: n.Period})
		args := append(key, n.Start, units*n.Cost, now, n.Period, n.Limit, units, latestAt)
		if op.CountsRefusals() {
			return "window_count", args
		}
		return "window_take", args
	},
}

// keyArgs returns the arguments that find the row of op, with capacity for those that follow.
func keyArgs(op *limiter.Op) []any { return append(make([]any, 0, 10), op.Name, []byte(op.Key)) }

// scan reads columns into the fields of a row: see [tables.Table].
func scan(columns []driver.Value, fields ...any) error {
	if len(columns) != len(fields) {
		return fmt.Errorf("%w: a row of %d columns, want %d", limiter.ErrMisconfigured, len(columns), len(fields))
	}
	for i, field := range fields {
		ok := false
		switch to := field.(type) {
		case *int64:
			*to, ok = columns[i].(int64)
		case rowlist.Part:
			var list []byte
			list, ok = columns[i].([]byte)
			to.Set(string(list))
		}
		if !ok {
			return fmt.Errorf("%w: a column is of another type: %s", limiter.ErrMisconfigured, migrateTables)
		}
	}
	return nil
}

// values appends the values of a row's columns.
func (t *table) values(to []any, row *limiter.Row) []any {
	first := len(to)
	to = t.Fields(to, row)
	for i, field := range to[first:] {
		switch field := field.(type) {
		case *int64:
			to[first+i] = *field
		case rowlist.Part:
			to[first+i] = []byte(field.Get())
		}
	}
	return to
}
