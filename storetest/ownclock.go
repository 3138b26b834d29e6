package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// RunClock tests what a store does when its own clock is stepped back. Use it for a store whose
// clock a test can move. The function open returns an empty store and the function ahead, which
// sets how far the store's clock is ahead of its usual time. The clock may run meanwhile. [Run]
// tests the same with times that the tests pass in.
func RunClock(t *testing.T, open func(t *testing.T) (store limiter.Store, ahead func(time.Duration))) {
	store, ahead := open(t)
	for _, back := range []time.Duration{490 * ms, 1900 * ms} {
		t.Run(fmt.Sprintf("windows %v ahead", back), func(t *testing.T) {
			runSmallStep(&fixture{T: t, store: store, prefix: back.String()}, ahead, back)
		})
	}
	t.Run("the first day of time", func(t *testing.T) { runFirstDay(&fixture{T: t, store: store, prefix: "1970."}, ahead) })
	for _, c := range steppedPolicies {
		t.Run(c.name, func(t *testing.T) {
			const requirement = "the requirement: a clock that was an hour ahead and came back grants nothing, and locks no key out for longer than it owed plus 2 s"
			f := &fixture{T: t, store: store}
			l := f.on(store, "clock", c.policy)
			allow := func() limiter.Result { t.Helper(); return f.allow(l, c.name, 1) }
			ahead(time.Hour)
			for i := range 3 {
				if r := allow(); r.Allowed != (i < 2) {
					t.Fatalf("request %d: %+v, want 2 to pass", i+1, r)
				}
			}
			for name, look := range map[string]func(key string) limiter.Result{
				"cost 0": func(key string) limiter.Result { return f.allow(l, key, 0) },
				"Peek":   func(key string) limiter.Result { return f.peek(l, key) },
			} {
				key := c.name + ", blocked, " + name
				ahead(time.Hour)
				f.block(l, key, time.Minute)
				ahead(0)
				blocked := look(key)
				ahead(blocked.RetryAfter)
				if r := look(key); blocked.Allowed || !r.Allowed {
					t.Errorf("%s of a blocked key: %+v, after RetryAfter %+v, want room\n%s", name, blocked, r, requirement)
				}
			}
			ahead(0)
			wait := time.Duration(0) // from when the clock had come back
			for range 3 {            // a refusal on the way must not begin the wait anew
				r := allow()
				if r.Allowed || r.RetryAfter <= 0 || wait+r.RetryAfter > c.owed+limiter.ClockTolerance {
					t.Fatalf("%v after the clock came back: %+v, want a refusal for at most %v in all\n%s", wait, r, c.owed, requirement)
				}
				wait += r.RetryAfter / 2
				ahead(wait)
			}
			r := f.peek(l, c.name)
			ahead(wait + r.RetryAfter)
			if r := allow(); !r.Allowed {
				t.Errorf("%v after the clock came back: %+v, want it to pass\n%s", wait+r.RetryAfter, r, requirement)
			}
		})
	}
}

// runSmallStep tests that the times of a window count from the store's own clock, also when it
// was stepped back by less than its tolerance.
func runSmallStep(f *fixture, ahead func(time.Duration), back time.Duration) {
	for name, p := range map[string]limiter.FixedWindow{
		"w": {Limit: 2, Window: 10 * time.Minute}, "c": {Limit: 2, Window: 10 * time.Minute, CountRejected: true},
	} {
		ahead(back)
		now := f.storeNow()
		for edgeAfter(now, p.Window).Sub(now) < time.Minute {
			p.Window += time.Minute
		}
		l, edge := f.on(f.store, f.prefix+name, p), edgeAfter(now, p.Window)
		f.passes(l, "k", 2)
		ahead(0)
		// told checks the time until the edge that tell returns against the clock before and after.
		told := func(what string, tell func() time.Duration) {
			f.Helper()
			least := f.storeNow()
			got := tell()
			if most := edge.Sub(least) + time.Microsecond; got > most || got < edge.Sub(f.storeNow()) {
				f.Errorf("%+v, %v after the clock came back: %s is %v, want %v to %v", p, back, what, got, edge.Sub(f.storeNow()), most)
			}
		}
		told("RetryAfter of Peek", func() time.Duration { return f.peek(l, "k").RetryAfter })
		told("RetryAfter of Allow", func() time.Duration { return f.allow(l, "k", 1).RetryAfter })
		told("ResetAfter of Allow", func() time.Duration { return f.allow(l, "k", 1).ResetAfter })
		if !p.CountRejected {
			told("Delay of Reserve", func() time.Duration { return f.reserve(l, "k", 2, limiter.MaxReserve).Delay })
			told("RetryAfter of Reserve", func() time.Duration {
				return f.reserve(l, "k", 1, p.Window).RetryAfter
			})
		}
	}
}

// edgeAfter returns the end of the window that now lies in.
func edgeAfter(now time.Time, window time.Duration) time.Time {
	return time.Unix(0, now.UnixNano()).Add(window - time.Duration(now.UnixNano())%window)
}

// runFirstDay tests that a window which starts at 1970-01-01T00:00:00Z is swept when it is over,
// not before.
func runFirstDay(f *fixture, ahead func(time.Duration)) {
	sw := f.sweeper()
	at := func(since1970 time.Duration) {
		f.Helper()
		ahead(0)
		ahead(since1970 - time.Duration(f.storeNow().UnixNano()))
	}
	for name, p := range map[string]limiter.FixedWindow{
		"w": {Limit: 2, Window: 24 * time.Hour}, "c": {Limit: 2, Window: 24 * time.Hour, CountRejected: true},
	} {
		l := f.on(f.store, f.prefix+name, p)
		at(time.Minute)
		f.passes(l, "k", 2)
		at(23 * time.Hour)
		f.sweepAll(sw, 1000)
		f.refuses(l, "k", 1)
		at(26 * time.Hour)
		if n := f.sweepAll(sw, 1000); n != 1 {
			f.Errorf("%+v: Sweep removed %d rows on the second day, want 1", p, n)
		}
		f.passes(l, "k", 2)
		f.reset(l, "k")
		at(28 * time.Hour)
		if n := f.sweepAll(sw, 1000); n != 1 {
			f.Errorf("%+v: Sweep removed %d rows an hour after the reset, want 1", p, n)
		}
	}
	ahead(0)
}
