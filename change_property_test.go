package limiter_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sqlimit/limiter"
)

// I5 under a changed policy: whatever policy wrote the row, a request that is
// refused passes after its RetryAfter if nobody else asks, and not a nanosecond
// earlier. (It may on a window behind bookings for windows of another length.)
func TestRetryAfterIsTrueAfterAPolicyChange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var was, p limiter.Policy
		bucket := rapid.Bool().Draw(t, "bucket")
		unit := time.Second
		if bucket {
			unit = 10 * time.Microsecond // of the order of a token
			was, p = drawBucket(t, "old"), drawBucket(t, "new")
		} else {
			was, p = drawWindow(t, "old"), drawWindow(t, "new")
		}
		c := &cell{t: t, now: start}
		for range rapid.IntRange(1, 4).Draw(t, "takes") {
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				c.do(limiter.Op{Kind: limiter.OpCharge, Policy: was, Cost: drawCost(t, 3*limitOf(was))})
			case 1:
				c.do(limiter.Op{Kind: limiter.OpBlock, Policy: was, Cost: rapid.Int64Range(1, 3*int64(unit)).Draw(t, "block")})
			default:
				c.take(was, drawCost(t, limitOf(was)), rapid.SampledFrom([]time.Duration{0, 0, 2 * unit}).Draw(t, "wait"))
			}
			c.now += rapid.Int64Range(0, 2*int64(unit)).Draw(t, "pause")
		}
		cost := drawCost(t, limitOf(p))
		l, err := limiter.New(cellStore{c}, "l", p, limiter.WithClock(func() time.Time { return time.Unix(0, c.now) }))
		if err != nil {
			t.Fatal(err)
		}
		maxWait := rapid.SampledFrom([]time.Duration{0, 0, unit / 1000, unit, 60 * unit}).Draw(t, "reach")
		upTo := maxWait == 0 && rapid.Bool().Draw(t, "up to")
		if upTo {
			cost = 1 // which the result is about
		}
		ask := func() limiter.Result {
			looked := ask(c, l, cost, true)
			var res limiter.Result
			var err error
			if upTo {
				res, err = l.AllowUpTo(t.Context(), "k", 5)
			} else {
				var r *limiter.Reservation
				r, err = l.Reserve(t.Context(), "k", cost, maxWait)
				res = r.Result
			}
			if err != nil {
				t.Fatal(err)
			}
			if maxWait == 0 && (looked.Allowed != res.Allowed || looked.RetryAfter != res.RetryAfter) {
				t.Fatalf("PeekN(%d) = %+v, and then the request: %+v", cost, looked, res)
			}
			return res
		}
		found := c.row
		r := ask()
		if r.Allowed {
			return
		}
		now, left := c.now, c.row
		if (bucket || found.Start <= c.now) && r.RetryAfter > 1 {
			c.now += int64(r.RetryAfter) - 1
			if early := ask(); early.Allowed {
				t.Fatalf("%+v on %+v: refused for %v, but passed 1 ns earlier", p, found, r.RetryAfter)
			}
		}
		c.now, c.row = now+int64(r.RetryAfter), left
		if late := ask(); !late.Allowed {
			t.Fatalf("%+v on %+v: refused for %v, and then again: %+v", p, found, r.RetryAfter, late)
		}
	})
}

// cellStore is the Store whose only row is a cell.
type cellStore struct{ *cell }

func (s cellStore) Do(_ context.Context, op limiter.Op) (limiter.State, error) {
	return s.do(op), nil
}

func drawWindow(t *rapid.T, label string) limiter.FixedWindow {
	return limiter.FixedWindow{
		Limit:  rapid.Int64Range(1, 9).Draw(t, label+" limit"),
		Window: time.Duration(rapid.SampledFrom([]int64{1, 2, 3, 7, 24, 1000}).Draw(t, label+" length")) * 100 * time.Millisecond,
	}
}
