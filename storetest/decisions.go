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
		func(f *fixture) {
			f.script(f.limiter("l", bucket(5, s)), "k", []call{
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
			})
		},
	},
	{
		"a window tells all of its state",
		"every field of a Result comes from the row that the decision left or found",
		func(f *fixture) {
			f.script(f.limiter("l", window(5, 10*s)), "k", []call{
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
			})
		},
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
		func(f *fixture) {
			for name, p := range plainPolicies {
				l := f.limiter(name, p)
				for i := range 40 {
					f.at(time.Duration(i) * 370 * ms)
					n := 1 + int64(i)%limitOf(p)
					for range 3 { // only one of the twins asks for what it cannot have
						if r := f.peek(l, "asks"); r.Remaining < limitOf(p) {
							f.refuses(l, "asks", r.Remaining+1)
						}
					}
					if a, b := f.allow(l, "asks", n), f.allow(l, "rests", n); a != b {
						f.Fatalf("call %d: %s: AllowN(%d) = %+v, its twin %+v", i, name, n, a, b)
					}
				}
			}
		},
	},
	{
		"a refused weighted request does not drain",
		"a request that costs more than is left takes nothing of what is left",
		func(f *fixture) {
			for name, p := range plain(10, s, time.Hour) {
				l := f.limiter(name, p)
				f.passes(l, "k", 5)
				for range 20 {
					f.refuses(l, "k", 6)
				}
				if r := f.peek(l, "k"); r.Remaining != 5 {
					f.Errorf("%s: %d remain after refusals, want 5", name, r.Remaining)
				}
				f.passes(l, "k", 5)
				f.refuses(l, "k", 1)
			}
		},
	},
	{
		"a first request above capacity leaves no negative count",
		"a cost above the capacity is ErrExceedsCapacity, on a new key too, and counts nothing",
		func(f *fixture) {
			for name, p := range allPolicies {
				l := f.limiter(name, p)
				for _, n := range []int64{limitOf(p) + 1, 1e10, math.MaxInt64} {
					f.exceeds(l, "k", n)
					if r := f.peek(l, "k"); r.Remaining != limitOf(p) || r.Used != 0 || r.ResetAfter != 0 {
						f.Errorf("%s: after a cost of %d: %+v, want an unused key", name, n, r)
					}
				}
				f.passes(l, "k", limitOf(p))
				f.refuses(l, "k", 1)
				f.exceeds(l, "k", limitOf(p)+1)
			}
		},
	},
	{
		"a negative cost is ErrInvalid",
		"no cost below zero is a hidden refund",
		func(f *fixture) {
			for name, p := range allPolicies {
				l := f.limiter(name, p)
				f.passes(l, "k", limitOf(p))
				for _, n := range []int64{-1, math.MinInt64} {
					if r, err := l.AllowN(context.Background(), "k", n); !errors.Is(err, limiter.ErrInvalid) || r.Allowed {
						f.Errorf("%s: AllowN(%d) = %+v, %v, want ErrInvalid", name, n, r, err)
					}
					if gave, err := l.Refund(context.Background(), "k", n); !errors.Is(err, limiter.ErrInvalid) || gave {
						f.Errorf("%s: Refund(%d) = %v, %v, want ErrInvalid", name, n, gave, err)
					}
				}
				f.refuses(l, "k", 1)
			}
		},
	},
	{
		"RetryAfter is tight",
		"after RetryAfter the same request passes, and one nanosecond before it is still refused",
		func(f *fixture) {
			for name, p := range map[string]limiter.Policy{
				"even":   bucket(4, s),
				"uneven": limiter.TokenBucket{Capacity: 5, Refill: 7, Interval: 3 * s},
				"fast":   limiter.TokenBucket{Capacity: 3, Refill: 333_333, Interval: s},
				"slow":   bucket(2, 24*time.Hour),
				"window": window(4, 7*s),
			} {
				l := f.limiter(name, p)
				for n := int64(1); n <= limitOf(p); n++ {
					f.passes(l, "k", limitOf(p)) // drains it at any instant at which it is full
					f.now = f.now.Add(457 * ns)
					r := f.allow(l, "k", n)
					if r.Allowed {
						f.Fatalf("%s: AllowN(%d) passes, want a refusal", name, n)
					}
					f.now = f.now.Add(r.RetryAfter - 1)
					if r := f.allow(l, "k", n); r.Allowed || r.RetryAfter != 1 {
						f.Fatalf("%s: AllowN(%d) 1 ns too early = %+v, want RetryAfter 1ns", name, n, r)
					}
					f.now = f.now.Add(1)
					f.passes(l, "k", n)
					f.now = f.now.Add(f.peek(l, "k").ResetAfter)
				}
			}
		},
	},
}

// exceeds checks that a cost is ErrExceedsCapacity, and has no RetryAfter.
func (f *fixture) exceeds(l *limiter.Limiter, key string, n int64) {
	f.Helper()
	r, err := l.AllowN(context.Background(), key, n)
	if !errors.Is(err, limiter.ErrExceedsCapacity) || r.Allowed || r.RetryAfter != 0 {
		f.Fatalf("AllowN(%d) of %d = %+v, %v, want ErrExceedsCapacity", n, limitOf(l.Policy()), r, err)
	}
}
