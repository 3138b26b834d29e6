package limiter_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sqlimit/limiter"
)

// start is the instant at which histories begin: 2033, aligned to a day.
const start = 86_400 * 23_148 * int64(time.Second)

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

func (c *cell) take(p limiter.Policy, cost int64, maxWait time.Duration) limiter.State {
	return c.do(limiter.Op{Kind: limiter.OpTake, Policy: p, Cost: cost, MaxWait: maxWait})
}

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

// I1, I14, I15: the bound holds over every pair of admissions, by the instants
// at which they may act, net of refunds and cancels, also while two policies
// alternate.
func TestTokenBucketAdmitsNoMoreThanItsBound(t *testing.T) {
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
							bookings = nil // what was refunded must not be canceled, too
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
				if err := bound(acts, tokens, step); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// I17: in every aligned window at most the limit is admitted, net of refunds and
// cancels, also while two limits alternate.
func TestFixedWindowAdmitsNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const length = 1_000_000
		a := rapid.Int64Range(1, 9).Draw(t, "limit")
		b := rapid.OneOf(rapid.Just(a), rapid.Int64Range(1, 9)).Draw(t, "other limit")
		admitted := map[int64]int64{}
		c := &cell{t: t, now: start}
		var bookings []booked
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			c.now += rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 2*length)).Draw(t, "pause")
			p := limiter.FixedWindow{Limit: rapid.SampledFrom([]int64{a, b}).Draw(t, "policy"), Window: length}
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0:
				n := rapid.Int64Range(1, 4).Draw(t, "refund")
				if c.do(limiter.Op{Kind: limiter.OpRefund, Policy: p, Cost: n}).Took {
					admitted[c.now/length] = max(0, admitted[c.now/length]-n)
					bookings = nil
				}
			case 1, 2:
				if len(bookings) == 0 {
					continue
				}
				i := len(bookings) - 1 - rapid.IntRange(0, min(2, len(bookings)-1)).Draw(t, "booking")
				op := bookings[i].cancel()
				bookings = slices.Delete(bookings, i, i+1)
				if c.do(op).Took {
					admitted[op.Act()/length] -= op.Cost
				}
			default:
				op := limiter.Op{
					Kind: limiter.OpTake, Policy: p, Cost: drawCost(t, p.Limit),
					MaxWait: time.Duration(rapid.Int64Range(0, 5*length).Draw(t, "wait")),
				}
				if s := c.do(op); s.Took {
					bookings = append(bookings, booked{op, s})
					w := booked{op, s}.cancel().Act() / length
					if admitted[w] += op.Cost; admitted[w] > max(a, b) {
						t.Fatalf("%d admitted in one window under limits %d and %d", admitted[w], a, b)
					}
				}
			}
		}
	})
}

// A reservation acts in the window that it is charged in, on the caller's clock, also while
// that clock is stepped back within the tolerance.
func TestFixedWindowActsInTheWindowThatItIsChargedIn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.Int64Range(int64(time.Millisecond), int64(3*time.Second)).Draw(t, "window")
		p := limiter.FixedWindow{Limit: rapid.Int64Range(1, 9).Draw(t, "limit"), Window: time.Duration(length)}
		admitted := map[int64]int64{}
		c := &cell{t: t, now: start}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			c.now += rapid.OneOf(
				rapid.Just(int64(0)), rapid.Int64Range(0, 2*length), rapid.Int64Range(-int64(limiter.ClockTolerance), 0),
			).Draw(t, "step")
			c.now = max(c.now, c.row.At-int64(limiter.ClockTolerance))
			cost := drawCost(t, p.Limit)
			s := c.take(p, cost, limiter.MaxReserve)
			act := booked{limiter.Op{Kind: limiter.OpTake, Policy: p, MaxWait: limiter.MaxReserve}, s}.cancel().Act()
			switch {
			case !s.Took || s.Now != c.now || act < c.now:
				t.Fatalf("a take of %d: %+v, may act at %d", cost, s, act)
			case act/length != s.Row.Start/length:
				t.Fatalf("a take of %d is charged in the window from %d, and acts at %d", cost, s.Row.Start, act)
			}
			if admitted[act/length] += cost; admitted[act/length] > p.Limit {
				t.Fatalf("%d of %d act in one window", admitted[act/length], p.Limit)
			}
		}
	})
}

// I4, I7: a key that is asked for more than it has, and looked at, any number of
// times, admits afterwards exactly what it would have admitted.
func TestApplyRefusalsAndLooksChangeNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var ps []limiter.Policy
		for i := range 2 {
			if rapid.Bool().Draw(t, "window") {
				ps = append(ps, limiter.FixedWindow{Limit: rapid.Int64Range(1, 9).Draw(t, "limit"), Window: 1_000_000})
			} else {
				ps = append(ps, drawBucket(t, fmt.Sprint("bucket ", i)))
			}
		}
		calm, busy := &cell{t: t, now: start}, &cell{t: t, now: start}
		p := ps[0]
		alternate := fmt.Sprintf("%T", ps[0]) == fmt.Sprintf("%T", ps[1])
		for range rapid.IntRange(1, 40).Draw(t, "takes") {
			for range rapid.IntRange(0, 4).Draw(t, "polls") {
				busy.now += rapid.Int64Range(0, 3_000).Draw(t, "pause")
				before := busy.row
				if looks := rapid.SampledFrom(ps).Draw(t, "policy of the look"); alternate && (before.Period == 0 || writtenBy(before, looks)) {
					busy.do(limiter.Op{Kind: limiter.OpLook, Policy: looks})
				}
				if busy.row != before {
					t.Fatalf("a look wrote %+v on %+v", busy.row, before)
				}
				if before.Period != 0 && !writtenBy(before, p) {
					continue // a refusal of another policy may convert the row
				}
				if s := busy.take(p, limitOf(p), 0); s.Took {
					busy.row = before // it was not a refusal: undo it
				} else if busy.row != before {
					t.Fatalf("a refusal wrote %+v on %+v", busy.row, before)
				}
			}
			calm.now = busy.now
			if alternate {
				p = rapid.SampledFrom(ps).Draw(t, "policy")
			}
			cost := drawCost(t, limitOf(p))
			if a, b := calm.take(p, cost, 0), busy.take(p, cost, 0); a != b {
				t.Fatalf("a take of %d: %+v, after polls %+v", cost, a, b)
			}
		}
	})
}

// I5: the RetryAfter of a refusal is tight, and idle time fills a bucket.
func TestLimiterRetryAfterIsTight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawSmall(t)
		now := time.Unix(0, int64(time.Second))
		store := &applyStore{rows: map[[3]string]limiter.Row{}}
		l, err := limiter.New(store, "l", p, limiter.WithClock(func() time.Time { return now }))
		if err != nil {
			t.Fatal(err)
		}
		reserve := func(n int64, wait time.Duration) *limiter.Reservation {
			r, err := l.Reserve(t.Context(), "k", n, wait)
			if err != nil {
				t.Fatalf("Reserve(%d, %v): %v", n, wait, err)
			}
			return r
		}
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			if now.UnixNano() > lastClock-2*int64(thirtyYears) {
				return // the longest policies have come to the end of time
			}
			now = now.Add(time.Duration(rapid.Int64Range(0, 100_000).Draw(t, "pause")))
			cost := drawCost(t, limitOf(p))
			wait := time.Duration(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 2_000_000)).Draw(t, "wait"))
			r := reserve(cost, wait)
			if r.Allowed {
				if r.Delay > wait {
					t.Fatalf("Reserve(%d, %v) delays by %v", cost, wait, r.Delay)
				}
				continue
			}
			now = now.Add(r.RetryAfter - 1)
			if early := reserve(cost, wait); early.Allowed || early.RetryAfter != 1 {
				t.Fatalf("Reserve(%d, %v) 1 ns before RetryAfter: %+v", cost, wait, early.Result)
			}
			now = now.Add(1)
			if due := reserve(cost, wait); !due.Allowed || due.Delay != wait {
				t.Fatalf("Reserve(%d, %v) after RetryAfter: %+v, Delay %v", cost, wait, due.Result, due.Delay)
			}
		}
		res, err := l.Peek(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(res.ResetAfter)
		if r := reserve(limitOf(p), 0); !r.Allowed {
			t.Fatalf("after ResetAfter all of it is refused: %+v", r.Result)
		}
	})
}
