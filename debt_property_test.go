package limiter_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sqlimit/limiter"
)

// onCell returns a Limiter on a cell and its clock.
func onCell(c *cell, p limiter.Policy) *limiter.Limiter {
	l, err := limiter.New(cellStore{c}, "l", p, limiter.WithClock(func() time.Time { return time.Unix(0, c.now) }))
	if err != nil {
		c.t.Fatal(err)
	}
	return l
}

// ask calls AllowN or, if look is set, PeekN.
func ask(c *cell, l *limiter.Limiter, n int64, look bool) limiter.Result {
	f := l.AllowN
	if look {
		f = l.PeekN
	}
	r, err := f(c.t.Context(), "k", n)
	if err != nil {
		c.t.Fatalf("a request of %d: %v", n, err)
	}
	return r
}

// A key that is charged far over its capacity passes again exactly when the debt is paid. Until then
// a refund gives nothing back and says so. The debt goes up to 30 years.
func TestAKeyPassesExactlyWhenItsDebtIsPaid(t *testing.T) {
	t.Parallel()
	for name, draw := range map[string]func(*rapid.T, string) limiter.TokenBucket{
		"everyday": drawBucket, "hostile": drawHostileBucket,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				p := draw(t, "bucket")
				step := int64(p.Step())
				most := int64(thirtyYears) / step
				c := &cell{t: t, now: rapid.Int64Range(1, lastClock-3*int64(thirtyYears)).Draw(t, "start")}
				l := onCell(c, p)
				taken := rapid.Int64Range(0, p.Capacity).Draw(t, "taken")
				if taken > 0 && !ask(c, l, taken, false).Allowed {
					t.Fatalf("a new key refuses %d", taken)
				}
				n := rapid.OneOf(rapid.Int64Range(1, most), rapid.Just(most), rapid.Int64Range(1, min(most, 3*p.Capacity))).Draw(t, "charge")
				res, err := l.Charge(t.Context(), "k", n)
				// One token is there when all but Capacity - 1 of what was taken has come back.
				full := min((taken+n)*step, longestDebt)
				wait := max(0, full-(p.Capacity-1)*step)
				want := limiter.Result{
					Allowed: taken+n <= p.Capacity, Limit: p.Capacity, Remaining: max(0, p.Capacity-taken-n),
					RetryAfter: time.Duration(wait), ResetAfter: time.Duration(full),
					Taken: n, Source: limiter.SourceStore, Policy: p,
				}
				if err != nil || res.Visible() != want {
					t.Fatalf("Charge(%d) after %d: %+v, %v, want %+v", n, taken, res, err, want)
				}
				if wait > step { // the bucket is overdrawn
					giveNothingBack(t, l, p.Capacity, res)
				}
				due := c.now + wait
				if wait > 0 {
					for _, c.now = range []int64{c.now, c.now + rapid.Int64Range(0, wait-1).Draw(t, "meanwhile"), due - 1} {
						if r := ask(c, l, 1, true); r.Allowed || int64(r.RetryAfter) != due-c.now {
							t.Fatalf("Peek %d ns before it is due: %+v", due-c.now, r)
						}
						if r := ask(c, l, 1, false); r.Allowed || int64(r.RetryAfter) != due-c.now {
							t.Fatalf("Allow %d ns before it is due: %+v", due-c.now, r)
						}
					}
				}
				c.now = due
				if r := ask(c, l, 1, true); !r.Allowed {
					t.Fatalf("Peek when it is due: %+v", r)
				}
				if r := ask(c, l, 1, false); !r.Allowed {
					t.Fatalf("Allow when it is due: %+v", r)
				}
			})
		})
	}
}

// giveNothingBack checks that neither a Refund nor a RefundOf res changes anything.
func giveNothingBack(t *rapid.T, l *limiter.Limiter, n int64, res limiter.Result) {
	if gave, err := l.Refund(t.Context(), "k", n); gave || err != nil {
		t.Fatalf("Refund(%d): %v, %v, want nothing back", n, gave, err)
	}
	if gave, err := l.RefundOf(t.Context(), "k", n, res); gave || err != nil {
		t.Fatalf("RefundOf(%d): %v, %v, want nothing back", n, gave, err)
	}
}

// A window that is charged over its limit passes again when it ends, and a charge can be refunded
// until then.
func TestAWindowForgetsItsDebtWhenItEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawWindow(t, "window")
		p.CountRejected = rapid.Bool().Draw(t, "counts")
		first := start - start%int64(p.Window)
		c := &cell{t: t, now: first + rapid.Int64Range(0, int64(p.Window)-1).Draw(t, "start")}
		l := onCell(c, p)
		n := rapid.OneOf(rapid.Int64Range(1, 3*p.Limit), rapid.Just(int64(math.MaxInt64))).Draw(t, "charge")
		res, err := l.Charge(t.Context(), "k", n)
		left := first + int64(p.Window) - c.now
		if err != nil || res.Allowed != (n <= p.Limit) || res.Remaining != max(0, p.Limit-n) || (res.RetryAfter > 0) != (n >= p.Limit) {
			t.Fatalf("Charge(%d) to %+v: %+v, %v", n, p, res, err)
		}
		if n >= p.Limit && int64(res.RetryAfter) != left {
			t.Fatalf("Charge(%d) to %+v: %+v, want RetryAfter %d ns", n, p, res, left)
		}
		if n < math.MaxInt64 && rapid.Bool().Draw(t, "refund") {
			if gave, err := l.RefundOf(t.Context(), "k", n, res); !gave || err != nil {
				t.Fatalf("RefundOf a charge: %v, %v", gave, err)
			}
			if r := ask(c, l, p.Limit, true); !r.Allowed || r.Used != 0 {
				t.Fatalf("after RefundOf a charge: %+v", r)
			}
			return
		}
		if n >= p.Limit {
			c.now += left - 1
			if r := ask(c, l, 1, false); r.Allowed || r.RetryAfter != 1 {
				t.Fatalf("1 ns before the window ends: %+v", r)
			}
			c.now++
		} else {
			c.now += left
		}
		giveNothingBack(t, l, 1, res)
		if r := ask(c, l, p.Limit, false); !r.Allowed {
			t.Fatalf("after the window has ended: %+v", r)
		}
	})
}

// During a block nothing passes, whatever else is done to the key and however its policy changes.
// Only reservations behind the block are booked.
func TestNothingPassesDuringABlock(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"bucket", "hostile bucket", "window"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				ps := blockPolicies(t, kind)
				c := &cell{t: t, now: start}
				b := &blocked{cell: c, ps: ps}
				for range rapid.IntRange(0, 6).Draw(t, "operations before") {
					c.now += rapid.Int64Range(0, min(spanOf(ps[0]), year)).Draw(t, "pause")
					b.operate()
				}
				d := drawBlock(t, spanOf(ps[0]))
				b.block(d)
				for range rapid.IntRange(1, 20).Draw(t, "operations during the block") {
					left := b.until - 1 - c.now
					c.now += rapid.OneOf(
						rapid.Just(int64(0)), rapid.Just(left), rapid.Int64Range(0, left), rapid.Int64Range(0, min(left, spanOf(ps[0]))),
					).Draw(t, "pause")
					if kind != "window" || !b.booked {
						b.backwards() // a clock that is set back loses the windows of bookings
					}
					b.operate()
				}
				if b.more {
					return
				}
				c.now = b.until + max(spanOf(ps[0]), spanOf(ps[1])) // a bucket has a token then
				p := rapid.SampledFrom(ps).Draw(t, "policy after")
				if r := ask(c, onCell(c, p), 1, false); !r.Allowed {
					t.Fatalf("after the block: %+v", r)
				}
			})
		})
	}
}

const year = int64(8766 * time.Hour)

// blocked is a key that is, or will be, blocked until an instant.
type blocked struct {
	*cell
	ps       []limiter.Policy // all of one kind, and windows of one length
	until    int64            // 0 before the block
	booked   bool             // behind the block
	more     bool             // something may last longer than the block
	bookings []*limiter.Reservation
	results  []limiter.Result
}

func blockPolicies(t *rapid.T, kind string) (ps []limiter.Policy) {
	for i := range 2 {
		switch kind {
		case "bucket":
			ps = append(ps, drawBucket(t, []string{"a", "b"}[i]))
		case "hostile bucket":
			ps = append(ps, drawHostileBucket(t, []string{"a", "b"}[i]))
		default:
			w := drawWindow(t, []string{"a", "b"}[i])
			w.CountRejected = rapid.IntRange(0, 3).Draw(t, "counts") == 0
			if i > 0 {
				w.Window = ps[0].(limiter.FixedWindow).Window
			}
			ps = append(ps, w)
		}
	}
	return ps
}

func (b *blocked) block(d int64) {
	p := rapid.SampledFrom(b.ps).Draw(b.t, "policy of the block")
	if err := onCell(b.cell, p).Block(b.t.Context(), "k", time.Duration(d)); err != nil {
		b.t.Fatal(err)
	}
	b.until = b.now + d
	b.more = b.more || len(b.bookings) > 0
	if w, ok := p.(limiter.FixedWindow); ok { // until the end of the window
		b.until += int64(w.Window) - b.until%int64(w.Window)
	}
}

// backwards sets the clock back now and then. The block then lasts for at least the time that it had
// left.
func (b *blocked) backwards() {
	if rapid.IntRange(0, 5).Draw(b.t, "back") > 0 {
		return
	}
	back := rapid.OneOf(
		rapid.Int64Range(1, int64(limiter.ClockTolerance)), rapid.Int64Range(1, int64(24*time.Hour)),
	).Draw(b.t, "by")
	b.now -= back
	b.until -= back
	b.more = true
}

// operate does one operation and checks that none before the end of the block passes.
func (b *blocked) operate() {
	t := b.t
	p := rapid.SampledFrom(b.ps).Draw(t, "policy")
	l := onCell(b.cell, p)
	ctx := t.Context()
	n := drawCost(t, limitOf(p))
	switch rapid.IntRange(0, 8).Draw(t, "kind") {
	case 0:
		if gave, err := l.Refund(ctx, "k", n); err != nil || gave && b.until > 0 && !b.booked {
			t.Fatalf("Refund(%d): %v, %v", n, gave, err)
		}
	case 1:
		if len(b.results) > 0 {
			if _, err := l.RefundOf(ctx, "k", n, rapid.SampledFrom(b.results).Draw(t, "result")); err != nil {
				t.Fatal(err)
			}
		}
	case 2:
		if len(b.bookings) > 0 {
			if err := rapid.SampledFrom(b.bookings).Draw(t, "booking").Cancel(ctx); err != nil {
				t.Fatal(err)
			}
		}
	case 3:
		r, err := l.AllowUpTo(ctx, "k", n)
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		b.check("AllowUpTo", r, err, 0)
		if (r.Taken > 0) != r.Allowed || r.Taken > n {
			t.Fatalf("AllowUpTo(%d): %+v", n, r)
		}
	case 4:
		r, err := l.PeekN(ctx, "k", n)
		b.check("PeekN", r, err, 0)
	case 5:
		b.more = true
		r, err := l.Charge(ctx, "k", n)
		b.check("Charge", r, err, 0)
	case 6:
		wait := time.Duration(rapid.OneOf(rapid.Int64Range(0, int64(limiter.MaxReserve)), rapid.Int64Range(0, 20*min(spanOf(p), int64(time.Minute)))).Draw(t, "wait"))
		r, err := l.Reserve(ctx, "k", n, wait)
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		b.check("Reserve", r.Result, err, r.Delay)
		if r.Allowed {
			b.bookings = append(b.bookings, r)
			b.booked = b.booked || b.until > 0
			b.more = b.more || b.booked
		}
	default:
		r, err := l.AllowN(ctx, "k", n)
		b.check("AllowN", r, err, 0)
	}
}

// check checks that a request does not act before the block is over.
func (b *blocked) check(what string, r limiter.Result, err error, delay time.Duration) {
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	if r.Allowed && b.now+int64(delay) < b.until {
		b.t.Fatalf("%s passes %v before the block is over: %+v", what, time.Duration(b.until-b.now)-delay, r)
	}
	if r.Allowed {
		b.results = append(b.results, r)
	}
}
