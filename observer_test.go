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

// Each operation is observed once. A decision, charge or block asks for its policy once, with the key of the
// request.
func TestObserverSeesEveryOperation(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	gone, leave := context.WithCancel(ctx)
	leave()
	var seen observed
	p := &plans{}
	l := newLimiter(t, memory.New(), limiter.PerSecond(3), seen.option(), p.option(), fixed(), limiter.WithKeyDigest([]byte("secret")))
	var res limiter.Result
	var booked *limiter.Reservation
	call := func(r limiter.Result, err error) error {
		res = r
		return err
	}
	reserve := func(n int64) (err error) {
		booked, err = l.Reserve(ctx, "k", n, time.Second)
		return call(booked.Result, err)
	}
	wait := func(n int64) error {
		err := l.WaitN(ctx, "k", n)
		res = seen[0].Result // which the caller does not get
		return err
	}
	for _, c := range []struct {
		what string
		asks int // for the policy
		do   func() error
		want limiter.Decision // the zero Decision if nothing is sent
	}{
		{"Allow", 1, func() error { return call(l.AllowN(ctx, "k", 2)) }, limiter.Decision{Op: limiter.OpTake, Cost: 2}},
		{"RefundOf", 0, func() error { return testenv.ErrorOf(l.RefundOf(ctx, "k", 1, res)) }, limiter.Decision{Op: limiter.OpRefund, Cost: 1, Changed: true}},
		{"a refusal", 1, func() error { return call(l.AllowN(ctx, "k", 3)) }, limiter.Decision{Op: limiter.OpTake, Cost: 3}},
		{"Peek", 1, func() error { return call(l.Peek(ctx, "k")) }, limiter.Decision{Op: limiter.OpLook, Cost: 1}},
		{"AllowN(0)", 1, func() error { return call(l.AllowN(ctx, "k", 0)) }, limiter.Decision{Op: limiter.OpLook}},
		{"Reserve(0)", 1, func() error { return reserve(0) }, limiter.Decision{Op: limiter.OpLook}},
		{"Refund", 0, func() error { return testenv.ErrorOf(l.Refund(ctx, "k", 1)) }, limiter.Decision{Op: limiter.OpRefund, Cost: 1, Changed: true}},
		{"Refund to an unused key", 0, func() error { return testenv.ErrorOf(l.Refund(ctx, "x", 1)) }, limiter.Decision{Op: limiter.OpRefund, Cost: 1}},
		{"Wait", 1, func() error { return wait(1) }, limiter.Decision{Op: limiter.OpTake, Cost: 1, MaxWait: limiter.MaxReserve}},
		{"AllowUpTo", 1, func() error { return call(l.AllowUpTo(ctx, "k", 9)) }, limiter.Decision{Op: limiter.OpTakeUpTo, Cost: 9}},
		{"Reserve", 1, func() error { return reserve(1) }, limiter.Decision{Op: limiter.OpTake, Cost: 1, MaxWait: time.Second}},
		{"Cancel", 0, func() error { return booked.Cancel(ctx) }, limiter.Decision{Op: limiter.OpCancel, Cost: 1, Changed: true}},
		{"Cancel again", 0, func() error { return booked.Cancel(ctx) }, limiter.Decision{}},
		{"Charge", 1, func() error { return call(l.Charge(ctx, "k", 7)) }, limiter.Decision{Op: limiter.OpCharge, Cost: 7}},
		{"Charge(0)", 1, func() error { return call(l.Charge(ctx, "k", 0)) }, limiter.Decision{Op: limiter.OpLook, Cost: 1}},
		{"Block", 1, func() error { return l.Block(ctx, "k", time.Hour) }, limiter.Decision{Op: limiter.OpBlock, Changed: true}},
		{"Reset", 0, func() error { return l.Reset(ctx, "k") }, limiter.Decision{Op: limiter.OpReset, Changed: true}},
		{"Reset of an unused key", 0, func() error { return l.Reset(ctx, "x") }, limiter.Decision{Op: limiter.OpReset}},
		{"AllowAll", 1, func() error {
			all, err := limiter.AllowAll(ctx, claims(l)...)
			return call(all.Each[0], err)
		}, limiter.Decision{Op: limiter.OpTake, Cost: 1}},
		{"Allow without a key", 0, func() error { return testenv.ErrorOf(l.Allow(ctx, "")) }, limiter.Decision{}},
		{"Allow by a caller who has left", 0, func() error { return testenv.ErrorOf(l.Allow(gone, "k")) }, limiter.Decision{}},
		{"Reset by a caller who has left", 0, func() error { return l.Reset(gone, "k") }, limiter.Decision{}},
		{"AllowAll by a caller who has left", 0, func() error { return testenv.ErrorOf(limiter.AllowAll(gone, claims(l)...)) }, limiter.Decision{}},
	} {
		seen, *p = nil, plans{key: "k"}
		err := c.do()
		if p.calls != c.asks || p.key != "k" {
			t.Errorf("%s: %v, asked %d times for the policy of %q, want %d", c.what, err, p.calls, p.key, c.asks)
		}
		if c.want == (limiter.Decision{}) {
			testenv.Equal(t, len(seen), 0, c.what, err, "the observer saw", seen)
			continue
		}
		c.want.Limiter = "l"
		switch c.want.Op {
		case limiter.OpRefund, limiter.OpCancel, limiter.OpBlock, limiter.OpReset:
			c.want.Result = limiter.Result{Allowed: true, Source: limiter.SourceStore}
		default:
			c.want.Result = res
		}
		if err != nil || len(seen) != 1 || seen[0] != c.want {
			t.Errorf("%s: %v, the observer saw\n     %+v\nwant %+v", c.what, err, seen, c.want)
		}
	}
}
