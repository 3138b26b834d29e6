package migrations_test

import (
	"database/sql"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/rowlist"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

// viewCases are rows written around now, in hours, so that what they have left stays the same while
// the test runs. In each, the key is the number of the case.
func viewCases(now int64) []viewCase {
	const hour, most = int64(time.Hour), int64(1<<62 - 1) // the highest that the tables take
	start := now - hour/2                                 // of a window of an hour that is under way
	return []viewCase{
		{name: "a full bucket", bucket: []int64{now - hour, now - 2*hour, hour, 10}, remaining: 10},
		{name: "a bucket in the middle of a token", bucket: []int64{now + hour*5/2, now, hour, 10}, remaining: 7, reset: now + hour*5/2},
		{name: "an empty bucket", bucket: []int64{now + 10*hour, now, hour, 10}, remaining: 0, reset: now + 10*hour},
		{name: "a bucket with bookings", bucket: []int64{now + 15*hour, now, hour, 10}, remaining: 0, reset: now + 15*hour},
		{name: "a bucket of a clock ahead", bucket: []int64{now + 103*hour, now + 100*hour + hour/2, hour, 10}, remaining: 7, reset: now + hour*5/2},
		{name: "a bucket at the edge of the types", bucket: []int64{most, now, most, most}, remaining: most - 1, reset: most},
		{name: "a bucket of fine steps", bucket: []int64{most, now, 1, most}, remaining: -1, reset: most},

		{name: "a window that has ended", window: []int64{start - hour, hour, 10, 10, start - hour}, remaining: 10},
		{name: "a window under way", window: []int64{start, hour, 10, 4, start}, remaining: 6, reset: start + hour},
		{name: "a window that is used up", window: []int64{start, hour, 10, 10, start}, remaining: 0, reset: start + hour},
		{name: "a window with refusals counted", window: []int64{start, hour, 10, 1 << 62, start}, remaining: 0, reset: start + hour},
		{name: "a window ahead", window: []int64{start + 2*hour, hour, 10, 4, start}, remaining: 0, reset: start + 3*hour},
		{name: "a window of a clock ahead in the same window", window: []int64{start, hour, 10, 4, start + hour - 1}, remaining: 6, reset: start + hour},
		{name: "a window of a clock far ahead", window: []int64{start + 9*hour, hour, 10, 4, start + 9*hour}, remaining: 0, reset: start + 10*hour},
		{name: "a window at the edge of the types", window: []int64{1 << 61, most, most, 1, now}, remaining: 0, reset: -1},

		{name: "no leases", leases: []int64{}, remaining: 3},
		{name: "leases", leases: []int64{now - hour, now + hour, now + 2*hour}, remaining: 1, reset: now + 2*hour},
		{name: "more leases than the limit", leases: []int64{now + hour, now + hour, now + hour, now + 3*hour}, remaining: 0, reset: now + 3*hour},
		{name: "leases of a clock far ahead", leases: []int64{now + hour, now + 25*hour}, remaining: 2, reset: now + hour},
		{name: "leases that have ended", leases: []int64{now - 2*hour, now - hour}, remaining: 3},

		{name: "a sliding window", sliding: []int64{start, hour, 10, start}, sums: sums(3, 0, 2, 1), remaining: 4, reset: start + 17*hour},
		{name: "a sliding window that counts some", sliding: []int64{start - 14*hour, hour, 10, start - 14*hour}, sums: sums(3, 2, 1, 1), remaining: 6, reset: start + 3*hour},
		{name: "a sliding window that nothing was counted in last", sliding: []int64{start, hour, 10, start}, sums: sums(3, 0), remaining: 7, reset: start + 16*hour},
		{name: "a sliding window of which nothing counts", sliding: []int64{start - 17*hour, hour, 10, start - 17*hour}, sums: sums(3, 2, 1, 1), remaining: 10},
		{name: "a sliding window that was refunded", sliding: []int64{start, hour, 10, start}, sums: sums(), remaining: 10},
		{name: "a sliding window that was reset", sliding: []int64{0, hour, 10, 0}, remaining: 10},
		{name: "a sliding window in debt", sliding: []int64{start, hour, 10, start}, sums: sums(1 << 61), remaining: 0, reset: start + 17*hour},
		{name: "a sliding window ahead", sliding: []int64{start + 2*hour, hour, 10, start}, sums: sums(1), remaining: 0, reset: start + 19*hour},
		{name: "a sliding window that is blocked", sliding: []int64{start + 2*hour, hour, 10, start}, sums: sums(), remaining: 0, reset: start + 2*hour},
		{name: "a sliding window of a clock far ahead", sliding: []int64{start + 99*hour, hour, 10, start + 99*hour + 1}, sums: sums(3, 1), remaining: 6, reset: start + 116*hour},
		{name: "a sliding window at the edge of the types", sliding: []int64{most, most, most, most}, sums: sums(1<<61, 1<<61), remaining: most - 1<<61 - 1<<61, reset: -1},
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

type viewCase struct {
	name      string
	bucket    []int64 // full_at, at, step, capacity
	window    []int64 // window_start, win, lim, used, at
	leases    []int64 // ends; the limit is 3
	sliding   []int64 // head, slice, lim, at
	sums      []int64 // of a sliding window
	remaining int64   // -1: whatever it is
	reset     int64   // 0: NULL; -1: whatever it is
}

func TestView(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		d.up(t)
		cases := viewCases(time.Now().UnixNano())
		for i, c := range cases {
			key := fmt.Sprintf(`'\x%02x'`, i)
			if d.dialect == migrations.SQLite {
				key = fmt.Sprintf("X'%02x'", i)
			}
			statement := d.leasesOf(key, c.leases)
			if b := c.bucket; b != nil {
				statement = fmt.Sprintf(`INSERT INTO limiter_token_buckets (limiter, key, full_at, at, step, capacity, granted)
					VALUES ('l', %s, %d, %d, %d, %d, 1)`, key, b[0], b[1], b[2], b[3])
			} else if s := c.sliding; s != nil {
				statement = fmt.Sprintf(`INSERT INTO limiter_sliding_windows (limiter, key, head, slice, lim, at, granted, cum)
					VALUES ('l', %s, %d, %d, %d, %d, 1, %s)`, key, s[0], s[1], s[2], s[3], d.list(c.sums...))
			} else if w := c.window; w != nil {
				statement = fmt.Sprintf(`INSERT INTO limiter_fixed_windows (limiter, key, window_start, win, lim, used, at, granted)
					VALUES ('l', %s, %d, %d, %d, %d, %d, 1)`, key, w[0], w[1], w[2], w[3], w[4])
			}
			run(t, d.DB, statement)
		}
		// One row at a time and all at once: an error in one row would hide all the others.
		for i, c := range cases {
			d.wantRemaining(t, i, c)
		}
		var n int
		if err := d.QueryRowContext(t.Context(), `SELECT count(*) FROM limiter_remaining WHERE remaining >= 0`).Scan(&n); err != nil || n != len(cases) {
			t.Errorf("the view has %d rows (%v), want %d", n, err, len(cases))
		}
	})
}

// leasesOf returns the statement that adds a row with leases.
func (d database) leasesOf(key string, ends []int64) string {
	list := "'" + strings.NewReplacer("[", "{", "]", "}", " ", ",").Replace(fmt.Sprint(ends)) + "'"
	if d.dialect == migrations.SQLite {
		list = fmt.Sprintf("X'%x'", rowlist.Of(ends...))
	}
	return fmt.Sprintf(`INSERT INTO limiter_leases (limiter, key, at, lim, granted, ends, ids) VALUES ('l', %s, 1, 3, 1, %s, %[2]s)`, key, list)
}

func (d database) wantRemaining(t *testing.T, key int, c viewCase) {
	t.Helper()
	query := `SELECT limiter, policy, remaining, lim, extract(epoch FROM resets_at)::float8 FROM limiter_remaining WHERE limiter = 'l' AND key = $1`
	if d.dialect == migrations.SQLite {
		query = `SELECT limiter, policy, remaining, lim, unixepoch(resets_at, 'subsec') FROM limiter_remaining WHERE limiter = 'l' AND key = ?`
	}
	var name, policy string
	var remaining, lim int64
	var reset sql.NullFloat64
	if err := d.QueryRowContext(t.Context(), query, []byte{byte(key)}).Scan(&name, &policy, &remaining, &lim, &reset); err != nil {
		t.Errorf("%s: %v", c.name, err)
		return
	}
	wantPolicy, wantLimit := "token bucket", int64(0)
	switch {
	case c.bucket != nil:
		wantLimit = c.bucket[3]
	case c.leases != nil:
		wantPolicy, wantLimit = "in flight", 3
	case c.sliding != nil:
		wantPolicy, wantLimit = "sliding window", c.sliding[2]
	default:
		wantPolicy, wantLimit = "fixed window", c.window[2]
	}
	if name != "l" || policy != wantPolicy || lim != wantLimit {
		t.Errorf("%s: limiter %q, policy %q, lim %d; want l, %q, %d", c.name, name, policy, lim, wantPolicy, wantLimit)
	}
	if remaining != c.remaining && c.remaining != -1 {
		t.Errorf("%s: remaining %d, want %d", c.name, remaining, c.remaining)
	}
	// A minute covers the duration of the test and the difference between two clocks.
	if c.reset != -1 && (reset.Valid != (c.reset != 0) || math.Abs(reset.Float64-float64(c.reset)/1e9) > 60) {
		t.Errorf("%s: resets_at %v, want %v", c.name, reset, time.Unix(0, c.reset))
	}
}

// The statements that docs/operations.md shows can be pasted.
func TestStatementsThatShowKeys(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	must(t, err)
	statements := regexp.MustCompile(`(?m)^    SELECT .*limiter_remaining$`).FindAllString(string(page), -1)
	if len(statements) != 2 {
		t.Fatalf("docs/operations.md has the statements %q, want one for each database", statements)
	}
	onEach(t, func(t *testing.T, d database) {
		statement, ofAny, insert := statements[0], "encode(key, 'escape')", `INSERT INTO limiter_token_buckets (limiter, key, full_at, at, step, capacity, granted)
			VALUES ('l', $1, 0, 0, 1, 5, 1)`
		if d.dialect == migrations.SQLite {
			statement, ofAny = statements[1], "quote(key)"
		}
		d.up(t)
		add := func(key []byte) {
			t.Helper()
			must(t, testenv.ErrorOf(d.ExecContext(t.Context(), insert, key)))
		}
		const want = "änn@example.com"
		add([]byte(want))
		var name, key string
		var remaining, lim int64
		var reset sql.NullString
		err := d.QueryRowContext(t.Context(), statement).Scan(&name, &key, &remaining, &lim, &reset)
		if err != nil || name != "l" || key != want || remaining != 5 || lim != 5 {
			t.Errorf("%s: %q %q %d of %d, %v; want l, %q, 5 of 5", statement, name, key, remaining, lim, err, want)
		}
		add([]byte{0, 0xff, '\'', 0x80}) // such as a digest
		rows, err := d.QueryContext(t.Context(), `SELECT `+ofAny+` FROM limiter_remaining`)
		must(t, err)
		defer rows.Close()
		n := 0
		for rows.Next() {
			n++
			must(t, rows.Scan(&key))
		}
		if err := rows.Err(); err != nil || n != 2 {
			t.Errorf("%s: %d keys, %v; want 2", ofAny, n, err)
		}
	})
}
