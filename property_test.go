package limiter_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sqlimit/limiter"
)

// lastClock is the last instant that a clock may say.
const lastClock = 1<<62 - 1<<60 - int64(limiter.MaxReserve) - int64(time.Second)

// cell is one key: a row, and the clock.
type cell struct {
	t   *rapid.T
	row limiter.Row
	now int64
}

// do applies op and checks what holds of every row.
func (c *cell) do(op limiter.Op) limiter.State {
	before := c.row
	next, state := op.Apply(c.row, c.now)
	if again, same := op.Apply(before, c.now); again != next || same != state {
		c.t.Fatalf("%+v at %d on %+v is not a pure function", op, c.now, before)
	}
	for _, row := range []limiter.Row{next, state.Row} {
		for name, v := range map[string]int64{
			"FullAt": row.FullAt, "Start": row.Start, "Used": row.Used, "At": row.At, "Period": row.Period, "Limit": row.Limit,
		} {
			if v < 0 || v > 1<<62 {
				c.t.Fatalf("%+v at %d on %+v: %s is %d", op, c.now, before, name, v)
			}
		}
	}
	c.row = next
	return state
}

// Do makes a cell the Store of a Limiter that uses one key.
func (c *cell) Do(_ context.Context, op limiter.Op) (limiter.State, error) { return c.do(op), nil }

// booked is a take that passed, as it can be canceled.
type booked struct {
	op    limiter.Op
	state limiter.State
}

// cancel returns the operation that takes the booking back.
func (b booked) cancel() limiter.Op {
	op := b.op
	op.Kind, op.Booked = limiter.OpCancel, b.state
	return op
}

func drawBucket(t *rapid.T, label string) limiter.TokenBucket {
	return limiter.TokenBucket{
		Capacity: rapid.Int64Range(1, 9).Draw(t, label+" capacity"),
		Refill:   rapid.Int64Range(1, 7).Draw(t, label+" refill"),
		Interval: time.Duration(rapid.Int64Range(7_000, 30_000).Draw(t, label+" interval")),
	}
}

// drawHostileBucket draws a valid bucket near the bounds of its numbers.
func drawHostileBucket(t *rapid.T, label string) limiter.TokenBucket {
	step := rapid.OneOf(
		rapid.Int64Range(1000, 1001), rapid.Int64Range(1000, int64(thirtyYears)),
		rapid.Int64Range(int64(thirtyYears)-1, int64(thirtyYears)), rapid.Just(int64(1)<<40),
	).Draw(t, label+" step")
	most := int64(thirtyYears) / step
	capacity := rapid.OneOf(rapid.Int64Range(1, most), rapid.Just(most), rapid.Int64Range(1, min(2, most))).Draw(t, label+" capacity")
	return limiter.TokenBucket{Capacity: capacity, Refill: 1, Interval: time.Duration(step)}
}

// drawCost draws a cost of 1 to limit, often an extreme one.
func drawCost(t *rapid.T, limit int64) int64 {
	return rapid.OneOf(rapid.Int64Range(1, limit), rapid.Just(int64(1)), rapid.Just(limit)).Draw(t, "cost")
}

// act is cost that was admitted to act at an instant; a refund is below 0.
type act struct{ at, cost int64 }

// bound reports whether more than tokens + t/step was admitted in any stretch.
func bound(acts []act, tokens, step int64) error {
	acts = slices.Clone(acts)
	slices.SortStableFunc(acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
	lowest, sum := int64(math.MaxInt64), int64(0)
	for i, a := range acts {
		at := a.at - acts[0].at
		if a.cost > 0 {
			lowest = min(lowest, sum*step-at)
		}
		sum += a.cost
		if a.cost > 0 && sum*step-at-lowest > tokens*step {
			return fmt.Errorf("more than %d + t/%v in a stretch that ends with act %d of %v", tokens, time.Duration(step), i, acts)
		}
	}
	return nil
}

// The bound holds over every pair of admissions, by the instants at which they may act, less refunds and
// cancels, also while policies alternate.
func TestBucketBound(t *testing.T) {
	t.Parallel()
	for _, policies := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("%d policies", policies), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				var ps []limiter.TokenBucket
				tokens, step := int64(0), int64(math.MaxInt64)
				for i := range policies {
					p := drawBucket(t, fmt.Sprint("bucket ", i))
					ps = append(ps, p)
					tokens, step = max(tokens, p.Capacity), min(step, int64(p.Step()))
				}
				c := &cell{t: t, now: start}
				var acts []act
				var bookings []booked
				for range rapid.IntRange(1, 60).Draw(t, "operations") {
					c.now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 3*step)).Draw(t, "pause")
					p := rapid.SampledFrom(ps).Draw(t, "policy")
					switch rapid.IntRange(0, 9).Draw(t, "kind") {
					case 0:
						n := rapid.Int64Range(1, 4).Draw(t, "refund")
						if c.do(limiter.Op{Kind: limiter.OpRefund, Policy: p, Cost: n}).Took {
							acts = append(acts, act{c.now, -n})
							bookings = nil // a caller must not cancel what it refunded
						}
					case 1, 2:
						if len(bookings) == 0 {
							continue
						}
						i := len(bookings) - 1 - rapid.IntRange(0, min(2, len(bookings)-1)).Draw(t, "booking")
						b := bookings[i]
						bookings = slices.Delete(bookings, i, i+1)
						if c.do(b.cancel()).Took {
							gone := len(acts) - 1 // the latest that is equal, because of refunds in between
							for acts[gone] != (act{b.cancel().Act(), b.op.Cost}) {
								gone--
							}
							acts = slices.Delete(acts, gone, gone+1)
						}
					case 3:
						c.do(limiter.Op{Kind: limiter.OpLook, Policy: p, Cost: rapid.Int64Range(0, p.Capacity).Draw(t, "cost")})
					default:
						wait := time.Duration(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 20*step)).Draw(t, "wait"))
						op := limiter.Op{Kind: limiter.OpTake, Policy: p, Cost: drawCost(t, p.Capacity), MaxWait: wait}
						if s := c.do(op); s.Took {
							b := booked{op, s}
							bookings = append(bookings, b)
							acts = append(acts, act{b.cancel().Act(), op.Cost})
						}
					}
				}
				must(t, bound(acts, tokens, step))
			})
		})
	}
}

// A refused request passes after its RetryAfter if no other request comes meanwhile, and 1 ns earlier it
// does not. The row may be of another policy. A window that follows bookings of windows of another length
// may pass earlier.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var was, p limiter.Policy
		bucket := rapid.Bool().Draw(t, "bucket")
		unit := time.Second
		switch {
		case !bucket:
			was, p = drawWindow(t, "old"), drawWindow(t, "new")
		case rapid.IntRange(0, 3).Draw(t, "hostile") == 0:
			was = drawHostileBucket(t, "old")
			p = was
		default:
			unit = 10 * time.Microsecond // of the order of a token
			was, p = drawBucket(t, "old"), drawBucket(t, "new")
		}
		c := &cell{t: t, now: start}
		for range rapid.IntRange(1, 4).Draw(t, "takes") {
			op := limiter.Op{Kind: limiter.OpTake, Policy: was, Cost: drawCost(t, limitOf(was))}
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				op.Kind, op.Cost = limiter.OpCharge, drawCost(t, min(3*limitOf(was), int64(thirtyYears)/spanOf(was)))
			case 1:
				op.Kind, op.Cost = limiter.OpBlock, rapid.Int64Range(1, 3*int64(unit)).Draw(t, "block")
			default:
				op.MaxWait = rapid.SampledFrom([]time.Duration{0, 0, 2 * unit}).Draw(t, "wait")
			}
			c.do(op)
			c.now += rapid.Int64Range(0, 2*int64(unit)).Draw(t, "pause")
		}
		cost := drawCost(t, limitOf(p))
		l, err := limiter.New(c, "l", p, limiter.WithClock(func() time.Time { return time.Unix(0, c.now) }))
		must(t, err)
		maxWait := rapid.SampledFrom([]time.Duration{0, 0, unit / 1000, unit, 60 * unit}).Draw(t, "reach")
		upTo := maxWait == 0 && rapid.Bool().Draw(t, "up to")
		if upTo {
			cost = 1 // because the result of AllowUpTo is about a cost of 1
		}
		ask := func() limiter.Result {
			looked, err := l.PeekN(t.Context(), "k", cost)
			must(t, err)
			var res limiter.Result
			if upTo {
				res, err = l.AllowUpTo(t.Context(), "k", 5)
			} else {
				var r *limiter.Reservation
				r, err = l.Reserve(t.Context(), "k", cost, maxWait)
				res = r.Result
				if r.Allowed && r.Delay > maxWait {
					t.Fatalf("Reserve(%d, %v) delays by %v", cost, maxWait, r.Delay)
				}
			}
			must(t, err)
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

func drawWindow(t *rapid.T, label string) limiter.FixedWindow {
	return limiter.FixedWindow{
		Limit:  rapid.Int64Range(1, 9).Draw(t, label+" limit"),
		Window: time.Duration(rapid.SampledFrom([]int64{1, 2, 3, 7, 24, 1000}).Draw(t, label+" length")) * 100 * time.Millisecond,
	}
}
