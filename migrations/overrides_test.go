package migrations_test

import (
	"database/sql"
	"fmt"
	"math"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/migrations"
)

type override struct {
	kind                     string
	capacity, refill, period any
	expires                  any
}

func (d database) insertOverride(t *testing.T, key int, o override) error {
	t.Helper()
	_, err := d.ExecContext(t.Context(), `INSERT INTO limiter_overrides (limiter, key, kind, capacity, refill, period, expires_at)
		VALUES ('l', $1, $2, $3, $4, $5, $6)`, []byte(fmt.Sprint(key)), o.kind, o.capacity, o.refill, o.period, o.expires)
	return err
}

func TestOverridesTable(t *testing.T) {
	t.Parallel()
	const longest = int64(262_980 * time.Hour)
	edges := []int64{math.MinInt64, -1, 0, 1, 999, 1000, 15_999_999, 16_000_000, longest, longest + 1, 1 << 60, math.MaxInt64}
	accepts := func(p limiter.Policy) bool {
		_, err := limiter.New(memory.New(), "l", p)
		return err == nil
	}
	onEach(t, func(t *testing.T, d database) {
		d.up(t)
		key := 0
		accepted := map[string]int{}
		want := func(o override, good bool) {
			t.Helper()
			key++
			err := d.insertOverride(t, key, o)
			testenv.Equal(t, err == nil, good, "accepted:", o, err)
			if err == nil {
				accepted[o.kind]++
			}
		}
		for _, capacity := range edges {
			want(override{kind: "limit", capacity: capacity}, accepts(limiter.CalendarWindow{Limit: capacity, Period: limiter.Year}))
			for _, period := range edges {
				for _, refill := range edges {
					want(override{kind: "bucket", capacity: capacity, refill: refill, period: period},
						accepts(limiter.TokenBucket{Capacity: capacity, Refill: refill, Interval: time.Duration(period)}))
				}
				want(override{kind: "sliding", capacity: capacity, period: period},
					accepts(limiter.SlidingWindow{Limit: capacity, Window: time.Duration(period)}))
				for _, counting := range []bool{false, true} {
					kind := map[bool]string{false: "window", true: "window_counting"}[counting]
					want(override{kind: kind, capacity: capacity, period: period},
						accepts(limiter.FixedWindow{Limit: capacity, Window: time.Duration(period), CountRejected: counting}))
				}
			}
		}
		testenv.Equal(t, len(accepted), 5, "accepted", accepted)
		const minute = int64(time.Minute)
		for _, o := range []override{
			{kind: "bucket", capacity: 5, period: minute},
			{kind: "window", capacity: 5, refill: 5, period: minute},
			{kind: "window_counting", capacity: 5, refill: 5, period: minute},
			{kind: "sliding", capacity: 5, refill: 5, period: minute},
			{kind: "Bucket", capacity: 5, refill: 5, period: minute},
			{kind: "", capacity: 5, period: minute},
			{kind: "bucket", refill: 5, period: minute},
			{kind: "window", capacity: 5},
			{kind: "window_counting", capacity: 5},
			{kind: "bucket", capacity: 5, refill: 5},
			{kind: "limit"},
			{kind: "limit", capacity: 5, period: minute},
			{kind: "limit", capacity: 5, refill: 5},
			{kind: "window", capacity: 5, period: minute, expires: -1},
			{kind: "window", capacity: 5, period: minute, expires: int64(1 << 62)},
		} {
			want(o, false)
		}
		for _, expires := range []any{nil, 0, int64(1<<62 - 1)} {
			want(override{kind: "window", capacity: 5, period: minute, expires: expires}, true)
		}
		testenv.Equal(t, d.insertOverride(t, key, override{kind: "window", capacity: 5, period: minute}) != nil, true, "a second override for one key fails")
		run(t, d.DB, `INSERT INTO limiter_overrides (limiter, key, kind, capacity, period)
			SELECT 'L', key, kind, capacity, period FROM limiter_overrides WHERE kind = 'window'`)
	})
}

// The statements that docs/operations.md shows can be pasted. There is one for each database.
func TestStatementsOfTheOperationsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	must(t, err)
	find := func(pattern string) map[migrations.Dialect]string {
		t.Helper()
		list := regexp.MustCompile(pattern).FindAllString(string(page), -1)
		if len(list) != 2 {
			t.Fatalf("docs/operations.md has the statements %q, want one for each database", list)
		}
		return map[migrations.Dialect]string{migrations.Postgres: list[0], migrations.SQLite: list[1]}
	}
	inserts := find(`(?s)INSERT (?:OR REPLACE )?INTO limiter_overrides.*?;`)
	removals := find(`DELETE FROM limiter_overrides .*;`)
	lists := find(`(?m)^    SELECT .*limiter_remaining$`)
	ofAny := map[migrations.Dialect]string{migrations.Postgres: "encode(key, 'escape')", migrations.SQLite: "quote(key)"}
	onEach(t, func(t *testing.T, d database) {
		insert, remove, list := inserts[d.dialect], removals[d.dialect], lists[d.dialect]
		d.up(t)
		run(t, d.DB, insert, insert) // the second replaces the first
		var name, kind string
		var key []byte
		var capacity, period, expires int64
		var refill sql.NullInt64
		err := d.QueryRowContext(t.Context(), `SELECT limiter, key, kind, capacity, refill, period, expires_at FROM limiter_overrides`).
			Scan(&name, &key, &kind, &capacity, &refill, &period, &expires)
		if err != nil || name != "api" || string(key) != "customer-42" || kind != "bucket" || capacity != 1000 || refill.Int64 != 1000 || period != int64(time.Minute) {
			t.Errorf("%s: %q %q %q %d %v %d, %v", insert, name, key, kind, capacity, refill, period, err)
		}
		if in := time.Until(time.Unix(0, expires)); in < 23*time.Hour || in > 25*time.Hour {
			t.Errorf("the override ends in %v, want a day", in)
		}
		run(t, d.DB, remove)
		testenv.Equal(t, d.count(t, `SELECT count(*) FROM limiter_overrides`), 0, "overrides after", remove)

		const want, digest = "änn@example.com", "\x00\xff'\x80"
		add := func(key string) string {
			return d.insertRow("limiter_token_buckets", map[string]string{"key": d.bytes(key)})
		}
		run(t, d.DB, add(want))
		var shown string
		var remaining, lim int64
		var reset sql.NullString
		err = d.QueryRowContext(t.Context(), list).Scan(&name, &shown, &remaining, &lim, &reset)
		if err != nil || name != "l" || shown != want || remaining != 5 || lim != 5 {
			t.Errorf("%s: %q %q %d of %d, %v; want l, %q, 5 of 5", list, name, shown, remaining, lim, err, want)
		}
		run(t, d.DB, add(digest))
		testenv.Equal(t, d.count(t, `SELECT count(`+ofAny[d.dialect]+`) FROM limiter_remaining`), 2, ofAny[d.dialect])
	})
}
