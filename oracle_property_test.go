package limiter_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sqlimit/limiter"
)

// TestTokenBucket_equals_exact_fractions compares Op.Apply with the oracle, for
// everyday policies and for those at the bounds of int64 (I2, I9, I13), while
// policies alternate and clocks go back.
func TestTokenBucket_equals_exact_fractions(t *testing.T) {
	t.Parallel()
	for name, draw := range map[string]func(*rapid.T, string) limiter.TokenBucket{
		"everyday": drawBucket, "hostile": drawHostileBucket,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				ps := []limiter.TokenBucket{draw(t, "a"), draw(t, "b")}
				span := int64(max(ps[0].Step(), ps[1].Step()))
				// Far enough from 1970 for a full bucket to be full in the past.
				first := int64(thirtyYears) + 1
				c := &cell{t: t, now: rapid.OneOf(
					rapid.Just(start), rapid.Int64Range(first, lastClock), rapid.Just(lastClock),
				).Draw(t, "start")}
				o := &bucketOracle{}
				var bookings []booked
				for range rapid.IntRange(1, 40).Draw(t, "operations") {
					back := rapid.OneOf(
						rapid.Just(int64(0)), rapid.Just(int64(0)), rapid.Just(int64(0)),
						rapid.Int64Range(0, 3*int64(time.Second)), rapid.Int64Range(0, int64(thirtyYears)),
					).Draw(t, "back")
					ahead := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 2*span)).Draw(t, "ahead")
					c.now = max(first, min(lastClock, c.now+ahead)-back)
					p := rapid.SampledFrom(ps).Draw(t, "policy")
					switch rapid.IntRange(0, 9).Draw(t, "kind") {
					case 0:
						n := drawCost(t, 2*p.Capacity)
						got := c.do(limiter.Op{Kind: limiter.OpRefund, Policy: p, Cost: n})
						if want := o.refund(n, c.now); got.Took != want {
							t.Fatalf("Refund(%d): %v, want %v", n, got.Took, want)
						}
					case 1:
						if len(bookings) == 0 {
							continue
						}
						b := rapid.SampledFrom(bookings[max(0, len(bookings)-3):]).Draw(t, "booking")
						by := b.op.Policy.(limiter.TokenBucket)
						want := o.used && o.full().Cmp(rat(b.state.Row.FullAt)) == 0 &&
							o.policy.Step() == by.Step() && o.policy.Capacity == by.Capacity && c.now <= b.cancel().Act()
						if got := c.do(b.cancel()).Took; got != want {
							t.Fatalf("Cancel: %v, want %v", got, want)
						}
						if want {
							o.tokens = new(big.Rat).Add(o.tokens, rat(b.op.Cost))
						}
					case 2:
						s := c.do(limiter.Op{Kind: limiter.OpLook, Policy: p})
						checkLevel(t, p, s, func() *big.Rat { was := o.setBack(c.now); return was.under(p, c.now) }())
					case 3:
						if rapid.IntRange(0, 3).Draw(t, "reset") == 0 {
							c.do(limiter.Op{Kind: limiter.OpReset, Policy: p})
							*o = bucketOracle{}
						}
					default:
						cost := drawCost(t, p.Capacity)
						wait := time.Duration(rapid.OneOf(
							rapid.Just(int64(0)), rapid.Int64Range(0, int64(limiter.MaxReserve)),
							rapid.Just(int64(limiter.MaxReserve)), rapid.Int64Range(0, min(3*span, int64(limiter.MaxReserve))),
						).Draw(t, "wait"))
						op := limiter.Op{Kind: limiter.OpTake, Policy: p, Cost: cost, MaxWait: wait}
						s := c.do(op)
						want, delay := o.take(p, cost, wait, c.now)
						if s.Took != want {
							t.Fatalf("a take of %d by %+v within %v: %v, want %v, delay %v ns", cost, p, wait, s.Took, want, delay.FloatString(3))
						}
						if s.Took {
							b := booked{op, s}
							bookings = append(bookings, b)
							if got := rat(b.cancel().Act() - s.Now); got.Cmp(delay) != 0 {
								t.Fatalf("a take of %d: delay %v, want %v", cost, got, delay)
							}
						}
						checkLevel(t, p, s, o.under(p, c.now))
					}
				}
			})
		})
	}
}

// checkLevel checks that a reported row holds as many tokens as it should.
func checkLevel(t *rapid.T, p limiter.TokenBucket, s limiter.State, want *big.Rat) {
	reach := new(big.Rat).Mul(rat(p.Capacity), rat(int64(p.Step())))
	debt := rat(max(0, s.Row.FullAt-s.Now))
	if got := over(reach.Sub(reach, debt), p.Step()); got.Cmp(want) != 0 {
		t.Fatalf("%+v holds %v tokens of %+v, want %v", s, got.FloatString(9), p, want.FloatString(9))
	}
}

// TestFixedWindow_equals_counting compares Op.Apply with an oracle that counts
// in every window.
func TestFixedWindow_equals_counting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.OneOf(rapid.Int64Range(1, 9), rapid.Just(int64(1)<<60)).Draw(t, "limit")
		length := rapid.OneOf(
			rapid.Just(int64(time.Millisecond)), rapid.Int64Range(int64(time.Millisecond), int64(time.Minute)), rapid.Just(int64(thirtyYears)),
		).Draw(t, "window")
		p := limiter.FixedWindow{Limit: limit, Window: time.Duration(length), CountRejected: rapid.IntRange(0, 3).Draw(t, "counts") == 0}
		o := &windowOracle{policy: p, counts: map[int64]int64{}}
		c := &cell{t: t, now: rapid.OneOf(rapid.Just(start), rapid.Int64Range(1, lastClock)).Draw(t, "start")}
		var bookings []booked
		for range rapid.IntRange(1, 50).Draw(t, "operations") {
			c.now = min(lastClock, c.now+rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, length)).Draw(t, "pause"))
			current := c.now / length
			switch rapid.IntRange(0, 9).Draw(t, "kind") {
			case 0:
				n, of := drawCost(t, 2*limit), current
				op := limiter.Op{Kind: limiter.OpRefund, Policy: p, Cost: n}
				if len(bookings) > 0 && rapid.Bool().Draw(t, "of") {
					b := rapid.SampledFrom(bookings[max(0, len(bookings)-3):]).Draw(t, "booking")
					op.Booked.Row.Start, op.Booked.Row.Period = b.state.Row.Start, length
					of = b.state.Row.Start / length
				}
				if got, want := c.do(op).Took, o.refund(n, of, c.now); got != want {
					t.Fatalf("a refund of %d to window %d: %v, want %v", n, of, got, want)
				}
			case 1:
				if len(bookings) == 0 || p.CountRejected {
					continue
				}
				b := rapid.SampledFrom(bookings[max(0, len(bookings)-3):]).Draw(t, "booking")
				c.do(b.cancel())
				o.cancel(b.op.Cost, b.state.Row.Start/length, b.cancel().Act(), c.now)
			case 2:
				s := c.do(limiter.Op{Kind: limiter.OpLook, Policy: p})
				if w := max(current, o.last); s.Row.Start != w*length || s.Row.Used != min(o.counts[w], 1<<62) {
					t.Fatalf("a look: %+v, want window %d with %d", s, w, o.counts[w])
				}
			default:
				cost := drawCost(t, limit)
				if p.CountRejected && o.counts[current] > 1<<61 {
					continue // the oracle does not saturate
				}
				op := limiter.Op{Kind: limiter.OpTake, Policy: p, Cost: cost}
				if !p.CountRejected {
					op.MaxWait = time.Duration(rapid.Int64Range(0, min(3*length, int64(limiter.MaxReserve))).Draw(t, "wait"))
				}
				s := c.do(op)
				want, w := o.take(cost, op.MaxWait, c.now)
				if s.Took != want {
					t.Fatalf("a take of %d: %v, want %v", cost, s.Took, want)
				}
				if s.Took {
					bookings = append(bookings, booked{op, s})
					if s.Row.Start != w*length || s.Row.Used != o.counts[w] {
						t.Fatalf("a take of %d: %+v, want window %d with %d", cost, s, w, o.counts[w])
					}
				}
			}
		}
	})
}
