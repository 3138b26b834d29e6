package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

var clockCases = []testCase{
	{
		"bookings survive a clock that was ahead",
		"a clock that is set back keeps the queue: what was booked ahead of the clock lies as far ahead of it as before",
		func(f *fixture) {
			w := f.limiter("w", window(1, 10*s))
			f.at(time.Hour)
			for i := range 3 {
				f.books(w, "k", 1, time.Duration(i)*10*s)
			}
			f.at(3 * s)
			f.refuses(w, "k", 1)
			f.books(w, "k", 1, 27*s) // 23 s lies in the window from 20 s on, which is full
		},
	},
	{
		"a window is charged or blocked after a clock that was ahead",
		"a charge counts, and a block lasts, from the clock that was set back, and a step back over an edge after it is borne",
		func(f *fixture) {
			for name, p := range map[string]limiter.Policy{"w": window(5, 10*s), "c": counting(5, 10*s)} {
				charged := f.limiter(name+"-charged", p)
				f.script(charged, "k", []call{
					{at: time.Hour, n: 1, allowed: true, remaining: 4, used: 1, reset: 10 * s},
					{at: 5 * s, verb: charge, n: 1, used: 6, retry: 5 * s, reset: 5 * s},
					{at: 5 * s, verb: peek, used: 6, retry: 5 * s, reset: 5 * s},
					{at: 10 * s, verb: charge, n: 1, allowed: true, remaining: 4, used: 1, reset: 10 * s},
					{at: 9 * s, n: 1, allowed: true, remaining: 3, used: 2, reset: 11 * s},
				})
				blocked := f.limiter(name+"-blocked", p)
				f.script(blocked, "k", []call{
					{at: time.Hour, n: 1, allowed: true, remaining: 4, used: 1, reset: 10 * s},
					{at: 5 * s, verb: block, maxWait: 30 * s},
					{at: 5 * s, verb: peek, used: 5, retry: 35 * s, reset: 35 * s},
					{at: 40 * s, n: 5, allowed: true, used: 5, reset: 10 * s},
					{at: time.Hour, verb: block, maxWait: 30 * s},
					{at: 5 * s, verb: peek, used: 5, retry: 45 * s, reset: 45 * s},
				})
				op := limiter.Op{Kind: limiter.OpBlock, Name: blocked.Name(), Key: "took", Policy: p, Cost: 1, At: f.now.UnixNano()}
				if state, err := f.store.Do(context.Background(), op); err != nil || !state.Took {
					f.Errorf("%s: a block: %+v, %v, want Took", name, state, err)
				}
			}
		},
	},
	{
		"a window's times are told on the caller's clock",
		"after a small step back, Delay, RetryAfter and ResetAfter count from the clock of this operation: a caller that waits for them acts in the window that it was charged in",
		func(f *fixture) {
			for _, back := range []time.Duration{490 * ms, 1900 * ms, limiter.ClockTolerance} {
				l := f.limiter("w"+back.String(), window(100, s))
				const exhausted, edge = 10*s + 500*ms, 11 * s
				at := exhausted - back
				left := edge - at // until the window after the exhausted one
				f.script(l, "k", []call{
					{at: exhausted, n: 100, allowed: true, used: 100, reset: 500 * ms},
					{at: at, verb: peek, used: 100, retry: left, reset: left},
					{at: at, n: 1, used: 100, retry: left, reset: left},
					{at: at, verb: reserve, n: 1, maxWait: left - ns, used: 100, retry: ns, reset: left},
					{at: at, verb: reserve, n: 1, maxWait: left, allowed: true, used: 100, reset: left + s, delay: left},
					{at: at, verb: reserve, n: 99, maxWait: time.Hour, allowed: true, used: 100, reset: left + s, delay: left},
					{at: at, verb: reserve, n: 1, maxWait: left, used: 100, retry: s, reset: left + s},
					{at: at, verb: reserve, n: 1, maxWait: time.Hour, allowed: true, used: 100, reset: left + 2*s, delay: left + s},
					{at: edge - ns, n: 1, used: 100, retry: s + ns, reset: 2*s + ns},
				})

				c := f.limiter("c"+back.String(), counting(100, s))
				f.script(c, "k", []call{
					{at: exhausted, n: 100, allowed: true, used: 100, reset: 500 * ms},
					{at: at, verb: peek, used: 100, retry: left, reset: left},
					{at: at, n: 1, used: 101, retry: left, reset: left},
				})
			}
		},
	},
	{
		"a window that the row has reached is waited for on the caller's clock",
		"after a small step back over an edge, a booking in the row's window acts when that comes, or after the longest wait if that is less: no later than Allow, which acts at once",
		func(f *fixture) {
			l := f.limiter("l", window(100, 10*s))
			f.script(l, "k", []call{
				{at: 10 * s, n: 1, allowed: true, remaining: 99, used: 1, reset: 10 * s},
				{at: 9 * s, verb: reserve, n: 1, maxWait: time.Hour, allowed: true, remaining: 98, used: 2, reset: 11 * s, delay: s},
				{at: 9 * s, verb: reserve, n: 1, maxWait: 300 * ms, allowed: true, remaining: 97, used: 3, reset: 11 * s, delay: 300 * ms},
				{at: 9 * s, verb: reserve, n: 1, allowed: true, remaining: 96, used: 4, reset: 11 * s},
				{at: 9 * s, n: 1, allowed: true, remaining: 95, used: 5, reset: 11 * s},
				{at: 9 * s, n: 96, remaining: 95, used: 5, retry: 11 * s, reset: 11 * s},
			})
			f.at(9 * s)
			r := f.books(l, "k", 5, s)
			f.at(10 * s)
			f.cancel(r) // its turn has just come
			if got := f.peek(l, "k"); got.Used != 5 {
				f.Errorf("after Cancel: %+v, want Used 5", got)
			}
			f.at(9 * s)
			r = f.reserve(l, "k", 5, 300*ms)
			f.at(9*s + 300*ms + ns)
			f.cancel(r) // it may have acted
			if got := f.peek(l, "k"); got.Used != 10 {
				f.Errorf("after a late Cancel: %+v, want Used 10", got)
			}
		},
	},
	{
		"an own clock may be late by the shorter window",
		"an operation with its own clock may be late by the shorter of the two windows, and always by 2 s; it finds the row as it is; if it is late by 1 ns more, the clock was set back",
		func(f *fixture) {
			for i, c := range []struct {
				was, p limiter.Policy
				late   time.Duration
			}{
				{window(5, 10*s), window(5, 10*s), 10 * s},
				{window(5, 10*s), window(5, time.Minute), 10 * s},
				{window(5, s), window(5, s), 2 * s},
				{window(5, s), daily(5), 2 * s},
				{bucket(1, s), bucket(1, s), 2 * s},
				{sliding(5, s), sliding(5, s), 2 * s},
				{sliding(5, 160*s), sliding(5, 320*s), 160 * s},
			} {
				l := f.limiter(fmt.Sprint(i), c.p)
				for key, late := range map[string]time.Duration{"in": c.late, "out": c.late + ns} {
					f.at(day)
					f.passes(f.limiter(fmt.Sprint(i), c.was), key, 1)
					end := day + f.peek(l, key).ResetAfter
					f.at(day - late)
					r := f.allow(l, key, 1)
					kept := day-late+r.ResetAfter == end
					if in := key == "in"; kept != in || limiter.KindOf(c.p) == limiter.KindWindow && r.Allowed != in {
						f.Errorf("%v late by %v: %+v; it found the row as it was: %v, want %v", c.p, late, r, kept, in)
					}
				}
			}
		},
	},
	{
		"a step forward refills at most to full",
		"a clock that leaps ahead gives no more than a full bucket, or one window",
		forEach(plain(5, s, 10*s), func(f *fixture, l *limiter.Limiter) {
			for _, at := range []time.Duration{0, time.Hour, 40 * 365 * 24 * time.Hour} {
				f.at(at)
				f.passes(l, "k", 5)
				f.refuses(l, "k", 1)
			}
		}),
	},
	{
		"the edges of time",
		"the first and the last instants that a clock may say are instants like others",
		forEach(plain(2, s, 48*time.Minute), func(f *fixture, l *limiter.Limiter) {
			for key, at := range map[string]time.Time{
				"first": time.Unix(0, 1), "2038": time.Unix(1<<31, 0), "last": time.Date(2079, 1, 1, 0, 0, 0, 0, time.UTC),
			} {
				f.now = at
				f.passes(l, key, 1)
				f.books(l, key, 1, 0)
				f.refuses(l, key, 1)
				if r := f.reserve(l, key, 1, limiter.MaxReserve); !r.Allowed || r.Delay <= 0 {
					f.Errorf("%s: Reserve = %+v, Delay %v", key, r.Result, r.Delay)
				}
			}
		}),
	},
}

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
