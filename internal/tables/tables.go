// Package tables describes the tables that hold the rows of limits: one for each kind of policy. The
// SQL stores and the tests read it. Other modules read it through Tables of package migrations, which
// creates the tables.
package tables

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/sqlimit/limiter"
)

// Table describes the table of one kind of policy.
type Table struct {
	Kind   limiter.PolicyKind
	Name   string // without a schema
	Prefix string // with which the names of its own SQL files begin
	// Columns are those of a row besides limiter, key and granted, in the order of Fields. The last
	// [PolicyColumns] hold the policy.
	Columns []string
	// List is the column of [limiter.Row].List: bigint[] in PostgreSQL, BLOB in SQLite. It is empty if
	// the kind has none. All other columns are 8-byte integers.
	List string
	// Policy returns the policy that wrote a row, as far as the row tells: a calendar is not in it.
	Policy func(row limiter.Row) limiter.Policy
	// Refills reports whether Period is the time in which one of Limit comes back.
	Refills bool
	// Share is SQL for the used share of a row's limit. {now} is the clock, and {list 1} the first number of
	// the List, or NULL: see [Table.Render]. Share orders rows; other numbers come from [limiter.Op.Apply].
	Share string
	// End is SQL for the instant at which the bucket of a row is full, or its window is over, with {list 1} as
	// in Share.
	End string
	// Fields appends pointers to the fields of a row: *int64, and *string for a List.
	Fields func(to []any, row *limiter.Row) []any
	// Numbers returns what a statement says of op, whose clock says now.
	Numbers func(op *limiter.Op, now int64) Numbers
	// IsCalendar reports whether the application computes the window of a policy, so that statements for it
	// differ. It is nil if no policy of the kind is like that.
	IsCalendar func(p limiter.Policy) bool
	// Add adds a cost, which may be negative, to what a row has taken, and returns the sum. The cost is in
	// the unit of [Numbers].Cost. Add is nil if a take does more than add its cost. Then equal takes of a key
	// cannot be units of one statement.
	Add func(row *limiter.Row, cost int64) int64
}

// Numbers are what a statement says of an operation.
type Numbers struct {
	Start         int64 // of the window that the clock is in; 0 for other kinds
	Period, Limit int64 // the columns of the policy
	Cost          int64 // in the unit of [Table].Add
}

// listed matches a number of the List in SQL.
var listed = regexp.MustCompile(`\{list (\d+)\}`)

// Render fills the numbers of the List into SQL of Share or End, for SQLite or PostgreSQL.
func (t *Table) Render(sql string, sqlite bool) string {
	return listed.ReplaceAllStringFunc(sql, func(mark string) string {
		n, _ := strconv.Atoi(listed.FindStringSubmatch(mark)[1])
		if !sqlite {
			return fmt.Sprintf("%s[%d]", t.List, n)
		}
		// SQLite converts hexadecimal digits only in JSON.
		return fmt.Sprintf("(CASE WHEN length(%s) >= %d THEN ('[0x' || hex(substr(%[1]s, %[3]d, 8)) || ']') ->> 0 END)", t.List, 8*n, 8*n-7)
	})
}

// PolicyColumns is how many columns hold the policy: those of [limiter.Row].Period and Limit.
const PolicyColumns = 2

// All has the tables, in the order of their kinds.
var All = []*Table{
	{
		Kind:    limiter.KindBucket,
		Name:    "limiter_token_buckets",
		Prefix:  "bucket",
		Columns: []string{"full_at", "at", "step", "capacity"},
		Policy: func(row limiter.Row) limiter.Policy {
			return limiter.TokenBucket{Capacity: row.Limit, Refill: 1, Interval: time.Duration(row.Period)}
		},
		Refills: true,
		Share: "CASE WHEN full_at > {now} THEN CAST(full_at - {now} AS double precision)" +
			" / CAST(step AS double precision) / CAST(capacity AS double precision) ELSE 0 END",
		End: "full_at",
		Fields: func(to []any, row *limiter.Row) []any {
			return append(to, &row.FullAt, &row.At, &row.Period, &row.Limit)
		},
		Numbers: func(op *limiter.Op, _ int64) Numbers {
			p := op.Policy.(limiter.TokenBucket)
			step := int64(p.Step())
			return Numbers{Period: step, Limit: p.Capacity, Cost: op.Cost * step}
		},
		Add: func(row *limiter.Row, cost int64) int64 { row.FullAt += cost; return row.FullAt },
	},
	{
		Kind:    limiter.KindWindow,
		Name:    "limiter_fixed_windows",
		Prefix:  "window",
		Columns: []string{"window_start", "used", "at", "win", "lim"},
		Policy: func(row limiter.Row) limiter.Policy {
			return limiter.FixedWindow{Limit: row.Limit, Window: time.Duration(row.Period)}
		},
		Share: "CASE WHEN window_start > {now} - win THEN CAST(used AS double precision) / CAST(lim AS double precision) ELSE 0 END",
		// A row that was reset has no window that could still be running. A window that starts at 1970
		// has a count.
		End: "CASE WHEN window_start > 0 OR used > 0 THEN window_start + win ELSE 0 END",
		Fields: func(to []any, row *limiter.Row) []any {
			return append(to, &row.Start, &row.Used, &row.At, &row.Period, &row.Limit)
		},
		Numbers: func(op *limiter.Op, now int64) Numbers {
			if p, ok := op.Policy.(limiter.CalendarWindow); ok {
				from, to := p.Span(time.Unix(0, now))
				start := max(0, from.UnixNano())
				return Numbers{start, to.UnixNano() - start, p.Limit, op.Cost}
			}
			p := op.Policy.(limiter.FixedWindow)
			length := int64(p.Window)
			return Numbers{now - now%length, length, p.Limit, op.Cost}
		},
		IsCalendar: func(p limiter.Policy) bool {
			_, ok := p.(limiter.CalendarWindow)
			return ok
		},
		Add: func(row *limiter.Row, cost int64) int64 { row.Used += cost; return row.Used },
	},
}
