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
	"github.com/sqlimit/limiter/internal/rowlist"
)

// Table describes the table of one kind of policy.
type Table struct {
	Kind   limiter.PolicyKind
	Name   string // without a schema
	Prefix string // with which the names of its own SQL files begin
	// Columns are those of a row besides limiter, key and granted, in the order of Fields. The last
	// PolicyColumns of them hold the policy.
	Columns       []string
	PolicyColumns int
	// Lists are the columns of [limiter.Row].List: bigint[] in PostgreSQL, BLOB in SQLite. The lists of a row
	// are equally long. All other columns are 8-byte integers.
	Lists []string
	// Policy returns the policy that wrote a row, as far as the row tells. A row holds neither a calendar
	// nor a Hold.
	Policy func(row limiter.Row) limiter.Policy
	// Refills reports whether Period is the time in which one of Limit comes back.
	Refills bool
	// Share is SQL for the used share of a row's limit. {now} is the clock. For a list column a, {a n} is
	// number n, counted from 1, where n may be an expression. {a -1} is the last number, and {a #} is the
	// length. A number that the list does not have is NULL: see [Table.Render]. Share orders rows; other
	// numbers come from [limiter.Op.Apply].
	Share string
	// End is SQL for the instant at which a row's bucket is full, its window is over, or its last lease
	// ends. It names lists as Share does.
	End string
	// Fields appends pointers to the fields of a row: *int64, and a [rowlist.Part] for a list.
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

// listed matches what Share and End say of a list.
var listed = regexp.MustCompile(`\{(\w+) ([^{}]+)\}`)

// Render fills the lists into SQL of Share or End, for SQLite or PostgreSQL.
func (t *Table) Render(sql string, sqlite bool) string {
	return listed.ReplaceAllStringFunc(sql, func(mark string) string {
		found := listed.FindStringSubmatch(mark)
		list, n := found[1], found[2]
		last, err := strconv.Atoi(n)
		fromEnd := err == nil && last < 0
		switch {
		case n == "#" && sqlite:
			return "length(" + list + ") / 8"
		case n == "#":
			return "pg_catalog.cardinality(" + list + ")"
		case fromEnd && !sqlite:
			return fmt.Sprintf("%s[pg_catalog.cardinality(%[1]s) + %d]", list, last+1)
		case !sqlite:
			return fmt.Sprintf("%s[(%s)::integer]", list, n)
		}
		first, most := "8 * ("+n+") - 7", "8 * ("+n+")"
		if fromEnd {
			first, most = strconv.Itoa(8*last), strconv.Itoa(-8*last)
		}
		// SQLite converts hexadecimal digits only in JSON.
		return fmt.Sprintf("(CASE WHEN length(%s) >= %s THEN ('[0x' || hex(substr(%[1]s, %[3]s, 8)) || ']') ->> 0 END)", list, most, first)
	})
}

// All has the tables, in the order of their kinds.
var All = []*Table{
	{
		Kind:    limiter.KindBucket,
		Name:    "limiter_token_buckets",
		Prefix:  "bucket",
		Columns: []string{"full_at", "at", "step", "capacity"}, PolicyColumns: 2,
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
		Columns: []string{"window_start", "used", "at", "win", "lim"}, PolicyColumns: 2,
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
	{
		Kind:    limiter.KindInFlight,
		Name:    "limiter_leases",
		Prefix:  "lease",
		Columns: []string{"at", "ends", "ids", "lim"}, PolicyColumns: 1,
		Lists:  []string{"ends", "ids"},
		Policy: func(row limiter.Row) limiter.Policy { return limiter.InFlight{Limit: row.Limit, Hold: limiter.MaxHold} },
		Share:  "CASE WHEN coalesce({ends -1}, 0) > {now} THEN CAST({ends #} AS double precision) / CAST(lim AS double precision) ELSE 0 END",
		End:    "coalesce({ends -1}, 0)",
		Fields: func(to []any, row *limiter.Row) []any {
			return append(to, &row.At, rowlist.Part{Row: &row.List, Of: 2}, rowlist.Part{Row: &row.List, Index: 1, Of: 2}, &row.Limit)
		},
		Numbers: func(op *limiter.Op, _ int64) Numbers {
			return Numbers{Limit: op.Policy.(limiter.InFlight).Limit, Cost: op.Cost}
		},
	},
	{
		Kind:    limiter.KindSliding,
		Name:    "limiter_sliding_windows",
		Prefix:  "sliding",
		Columns: []string{"head", "at", "cum", "slice", "lim"}, PolicyColumns: 2,
		Lists: []string{"cum"},
		Policy: func(row limiter.Row) limiter.Policy {
			return limiter.SlidingWindow{Limit: row.Limit, Window: 16 * time.Duration(row.Period)}
		},
		Share: "CASE WHEN {cum 18} IS NULL OR ({now} - head) / slice >= 17 THEN 0 WHEN head > {now} THEN 1" +
			" ELSE CAST({cum 18} - {cum 1 + ({now} - head) / slice} AS double precision) / CAST(lim AS double precision) END",
		End: "CASE WHEN {cum 18} IS NULL THEN 0 ELSE head + 17 * slice END",
		Fields: func(to []any, row *limiter.Row) []any {
			return append(to, &row.Start, &row.At, rowlist.Part{Row: &row.List, Of: 1}, &row.Period, &row.Limit)
		},
		Numbers: func(op *limiter.Op, now int64) Numbers {
			p := op.Policy.(limiter.SlidingWindow)
			slice := int64(p.Slice())
			return Numbers{now - now%slice, slice, p.Limit, op.Cost}
		},
		Add: func(row *limiter.Row, cost int64) int64 {
			last := len(row.List) - 8
			sum := rowlist.Numbers(row.List[last:])[0] + cost
			row.List = row.List[:last] + rowlist.Of(sum)
			return sum
		},
	},
}
