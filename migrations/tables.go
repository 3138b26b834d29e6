package migrations

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowlist"
	"github.com/sqlimit/limiter/internal/tables"
)

// Table describes the table that holds the state of keys under one kind of policy. It is for tools that
// read the tables.
type Table struct {
	Kind limiter.PolicyKind
	Name string // without the schema
	// Label is the kind in one word, such as bucket.
	Label string
	// Columns are those of the state and the policy. The columns limiter and key find a row.
	Columns []string

	table *tables.Table
}

// Tables returns the tables, in the order of their kinds.
func Tables() (all []Table) {
	for _, t := range tables.All {
		all = append(all, Table{t.Kind, t.Name, t.Prefix, t.Columns, t})
	}
	return all
}

// Fields returns where database/sql scans Columns, so that they become row. A list of numbers is a BLOB in
// SQLite. In PostgreSQL it is a bigint[], which the driver must return as text, as pgx does.
func (t Table) Fields(row *limiter.Row) []any {
	fields := t.table.Fields(nil, row)
	for i, field := range fields {
		if list, ok := field.(rowlist.Part); ok {
			fields[i] = listField{list}
		}
	}
	return fields
}

// listField is a list that database/sql scans.
type listField struct{ rowlist.Part }

// Scan implements [database/sql.Scanner].
func (l listField) Scan(from any) error {
	switch from := from.(type) {
	case []byte:
		l.Set(string(from))
		return nil
	case string:
		inner, begins := strings.CutPrefix(from, "{")
		inner, ends := strings.CutSuffix(inner, "}")
		var numbers []int64
		if err := json.Unmarshal([]byte("["+inner+"]"), &numbers); err == nil && begins && ends {
			l.Set(rowlist.Of(numbers...))
			return nil
		}
	}
	return fmt.Errorf("%w: migrations: a list of numbers is %T %v", limiter.ErrMisconfigured, from, from)
}

// Policy returns the policy that wrote the row, as far as the row tells. It does not tell whether a
// bucket's rate was 1 per second or 60 per minute, nor whether a window counts refused requests, nor how long
// requests in flight may hold their places.
func (t Table) Policy(row limiter.Row) limiter.Policy { return t.table.Policy(row) }

// Used returns the used part of the limit, given the Result of a look at the row. It is above the limit
// if the key is in debt, has reservations, or is blocked.
func (t Table) Used(row limiter.Row, res limiter.Result) int64 {
	if t.table.Refills {
		return (int64(res.ResetAfter) + row.Period - 1) / row.Period
	}
	return res.Used
}

// Share returns an SQL expression for about the used share of a row's limit. The expression now is the
// clock, in nanoseconds since 1970.
func (t Table) Share(d Dialect, now string) string {
	return t.table.Render(strings.ReplaceAll(t.table.Share, "{now}", now), d == SQLite)
}

// Unused returns an SQL expression for the instant from which a row means an unused key: see
// [limiter.Row.Expired].
func (t Table) Unused(d Dialect) string {
	end := t.table.Render(t.table.End, d == SQLite)
	return "CASE WHEN " + end + " > at THEN " + end + " ELSE at END"
}
