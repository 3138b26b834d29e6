package migrations_test

import (
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/rowlist"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

// viewCases are rows written around now, in hours, so that what they have left stays the same while
// the test runs. In each, the key is the number of the case.
func viewCases(now int64) []viewCase {
	const hour, most = int64(time.Hour), int64(1<<62 - 1) // the highest that the tables take
	const bucket, window, leases, sliding = "token bucket", "fixed window", "in flight", "sliding window"
	start := now - hour/2 // of a window of an hour that is under way
	return []viewCase{
		{name: "a full bucket", policy: bucket, row: []int64{now - hour, now - 2*hour, hour, 10}, remaining: 10},
		{name: "a bucket in the middle of a token", policy: bucket, row: []int64{now + hour*5/2, now, hour, 10}, remaining: 7, reset: now + hour*5/2},
		{name: "an empty bucket", policy: bucket, row: []int64{now + 10*hour, now, hour, 10}, reset: now + 10*hour},
		{name: "a bucket with bookings", policy: bucket, row: []int64{now + 15*hour, now, hour, 10}, reset: now + 15*hour},
		{name: "a bucket of a clock ahead", policy: bucket, row: []int64{now + 103*hour, now + 100*hour + hour/2, hour, 10}, remaining: 7, reset: now + hour*5/2},
		{name: "a bucket at the edge of the types", policy: bucket, row: []int64{most, now, most, most}, remaining: most - 1, reset: most},
		{name: "a bucket of fine steps", policy: bucket, row: []int64{most, now, 1, most}, remaining: -1, reset: most},

		{name: "a window that has ended", policy: window, row: []int64{start - hour, 10, start - hour, hour, 10}, remaining: 10},
		{name: "a window under way", policy: window, row: []int64{start, 4, start, hour, 10}, remaining: 6, reset: start + hour},
		{name: "a window that is used up", policy: window, row: []int64{start, 10, start, hour, 10}, reset: start + hour},
		{name: "a window with refusals counted", policy: window, row: []int64{start, 1 << 62, start, hour, 10}, reset: start + hour},
		{name: "a window ahead", policy: window, row: []int64{start + 2*hour, 4, start, hour, 10}, reset: start + 3*hour},
		{name: "a window of a clock ahead in the same window", policy: window, row: []int64{start, 4, start + hour - 1, hour, 10}, remaining: 6, reset: start + hour},
		{name: "a window of a clock far ahead", policy: window, row: []int64{start + 9*hour, 4, start + 9*hour, hour, 10}, reset: start + 10*hour},
		{name: "a window at the edge of the types", policy: window, row: []int64{1 << 61, 1, now, most, most}, reset: -1},

		{name: "no leases", policy: leases, row: []int64{1, 3}, remaining: 3},
		{name: "leases", policy: leases, row: []int64{1, 3}, list: []int64{now - hour, now + hour, now + 2*hour}, remaining: 1, reset: now + 2*hour},
		{name: "more leases than the limit", policy: leases, row: []int64{1, 3}, list: []int64{now + hour, now + hour, now + hour, now + 3*hour}, reset: now + 3*hour},
		{name: "leases of a clock far ahead", policy: leases, row: []int64{1, 3}, list: []int64{now + hour, now + 25*hour}, remaining: 2, reset: now + hour},
		{name: "leases that have ended", policy: leases, row: []int64{1, 3}, list: []int64{now - 2*hour, now - hour}, remaining: 3},

		{name: "a sliding window", policy: sliding, row: []int64{start, start, hour, 10}, list: sums(3, 0, 2, 1), remaining: 4, reset: start + 17*hour},
		{name: "a sliding window that counts some", policy: sliding, row: []int64{start - 14*hour, start - 14*hour, hour, 10}, list: sums(3, 2, 1, 1), remaining: 6, reset: start + 3*hour},
		{name: "a sliding window that nothing was counted in last", policy: sliding, row: []int64{start, start, hour, 10}, list: sums(3, 0), remaining: 7, reset: start + 16*hour},
		{name: "a sliding window of which nothing counts", policy: sliding, row: []int64{start - 17*hour, start - 17*hour, hour, 10}, list: sums(3, 2, 1, 1), remaining: 10},
		{name: "a sliding window that was refunded", policy: sliding, row: []int64{start, start, hour, 10}, list: sums(), remaining: 10},
		{name: "a sliding window that was reset", policy: sliding, row: []int64{0, 0, hour, 10}, remaining: 10},
		{name: "a sliding window in debt", policy: sliding, row: []int64{start, start, hour, 10}, list: sums(1 << 61), reset: start + 17*hour},
		{name: "a sliding window ahead", policy: sliding, row: []int64{start + 2*hour, start, hour, 10}, list: sums(1), reset: start + 19*hour},
		{name: "a sliding window that is blocked", policy: sliding, row: []int64{start + 2*hour, start, hour, 10}, list: sums(), reset: start + 2*hour},
		{name: "a sliding window of a clock far ahead", policy: sliding, row: []int64{start + 99*hour, start + 99*hour + 1, hour, 10}, list: sums(3, 1), remaining: 6, reset: start + 116*hour},
		{name: "a sliding window at the edge of the types", policy: sliding, row: []int64{most, most, most, most}, list: sums(1<<61, 1<<61), remaining: most - 1<<61 - 1<<61, reset: -1},
	}
}

// sums returns the sums of the counts of the newest slices.
func sums(counts ...int64) []int64 {
	all := make([]int64, 18-len(counts), 18)
	sum := int64(7) // of earlier slices
	for i := range all {
		all[i] = sum
	}
	for _, n := range counts {
		sum += n
		all = append(all, sum)
	}
	return all
}

// viewTables has the table of each policy, by the policy's name in the view.
var viewTables = map[string]*tables.Table{
	"token bucket": tables.All[0], "fixed window": tables.All[1], "in flight": tables.All[2], "sliding window": tables.All[3],
}

type viewCase struct {
	name, policy string
	row          []int64 // the numbers in the order of [tables.Table].Columns, so the limit is the last
	list         []int64 // ends of leases, or sums
	remaining    int64   // -1: whatever it is
	reset        int64   // 0: NULL; -1: whatever it is
}

func (d database) insertCase(key int, c viewCase) string {
	table, row := viewTables[c.policy], map[string]string{"key": d.key(key)}
	for _, column := range table.Columns {
		if slices.Contains(table.Lists, column) {
			row[column] = d.list(c.list...)
			continue
		}
		row[column], c.row = fmt.Sprint(c.row[0]), c.row[1:]
	}
	return d.insertRow(table.Name, row)
}

func TestView(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		d.up(t)
		cases := viewCases(time.Now().UnixNano())
		for i, c := range cases {
			run(t, d.DB, d.insertCase(i, c))
		}
		// One row at a time and all at once: an error in one row would hide all the others.
		for i, c := range cases {
			d.wantRemaining(t, i, c)
		}
		testenv.Equal(t, d.count(t, `SELECT count(*) FROM limiter_remaining WHERE remaining >= 0`), len(cases), "rows of the view")
	})
}

func (d database) wantRemaining(t *testing.T, key int, c viewCase) {
	t.Helper()
	epoch := "extract(epoch FROM resets_at)::float8"
	if d.dialect == migrations.SQLite {
		epoch = "unixepoch(resets_at, 'subsec')"
	}
	query := `SELECT limiter, policy, remaining, lim, ` + epoch + ` FROM limiter_remaining WHERE limiter = 'l' AND key = ` + d.key(key)
	var name, policy string
	var remaining, lim int64
	var reset sql.NullFloat64
	if err := d.QueryRowContext(t.Context(), query).Scan(&name, &policy, &remaining, &lim, &reset); err != nil {
		t.Errorf("%s: %v", c.name, err)
		return
	}
	testenv.Equal(t, [2]string{name, policy}, [2]string{"l", c.policy}, c.name, "limiter and policy")
	testenv.Equal(t, lim, c.row[len(c.row)-1], c.name, "lim")
	if remaining != c.remaining && c.remaining != -1 {
		t.Errorf("%s: remaining %d, want %d", c.name, remaining, c.remaining)
	}
	// A minute covers the duration of the test and the difference between two clocks.
	if c.reset != -1 && (reset.Valid != (c.reset != 0) || math.Abs(reset.Float64-float64(c.reset)/1e9) > 60) {
		t.Errorf("%s: resets_at %v, want %v", c.name, reset, time.Unix(0, c.reset))
	}
}

// row returns the columns of a row that is in order, without its key. Values are SQL.
func (d database) row(table *tables.Table) map[string]string {
	row := map[string]string{"limiter": "'l'", "granted": "1"}
	for _, column := range table.Columns {
		row[column] = "5"
	}
	for _, list := range table.Lists {
		row[list] = d.list()
	}
	return row
}

func (d database) list(numbers ...int64) string {
	if d.dialect == migrations.SQLite {
		return d.bytes(rowlist.Of(numbers...))
	}
	return "'{" + strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ",") + "}'::bigint[]"
}

func (d database) bytes(text string) string {
	if d.dialect == migrations.SQLite {
		return fmt.Sprintf("X'%x'", text)
	}
	return fmt.Sprintf(`'\x%x'`, text)
}

func (d database) key(number int) string { return d.bytes(fmt.Sprint(number)) }

// insert returns the INSERT of a valid row, with one column replaced.
func (d database) insert(table, column, value string, key int) string {
	return d.insertRow(table, map[string]string{"key": d.key(key), column: value})
}

// insertRow returns the INSERT of a valid row, with these columns replaced. One of them must be the key.
func (d database) insertRow(table string, columns map[string]string) string {
	row := d.row(tables.All[slices.IndexFunc(tables.All, func(t *tables.Table) bool { return t.Name == table })])
	maps.Copy(row, columns)
	names := slices.Sorted(maps.Keys(row))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = row[name]
	}
	return fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, strings.Join(names, ", "), strings.Join(values, ", "))
}

func (d database) rejects(t *testing.T, table, column, value string) {
	t.Helper()
	testenv.Equal(t, testenv.ErrorOf(d.ExecContext(t.Context(), d.insert(table, column, value, 0))) != nil, true, table, column, "refuses", value)
}

func TestTablesRejectValuesOutOfRange(t *testing.T) {
	t.Parallel()
	const (
		beyond  = "4611686018427387905" // 2^62 + 1
		above   = "4611686018427387904" // 2^62
		highest = "4611686018427387903"
		most    = "9223372036854775807"
	)
	onEach(t, func(t *testing.T, d database) {
		d.up(t)
		key := 0
		for _, table := range tables.All {
			d.rejects(t, table.Name, "key", "NULL")
			for column, value := range d.row(table) {
				var good, bad []string
				switch policy := table.Columns[len(table.Columns)-table.PolicyColumns:]; {
				case column == "limiter":
					good = []string{"''", "'a:b/c'"}
				case slices.Contains(policy, column):
					good, bad = []string{"1", highest}, []string{"0", "-1"}
				case column == "granted":
					good, bad = []string{"0", highest}, []string{"-1"}
				case column == "cum":
					good, bad = []string{value, d.list(make([]int64, 18)...)}, []string{d.list(5), d.list(make([]int64, 19)...)}
				case column == "ends": // as long as ids
					good, bad = []string{value}, []string{d.list(5)}
				case column == "ids":
					good = []string{value}
				case column == "used":
					good, bad = []string{"0", above}, []string{"-1", beyond, most}
				default: // instants
					good, bad = []string{"0", highest}, []string{"-1", beyond, most}
				}
				for _, value := range good {
					key++
					run(t, d.DB, d.insert(table.Name, column, value, key))
				}
				for _, value := range bad {
					key++
					statement, constraint := d.insert(table.Name, column, value, key), table.Name+"_check"
					if d.dialect == migrations.SQLite {
						constraint = table.Name + "_" + column + "_check"
					}
					if _, err := d.ExecContext(t.Context(), statement); err == nil || !strings.Contains(err.Error(), constraint) {
						t.Errorf("%s: error %v, want one that names %s", statement, err, constraint)
					}
				}
				d.rejects(t, table.Name, column, "NULL")
			}
		}
	})
}

func TestSQLiteColumnsRejectOtherTypes(t *testing.T) {
	t.Parallel()
	d := onSQLite(t)
	d.up(t)
	for _, table := range tables.All {
		for column := range d.row(table) {
			values := []string{"1.5", "'x'", "X'00'", "9223372036854775807 + 1"} // the last is a REAL
			switch {
			case column == "limiter":
				values = []string{"X'00'"}
			case slices.Contains(table.Lists, column):
				values[2] = "1"
			}
			for _, value := range values {
				d.rejects(t, table.Name, column, value)
			}
		}
		for _, value := range []string{"'text'", "1", "1.5"} {
			d.rejects(t, table.Name, "key", value)
		}
	}
}
