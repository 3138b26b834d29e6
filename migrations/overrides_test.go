package migrations_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// override is a row of limiter_overrides.
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

func TestTheTableOfOverridesTakesThePoliciesThatNewTakes(t *testing.T) {
	t.Parallel()
	const longest = int64(262_980 * time.Hour)
	edges := []int64{math.MinInt64, -1, 0, 1, 999, 1000, longest, longest + 1, 1 << 60, math.MaxInt64}
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
			if (err == nil) != good {
				t.Errorf("%+v: %v, but New accepts it: %t", o, err, good)
			}
			if err == nil {
				accepted[o.kind]++
			}
		}
		for _, capacity := range edges {
			for _, period := range edges {
				for _, refill := range edges {
					want(override{kind: "bucket", capacity: capacity, refill: refill, period: period},
						accepts(limiter.TokenBucket{Capacity: capacity, Refill: refill, Interval: time.Duration(period)}))
				}
				for _, counting := range []bool{false, true} {
					kind := map[bool]string{false: "window", true: "window_counting"}[counting]
					want(override{kind: kind, capacity: capacity, period: period},
						accepts(limiter.FixedWindow{Limit: capacity, Window: time.Duration(period), CountRejected: counting}))
				}
			}
		}
		if len(accepted) != 3 {
			t.Errorf("accepted %v, want some of each kind", accepted)
		}
		const minute = int64(time.Minute)
		for _, o := range []override{
			{kind: "bucket", capacity: 5, period: minute},
			{kind: "window", capacity: 5, refill: 5, period: minute},
			{kind: "window_counting", capacity: 5, refill: 5, period: minute},
			{kind: "Bucket", capacity: 5, refill: 5, period: minute},
			{kind: "", capacity: 5, period: minute},
			{kind: "bucket", refill: 5, period: minute},
			{kind: "window", capacity: 5},
			{kind: "window", capacity: 5, period: minute, expires: -1},
			{kind: "window", capacity: 5, period: minute, expires: int64(1 << 62)},
		} {
			want(o, false)
		}
		for _, expires := range []any{nil, 0, int64(1<<62 - 1)} {
			want(override{kind: "window", capacity: 5, period: minute, expires: expires}, true)
		}
	})
}

func TestOneOverridePerLimiterAndKey(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		d.up(t)
		o := override{kind: "window", capacity: 5, period: int64(time.Minute)}
		for i, want := range []bool{true, false} {
			if err := d.insertOverride(t, 1, o); (err == nil) != want {
				t.Errorf("insert %d: %v", i, err)
			}
		}
		run(t, d.DB, `INSERT INTO limiter_overrides (limiter, key, kind, capacity, period) SELECT 'L', key, kind, capacity, period FROM limiter_overrides`)
	})
}
