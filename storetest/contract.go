package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

var contractCases = []testCase{
	{
		"a context that has ended takes nothing",
		"a call whose context has ended is ErrCanceled and the context's own error, and charges nothing",
		func(f *fixture) {
			canceled, cancel := context.WithCancel(context.Background())
			cancel()
			late, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
			defer cancel()
			for name, p := range allPolicies {
				l := f.limiter(name, p)
				f.passes(l, "k", 1)
				before := f.peek(l, "k")
				for ctx, cause := range map[context.Context]error{canceled: context.Canceled, late: context.DeadlineExceeded} {
					_, allow := l.Allow(ctx, "k")
					_, peek := l.Peek(ctx, "k")
					_, refund := l.Refund(ctx, "k", 1)
					_, charge := l.Charge(ctx, "k", 1)
					errs := map[string]error{
						"Allow": allow, "Peek": peek, "Refund": refund, "Charge": charge,
						"Reset": l.Reset(ctx, "k"), "Block": l.Block(ctx, "k", s),
					}
					for kind := limiter.OpTake; kind <= limiter.OpBlock; kind++ {
						op := limiter.Op{Kind: kind, Name: l.Name(), Key: "k", Policy: p, Cost: 1, At: f.now.UnixNano()}
						_, errs["Do of "+kind.String()] = f.store.Do(ctx, op)
					}
					for what, err := range errs {
						if !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, cause) {
							f.Errorf("%s: %s: %v, want ErrCanceled and %v", name, what, err, cause)
						}
					}
				}
				if after := f.peek(l, "k"); after != before {
					f.Errorf("%s: %+v before, %+v after calls that were canceled", name, before, after)
				}
			}
		},
	},
	{
		"an unknown kind of operation or policy is ErrUnsupported",
		"a store says so if it does not know an operation or a policy, instead of taking it for another",
		func(f *fixture) {
			l := f.limiter("l", bucket(1, s))
			f.passes(l, "k", 1)
			for _, kind := range []limiter.OpKind{0, limiter.OpExtend + 1, 99, 255} {
				if _, err := f.store.Do(context.Background(), f.op(kind, "k")); !errors.Is(err, errors.ErrUnsupported) {
					f.Errorf("operation %d: %v, want errors.ErrUnsupported", kind, err)
				}
			}
			for _, p := range []limiter.Policy{nil, &limiter.TokenBucket{}} {
				op := f.op(limiter.OpTake, "k")
				op.Policy = p
				if _, err := f.store.Do(context.Background(), op); !errors.Is(err, errors.ErrUnsupported) {
					f.Errorf("policy %T: %v, want errors.ErrUnsupported", p, err)
				}
			}
			f.refuses(l, "k", 1)
		},
	},
	{
		"the store's clock decides for all",
		"without WithClock the time is the store's own: all limiters on it agree, it moves on, and a refund or cancel that comes too late by it does nothing",
		func(f *fixture) {
			p := bucket(3, time.Hour)
			a, b := f.on(f.store, f.prefix+"l", p), f.on(f.store, f.prefix+"l", p)
			f.passes(a, "k", 2)
			f.passes(b, "k", 1)
			r := f.allow(a, "k", 1)
			if r.Allowed || r.RetryAfter <= 0 || r.RetryAfter > time.Hour || r.ResetAfter <= 2*time.Hour || r.ResetAfter > 3*time.Hour {
				f.Errorf("Allow on a drained bucket = %+v, want RetryAfter of at most 1h", r)
			}
			short := f.on(f.store, f.prefix+"short", bucket(1, time.Microsecond))
			f.passes(short, "k", 1)
			late := f.reserve(b, "late", 3, 0)
			if again := f.allow(b, "k", 1); again.Allowed || again.RetryAfter > r.RetryAfter {
				f.Errorf("one limiter was told %+v, and then another %+v", r, again)
			}
			first := f.storeNow()
			for began := time.Now(); !f.storeNow().After(first.Add(time.Microsecond)); {
				if time.Since(began) > 10*s {
					f.Fatalf("for 10s the store's clock says %v", first)
				}
			}
			f.refund(short, "k", 1, false)
			f.cancel(late)
			f.refuses(b, "late", 1)
		},
	},
	{
		"the store's clock decides what is given back",
		"without WithClock, a refund and a cancel give back what counts by the store's own clock",
		func(f *fixture) {
			const length = 30 * time.Minute
			for t := f.storeNow(); t.Truncate(length) != t.Add(10*s).Truncate(length); t = f.storeNow() {
				<-time.After(s) // until no window ends within 10 s
			}
			for name, p := range map[string]limiter.Policy{"b": bucket(1, 5*time.Minute), "w": window(1, length)} {
				l := f.on(f.store, f.prefix+name, p)
				f.passes(l, "k", 1)
				f.refund(l, "k", 1, true)
				f.passes(l, "k", 1)
				booked := f.reserve(l, "k", 1, limiter.MaxReserve)
				f.cancel(booked)
				if again := f.reserve(l, "k", 1, limiter.MaxReserve); !again.Allowed || again.Delay > booked.Delay {
					f.Errorf("%+v: after a Cancel the turn comes in %v, before in %v", p, again.Delay, booked.Delay)
				}
			}
		},
	},
	{
		"an operation's own time is its own",
		"a time that is passed in decides for its own operation, and changes nothing about the store's clock",
		func(f *fixture) {
			before := f.storeNow()
			l := f.limiter("l", bucket(1, s))
			f.now = before.Add(1000 * time.Hour)
			f.passes(l, "ahead", 1)
			f.now = before.Add(-1000 * time.Hour)
			f.passes(l, "behind", 1)
			if after := f.storeNow(); after.Before(before.Add(-s)) || after.After(before.Add(time.Hour)) {
				f.Errorf("the store's clock said %v, and then %v", before, after)
			}
		},
	},
	{
		"a store that can check itself is in order",
		"Check reports nothing on a store that works",
		func(f *fixture) {
			c, ok := f.store.(interface{ Check(context.Context) error })
			if !ok {
				f.Skip("the store has no Check")
			}
			f.ok(c.Check(context.Background()), "Check")
		},
	},
}

// op returns an operation on a bucket of one token, of cost 0.
func (f *fixture) op(kind limiter.OpKind, key string) limiter.Op {
	return limiter.Op{Kind: kind, Name: f.prefix + "l", Key: key, Policy: bucket(1, s), At: f.now.UnixNano()}
}

// runClose tests Close, after which the store is not used any more.
func runClose(t *testing.T, open func(t *testing.T) limiter.Store) {
	c, ok := open(t).(interface{ Close() error })
	if !ok {
		t.Skip("the store has no Close")
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v; closing a store, even twice, is no error", err)
		}
	}
}
