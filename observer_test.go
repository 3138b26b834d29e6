package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

// observed collects decisions without their durations.
type observed []limiter.Decision

func (o *observed) option() limiter.Option {
	return limiter.WithObserver(func(_ context.Context, d limiter.Decision) {
		if d.Duration < 0 || d.Duration > time.Minute {
			panic(d.Duration)
		}
		d.Duration = 0
		*o = append(*o, d)
	})
}

func TestObserverSeesEveryOperation(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	gone, leave := context.WithCancel(ctx)
	leave()
	var seen observed
	now := time.Unix(1e9, 0)
	l := newLimiter(t, memory.New(), limiter.PerSecond(3), seen.option(), limiter.WithClock(func() time.Time { return now }))
	done := limiter.Result{Allowed: true, Source: limiter.SourceStore}
	var res limiter.Result
	var booked *limiter.Reservation
	for _, c := range []struct {
		what string
		do   func() error
		want *limiter.Decision // nil if nothing is sent; a Result that is zero is that of the call
	}{
		{"Allow", func() (err error) { res, err = l.AllowN(ctx, "k", 2); return err }, &limiter.Decision{Op: limiter.OpTake, Cost: 2}},
		{"a refusal", func() (err error) { res, err = l.AllowN(ctx, "k", 2); return err }, &limiter.Decision{Op: limiter.OpTake, Cost: 2}},
		{"RefundOf a refusal", func() error { return testenv.ErrorOf(l.RefundOf(ctx, "k", 1, res)) }, nil},
		{"Peek", func() (err error) { res, err = l.Peek(ctx, "k"); return err }, &limiter.Decision{Op: limiter.OpLook, Cost: 1}},
		{"AllowN(0)", func() (err error) { res, err = l.AllowN(ctx, "k", 0); return err }, &limiter.Decision{Op: limiter.OpLook}},
		{"Refund", func() error { return testenv.ErrorOf(l.Refund(ctx, "k", 1)) }, &limiter.Decision{Op: limiter.OpRefund, Cost: 1, Result: done, Changed: true}},
		{"Refund to an unused key", func() error { return testenv.ErrorOf(l.Refund(ctx, "x", 1)) }, &limiter.Decision{Op: limiter.OpRefund, Cost: 1, Result: done}},
		{"Refund of 0", func() error { return testenv.ErrorOf(l.Refund(ctx, "k", 0)) }, nil},
		{"AllowUpTo", func() (err error) { res, err = l.AllowUpTo(ctx, "k", 9); return err }, &limiter.Decision{Op: limiter.OpTakeUpTo, Cost: 9}},
		{"Reserve", func() (err error) {
			booked, err = l.Reserve(ctx, "k", 1, time.Second)
			res = booked.Result
			return err
		}, &limiter.Decision{Op: limiter.OpTake, Cost: 1, MaxWait: time.Second}},
		{"Cancel", func() error { return booked.Cancel(ctx) }, &limiter.Decision{Op: limiter.OpCancel, Cost: 1, Result: done, Changed: true}},
		{"Cancel again", func() error { return booked.Cancel(ctx) }, nil},
		{"Charge", func() (err error) { res, err = l.Charge(ctx, "k", 7); return err }, &limiter.Decision{Op: limiter.OpCharge, Cost: 7}},
		{"Block", func() error { return l.Block(ctx, "k", time.Hour) }, &limiter.Decision{Op: limiter.OpBlock, Result: done, Changed: true}},
		{"Reset", func() error { return l.Reset(ctx, "k") }, &limiter.Decision{Op: limiter.OpReset, Result: done, Changed: true}},
		{"Reset of an unused key", func() error { return l.Reset(ctx, "x") }, &limiter.Decision{Op: limiter.OpReset, Result: done}},
		{"AllowAll", func() error {
			all, err := limiter.AllowAll(ctx, limiter.Claim{Limiter: l, Key: "k"})
			res = all.Each[0]
			return err
		}, &limiter.Decision{Op: limiter.OpTake, Cost: 1}},
		{"Allow without a key", func() error { return testenv.ErrorOf(l.Allow(ctx, "")) }, nil},
		{"Allow by a caller who has left", func() error { return testenv.ErrorOf(l.Allow(gone, "k")) }, nil},
		{"Reset by a caller who has left", func() error { return l.Reset(gone, "k") }, nil},
		{"AllowAll by a caller who has left", func() error {
			return testenv.ErrorOf(limiter.AllowAll(gone, limiter.Claim{Limiter: l, Key: "k"}))
		}, nil},
	} {
		seen, res = nil, limiter.Result{}
		err := c.do()
		if c.want == nil {
			if len(seen) != 0 {
				t.Errorf("%s: %v, the observer saw %+v, want nothing", c.what, err, seen)
			}
			continue
		}
		if c.want.Limiter = "l"; c.want.Result == (limiter.Result{}) {
			c.want.Result = res
		}
		if err != nil || len(seen) != 1 || seen[0] != *c.want {
			t.Errorf("%s: %v, the observer saw\n     %+v\nwant %+v", c.what, err, seen, *c.want)
		}
	}
}

func TestTaken(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	now := time.Unix(0, start)
	for name, p := range samples {
		l := newLimiter(t, memory.New(), p, limiter.WithClock(func() time.Time { return now }))
		allow := func(n int64) func() (limiter.Result, error) {
			return func() (limiter.Result, error) { return l.AllowN(ctx, "k", n) }
		}
		upTo := func() (limiter.Result, error) { return l.AllowUpTo(ctx, "k", 3) }
		reserve := func(n int64) func() (limiter.Result, error) {
			return func() (limiter.Result, error) {
				r, err := l.Reserve(ctx, "k", n, limiter.MaxReserve)
				return r.Result, err
			}
		}
		for i, c := range []struct {
			what  string
			plain bool // not on a window that counts refusals
			want  int64
			do    func() (limiter.Result, error)
		}{
			{"PeekN", false, 0, func() (limiter.Result, error) { return l.PeekN(ctx, "k", 2) }},
			{"Allow", false, 1, allow(1)},
			{"AllowN(0)", false, 0, allow(0)},
			{"AllowUpTo", true, 3, upTo},
			{"AllowUpTo of more", true, 1, upTo},
			{"AllowUpTo of nothing", true, 0, upTo},
			{"a refusal", true, 0, allow(2)},
			{"Reserve(0)", true, 0, reserve(0)},
			{"Reserve", true, 1, reserve(1)},
			{"a refusal that counts", false, 0, allow(5)},
			{"Charge", false, 9, func() (limiter.Result, error) { return l.Charge(ctx, "k", 9) }},
		} {
			if name == "counts" && c.plain {
				continue
			}
			if r, err := c.do(); err != nil || r.Taken != c.want {
				t.Errorf("%s: call %d: %s: %+v, %v, want %d taken", name, i, c.what, r, err, c.want)
			}
		}
		res, err := l.AllowN(ctx, "other", 2)
		must(t, err)
		mustAllow(t, l, false)
		must(t, testenv.ErrorOf(l.AllowN(ctx, "other", 3)))
		if gave, err := l.RefundOf(ctx, "other", 5, res); err != nil || !gave {
			t.Errorf("%s: RefundOf: %v, %v", name, gave, err)
		}
		if r, err := l.Peek(ctx, "other"); err != nil || r.Remaining != 2 {
			t.Errorf("%s: after RefundOf of 5, of which 2 were taken: %+v, %v, want 2 left", name, r, err)
		}
	}
}
