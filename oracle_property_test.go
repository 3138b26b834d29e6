package limiter_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sqlimit/limiter"
)

// bucketHistory is a bucket and its oracle.
type bucketHistory struct {
	*cell
	oracle   bucketOracle
	bookings []booked
}

// TestTokenBucketEqualsExactFractions compares Op.Apply with the oracle, for
// everyday policies and for those at the bounds of int64 (I2, I9, I13), while
// policies alternate and clocks go back.
func TestTokenBucketEqualsExactFractions(t *testing.T) {
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
				h := &bucketHistory{cell: &cell{t: t, now: rapid.OneOf(
					rapid.Just(start), rapid.Int64Range(first, lastClock), rapid.Just(lastClock),
				).Draw(t, "start")}}
				for range rapid.IntRange(1, 40).Draw(t, "operations") {
					back := rapid.OneOf(
						rapid.Just(int64(0)), rapid.Just(int64(0)), rapid.Just(int64(0)),
						rapid.Int64Range(0, 3*int64(time.Second)), rapid.Int64Range(0, int64(thirtyYears)),
					).Draw(t, "back")
					ahead := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 2*span)).Draw(t, "ahead")
					h.now = max(first, min(lastClock, h.now+ahead)-back)
					h.operate(rapid.SampledFrom(ps).Draw(t, "policy"), span)
				}
			})
		})
	}
}

// operate does one operation on both sides and compares them.
func (h *bucketHistory) operate(p limiter.TokenBucket, span int64) {
	t, o := h.t, &h.oracle
	switch rapid.IntRange(0, 13).Draw(t, "kind") {
	case 0:
		n := drawCost(t, 2*p.Capacity)
		got := h.do(limiter.Op{Kind: limiter.OpRefund, Policy: p, Cost: n})
		if want := o.refund(n, h.now); got.Took != want {
			t.Fatalf("Refund(%d): %v, want %v", n, got.Took, want)
		}
	case 1:
		h.cancel()
	case 2:
		cost := rapid.Int64Range(0, p.Capacity).Draw(t, "cost")
		s := h.do(limiter.Op{Kind: limiter.OpLook, Policy: p, Cost: cost})
		checkLevel(t, p, s, o.look(p, cost, h.now))
	case 3:
		if rapid.IntRange(0, 3).Draw(t, "reset") == 0 {
			h.do(limiter.Op{Kind: limiter.OpReset, Policy: p})
			*o = bucketOracle{}
		}
	case 4, 5:
		n := rapid.OneOf(rapid.Int64Range(1, 3*p.Capacity), rapid.Int64Range(1, int64(thirtyYears/p.Step()))).Draw(t, "cost")
		n = min(n, int64(thirtyYears/p.Step()))
		s := h.do(limiter.Op{Kind: limiter.OpCharge, Policy: p, Cost: n})
		if want := o.charge(p, n, h.now); s.Took != want {
			t.Fatalf("a charge of %d to %+v: %v, want %v", n, p, s.Took, want)
		}
		checkLevel(t, p, s, o.under(p, h.now))
	case 6:
		n := drawCost(t, 2*p.Capacity)
		s := h.do(limiter.Op{Kind: limiter.OpTakeUpTo, Policy: p, Cost: n})
		if want := o.takeUpTo(p, n, h.now); s.Taken != want || s.Took != (want > 0) {
			t.Fatalf("a take of up to %d by %+v: %v of %d, want %d", n, p, s.Took, s.Taken, want)
		}
		checkLevel(t, p, s, o.under(p, h.now))
	case 7:
		d := drawBlock(t, span)
		if s := h.do(limiter.Op{Kind: limiter.OpBlock, Policy: p, Cost: d}); !s.Took {
			t.Fatalf("a block: %+v", s)
		}
		o.block(p, d, h.now)
		checkLevel(t, p, h.do(limiter.Op{Kind: limiter.OpLook, Policy: p}), o.under(p, h.now))
	default:
		h.book(p, span)
	}
}

// drawBlock draws how long a block lasts, often of the order of span.
func drawBlock(t *rapid.T, span int64) int64 {
	longest := int64(limiter.MaxBlock)
	return rapid.OneOf(
		rapid.Int64Range(1, min(5*span, longest)), rapid.Int64Range(1, longest), rapid.Just(longest),
	).Draw(t, "block")
}

func (h *bucketHistory) cancel() {
	if len(h.bookings) == 0 {
		return
	}
	o := &h.oracle
	b := rapid.SampledFrom(h.bookings[max(0, len(h.bookings)-3):]).Draw(h.t, "booking")
	by := b.op.Policy.(limiter.TokenBucket)
	want := o.used && o.full().Cmp(rat(b.state.Row.FullAt)) == 0 &&
		o.policy.Step() == by.Step() && o.policy.Capacity == by.Capacity && h.now <= b.cancel().Act()
	if got := h.do(b.cancel()).Took; got != want {
		h.t.Fatalf("Cancel: %v, want %v", got, want)
	}
	if want {
		o.tokens = new(big.Rat).Add(o.tokens, rat(b.op.Cost))
	}
}

func (h *bucketHistory) book(p limiter.TokenBucket, span int64) {
	t, o := h.t, &h.oracle
	cost := drawCost(t, p.Capacity)
	wait := time.Duration(rapid.OneOf(
		rapid.Just(int64(0)), rapid.Int64Range(0, int64(limiter.MaxReserve)),
		rapid.Just(int64(limiter.MaxReserve)), rapid.Int64Range(0, min(3*span, int64(limiter.MaxReserve))),
	).Draw(t, "wait"))
	op := limiter.Op{Kind: limiter.OpTake, Policy: p, Cost: cost, MaxWait: wait}
	s := h.do(op)
	want, delay := o.take(p, cost, wait, h.now)
	if s.Took != want {
		t.Fatalf("a take of %d by %+v within %v: %v, want %v, delay %v ns", cost, p, wait, s.Took, want, delay.FloatString(3))
	}
	if s.Took {
		b := booked{op, s}
		h.bookings = append(h.bookings, b)
		if got := rat(b.cancel().Act() - s.Now); got.Cmp(delay) != 0 {
			t.Fatalf("a take of %d: delay %v, want %v", cost, got, delay)
		}
	}
	checkLevel(t, p, s, o.under(p, h.now))
}

// checkLevel checks that a reported row holds as many tokens as it should.
func checkLevel(t *rapid.T, p limiter.TokenBucket, s limiter.State, want *big.Rat) {
	reach := new(big.Rat).Mul(rat(p.Capacity), rat(int64(p.Step())))
	debt := rat(max(0, s.Row.FullAt-s.Now))
	if got := over(reach.Sub(reach, debt), p.Step()); got.Cmp(want) != 0 {
		t.Fatalf("%+v holds %v tokens of %+v, want %v", s, got.FloatString(9), p, want.FloatString(9))
	}
}

// windowHistory is a window and its oracle.
type windowHistory struct {
	*cell
	policy   limiter.FixedWindow
	oracle   windowOracle
	bookings []booked
	charged  []int64 // the starts of windows in which anything was counted
}

// TestFixedWindowEqualsCounting compares Op.Apply with an oracle that counts
// in every window.
func TestFixedWindowEqualsCounting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.OneOf(rapid.Int64Range(1, 9), rapid.Just(int64(1)<<60)).Draw(t, "limit")
		length := rapid.OneOf(
			rapid.Just(int64(time.Millisecond)), rapid.Int64Range(int64(time.Millisecond), int64(time.Minute)), rapid.Just(int64(thirtyYears)),
		).Draw(t, "window")
		p := limiter.FixedWindow{Limit: limit, Window: time.Duration(length), CountRejected: rapid.IntRange(0, 3).Draw(t, "counts") == 0}
		h := &windowHistory{
			cell:   &cell{t: t, now: rapid.OneOf(rapid.Just(start), rapid.Int64Range(1, lastClock)).Draw(t, "start")},
			policy: p, oracle: windowOracle{policy: p, counts: map[int64]int64{}},
		}
		for range rapid.IntRange(1, 50).Draw(t, "operations") {
			h.now = min(lastClock, h.now+rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, length)).Draw(t, "pause"))
			h.operate()
		}
	})
}

// operate does one operation on both sides and compares them.
func (h *windowHistory) operate() {
	t, p, o, length := h.t, h.policy, &h.oracle, int64(h.policy.Window)
	switch rapid.IntRange(0, 13).Draw(t, "kind") {
	case 0, 1:
		n, of := drawCost(t, 2*p.Limit), h.now/length
		op := limiter.Op{Kind: limiter.OpRefund, Policy: p, Cost: n}
		if len(h.charged) > 0 && rapid.Bool().Draw(t, "of") {
			op.Booked.Row.Start = rapid.SampledFrom(h.charged[max(0, len(h.charged)-3):]).Draw(t, "charged")
			op.Booked.Row.Period = length
			of = op.Booked.Row.Start / length
		}
		if got, want := h.do(op).Took, o.refund(n, of, h.now); got != want {
			t.Fatalf("a refund of %d to window %d: %v, want %v", n, of, got, want)
		}
	case 2:
		if len(h.bookings) == 0 || p.CountRejected {
			return
		}
		b := rapid.SampledFrom(h.bookings[max(0, len(h.bookings)-3):]).Draw(t, "booking")
		got, want := h.do(b.cancel()).Took, o.cancel(b.op.Cost, b.state.Row.Start/length, b.cancel().Act(), h.now)
		if got != want {
			t.Fatalf("Cancel: %v, want %v", got, want)
		}
	case 3:
		s := h.do(limiter.Op{Kind: limiter.OpLook, Policy: p, Cost: rapid.Int64Range(0, p.Limit).Draw(t, "cost")})
		h.compare("a look", s, max(h.now/length, o.last))
	case 4, 5:
		n := rapid.OneOf(rapid.Int64Range(1, 3*p.Limit), rapid.Int64Range(1, 1<<63-1)).Draw(t, "charge")
		s := h.do(limiter.Op{Kind: limiter.OpCharge, Policy: p, Cost: n})
		room, w := o.charge(n, h.now)
		if s.Took != room {
			t.Fatalf("a charge of %d: %v, want %v", n, s.Took, room)
		}
		h.compare("a charge", s, w)
	case 6:
		if p.CountRejected {
			return
		}
		n := drawCost(t, 2*p.Limit)
		s := h.do(limiter.Op{Kind: limiter.OpTakeUpTo, Policy: p, Cost: n})
		if want := o.takeUpTo(n, h.now); s.Taken != want || s.Took != (want > 0) {
			t.Fatalf("a take of up to %d: %v of %d, want %d", n, s.Took, s.Taken, want)
		}
		h.compare("a take", s, max(h.now/length, o.last))
	case 7:
		if rapid.IntRange(0, 3).Draw(t, "blocks") > 0 {
			return // so that most histories go on
		}
		d := drawBlock(t, length)
		s := h.do(limiter.Op{Kind: limiter.OpBlock, Policy: p, Cost: d})
		h.compare("a block", s, o.block(d, h.now))
	default:
		h.book()
	}
}

func (h *windowHistory) book() {
	t, length := h.t, int64(h.policy.Window)
	op := limiter.Op{Kind: limiter.OpTake, Policy: h.policy, Cost: drawCost(t, h.policy.Limit)}
	if !h.policy.CountRejected {
		op.MaxWait = time.Duration(rapid.Int64Range(0, min(3*length, int64(limiter.MaxReserve))).Draw(t, "wait"))
	}
	s := h.do(op)
	want, w := h.oracle.take(op.Cost, op.MaxWait, h.now)
	if s.Took != want {
		t.Fatalf("a take of %d: %v, want %v", op.Cost, s.Took, want)
	}
	if s.Took {
		h.bookings = append(h.bookings, booked{op, s})
		h.compare("a take", s, w)
	}
}

// compare checks the window and the count that an operation reports.
func (h *windowHistory) compare(what string, s limiter.State, w int64) {
	if s.Row.Start != w*int64(h.policy.Window) || s.Row.Used != h.oracle.counts[w] {
		h.t.Fatalf("%s: %+v, want window %d with %d", what, s, w, h.oracle.counts[w])
	}
	h.charged = append(h.charged, s.Row.Start)
}
