package storetest

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sqlimit/limiter"
)

var decisionCases = []testCase{
	{
		"a bucket tells all of its state",
		"every field of a Result comes from the row that the decision left or found",
		scripted(bucket(5, s), []call{
			{at: 0, verb: peek, allowed: true, remaining: 5},
			{at: 0, n: 1, allowed: true, remaining: 4, reset: 1 * s},
			{at: 0, n: 3, allowed: true, remaining: 1, reset: 4 * s},
			{at: 0, n: 2, remaining: 1, retry: 1 * s, reset: 4 * s},
			{at: 500 * ms, verb: peek, allowed: true, remaining: 1, reset: 3500 * ms},
			{at: 500 * ms, n: 2, remaining: 1, retry: 500 * ms, reset: 3500 * ms},
			{at: 500 * ms, n: 5, remaining: 1, retry: 3500 * ms, reset: 3500 * ms},
			{at: 1 * s, n: 2, allowed: true, reset: 5 * s},
			{at: 1 * s, verb: peek, retry: 1 * s, reset: 5 * s},
			{at: 6*s - ns, verb: peek, allowed: true, remaining: 4, reset: ns},
			{at: 6 * s, verb: peek, allowed: true, remaining: 5},
			{at: 9 * s, n: 5, allowed: true, reset: 5 * s},
		}),
	},
	{
		"a window tells all of its state",
		"every field of a Result comes from the row that the decision left or found",
		scripted(window(5, 10*s), []call{
			{at: 1 * s, verb: peek, allowed: true, remaining: 5},
			{at: 1 * s, n: 2, allowed: true, remaining: 3, used: 2, reset: 9 * s},
			{at: 2 * s, n: 4, remaining: 3, used: 2, retry: 8 * s, reset: 8 * s},
			{at: 3 * s, n: 3, allowed: true, used: 5, reset: 7 * s},
			{at: 10*s - ns, verb: peek, used: 5, retry: ns, reset: ns},
			{at: 10*s - ns, n: 1, used: 5, retry: ns, reset: ns},
			{at: 10 * s, n: 5, allowed: true, used: 5, reset: 10 * s},
			{at: 20*s - ns, n: 1, used: 5, retry: ns, reset: ns},
			{at: 20 * s, verb: peek, allowed: true, remaining: 5},
			{at: 35 * s, n: 1, allowed: true, remaining: 4, used: 1, reset: 5 * s},
		}),
	},
	{
		"with CountRejected the count saturates",
		"no number of refusals makes the count wrap around and the door open",
		func(f *fixture) {
			const most = 1 << 60
			l := f.limiter("l", counting(most, time.Hour))
			f.passes(l, "k", most)
			for i := range 12 {
				want := (int64(i) + 2) * most
				if i >= 2 { // at 2^62 it is saturated
					want = most
				}
				if r := f.allow(l, "k", most); r.Allowed || r.Used != want {
					f.Fatalf("call %d: AllowN(2^60) = %+v, want it refused, Used %d", i, r, want)
				}
			}
		},
	},
	{
		"a refusal leaves no trace",
		"a refused request changes nothing: a key that was refused has the results of its twin that was not",
		forEach(plainPolicies, func(f *fixture, l *limiter.Limiter) {
			for i := range 40 {
				f.at(time.Duration(i) * 370 * ms)
				n := 1 + int64(i)%limitOf(l.Policy())
				for range 3 { // only one of the twins asks for what it cannot have
					if r := f.peek(l, "asks"); r.Remaining < limitOf(l.Policy()) {
						f.refuses(l, "asks", r.Remaining+1)
					}
				}
				if a, b := f.allow(l, "asks", n), f.allow(l, "rests", n); a != b {
					f.Fatalf("call %d: AllowN(%d) = %+v, its twin %+v", i, n, a, b)
				}
			}
		}),
	},
	{
		"a negative cost is ErrInvalid",
		"no cost below zero is a hidden refund",
		forEach(allPolicies, func(f *fixture, l *limiter.Limiter) {
			f.passes(l, "k", limitOf(l.Policy()))
			for _, n := range []int64{-1, math.MinInt64} {
				if r, err := l.AllowN(context.Background(), "k", n); !errors.Is(err, limiter.ErrInvalid) || r.Allowed {
					f.Errorf("AllowN(%d) = %+v, %v, want ErrInvalid", n, r, err)
				}
				if gave, err := l.Refund(context.Background(), "k", n); !errors.Is(err, limiter.ErrInvalid) || gave {
					f.Errorf("Refund(%d) = %v, %v, want ErrInvalid", n, gave, err)
				}
			}
			f.refuses(l, "k", 1)
		}),
	},
	{
		"RetryAfter is tight",
		"after RetryAfter the same request passes, and one nanosecond before it is still refused",
		forEach(map[string]limiter.Policy{
			"even":   bucket(4, s),
			"uneven": limiter.TokenBucket{Capacity: 5, Refill: 7, Interval: 3 * s},
			"fast":   limiter.TokenBucket{Capacity: 3, Refill: 333_333, Interval: s},
			"slow":   bucket(2, 24*time.Hour),
			"window": window(4, 7*s),
		}, func(f *fixture, l *limiter.Limiter) {
			limit := limitOf(l.Policy())
			for n := int64(1); n <= limit; n++ {
				f.passes(l, "k", limit) // drains it at any instant at which it is full
				f.now = f.now.Add(457 * ns)
				r := f.refuses(l, "k", n)
				f.now = f.now.Add(r.RetryAfter - 1)
				if r := f.refuses(l, "k", n); r.RetryAfter != 1 {
					f.Fatalf("AllowN(%d) 1 ns too early = %+v, want RetryAfter 1ns", n, r)
				}
				f.now = f.now.Add(1)
				f.passes(l, "k", n)
				f.now = f.now.Add(f.peek(l, "k").ResetAfter)
			}
		}),
	},
	{
		"a cost of 0 waits for debts, blocks and bookings",
		"it passes on a key that is used up, is refused until a debt, block or booking is over, and changes nothing",
		func(f *fixture) {
			f.zero(f.limiter("b", bucket(3, s)), []call{
				{n: 0, allowed: true, remaining: 3},
				{n: 3, allowed: true, reset: 3 * s},
				{n: 0, allowed: true, reset: 3 * s},
				{verb: reserve, n: 1, maxWait: s, allowed: true, delay: s, reset: 4 * s},
				{n: 0, retry: s, reset: 4 * s},
				{verb: reserve, n: 0, maxWait: s - ns, retry: ns, reset: 4 * s},
				{verb: reserve, n: 0, maxWait: s, allowed: true, delay: s, reset: 4 * s},
				{at: s, n: 0, allowed: true, reset: 3 * s},
				{at: 10 * s, verb: charge, n: 5, retry: 3 * s, reset: 5 * s},
				{at: 10 * s, n: 0, retry: 2 * s, reset: 5 * s},
				{at: 12 * s, n: 0, allowed: true, reset: 3 * s},
				{at: 12 * s, verb: block, maxWait: 5 * s},
				{at: 12 * s, n: 0, retry: 5 * s, reset: 8 * s},
				{at: 12 * s, verb: reserve, n: 0, maxWait: time.Minute, allowed: true, delay: 5 * s, reset: 8 * s},
				{at: 17 * s, n: 0, allowed: true, reset: 3 * s},
			})
			f.zero(f.limiter("w", window(3, 10*s)), []call{
				{n: 0, allowed: true, remaining: 3},
				{n: 3, allowed: true, used: 3, reset: 10 * s},
				{n: 0, allowed: true, used: 3, reset: 10 * s},
				{verb: charge, n: 1, used: 4, retry: 10 * s, reset: 10 * s},
				{at: s, n: 0, used: 4, retry: 9 * s, reset: 9 * s},
				{at: s, verb: reserve, n: 0, maxWait: 9*s - ns, used: 4, retry: ns, reset: 9 * s},
				{at: s, verb: reserve, n: 0, maxWait: 9 * s, allowed: true, delay: 9 * s, used: 4, reset: 9 * s},
				{at: 10 * s, n: 0, allowed: true, remaining: 3},
				{at: 10 * s, n: 3, allowed: true, used: 3, reset: 10 * s},
				{at: 10 * s, verb: reserve, n: 1, maxWait: 10 * s, allowed: true, delay: 10 * s, used: 3, reset: 20 * s},
				{at: 10 * s, n: 0, used: 3, retry: 10 * s, reset: 20 * s},
				{at: 20 * s, n: 0, allowed: true, remaining: 2, used: 1, reset: 10 * s},
				{at: 20 * s, verb: block, maxWait: 5 * s},
				{at: 20 * s, n: 0, used: 3, retry: 10 * s, reset: 10 * s},
				{at: 30 * s, n: 0, allowed: true, remaining: 3},
			})
			f.zero(f.limiter("c", limiter.FixedWindow{Limit: 1, Window: 10 * s, CountRejected: true}), []call{
				{n: 1, allowed: true, used: 1, reset: 10 * s},
				{n: 0, allowed: true, used: 1, reset: 10 * s},
				{n: 1, used: 2, retry: 10 * s, reset: 10 * s},
				{n: 0, used: 2, retry: 10 * s, reset: 10 * s},
			})
		},
	},
}

// zero runs calls on the key "k". Those of cost 0 must leave the row alone, and PeekN must agree with
// AllowN.
func (f *fixture) zero(l *limiter.Limiter, calls []call) {
	f.Helper()
	for _, c := range calls {
		f.at(c.at)
		looks := c.n == 0 && c.verb != block
		before := f.row(l)
		f.script(l, "k", []call{c})
		if after := f.row(l); looks && after != before {
			f.Errorf("by %v at %v: a request of cost 0 leaves %+v, before it was %+v", l.Policy(), c.at, after, before)
		}
		if looks && c.verb == allow {
			peeked, err := l.PeekN(context.Background(), "k", 0)
			f.ok(err, "PeekN(0)")
			if got := f.allow(l, "k", 0); peeked != got {
				f.Errorf("by %v at %v: PeekN(0) = %+v, AllowN(0) = %+v", l.Policy(), c.at, peeked, got)
			}
		}
	}
}
