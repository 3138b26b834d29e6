package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// RunClock tests what a store does when its own clock is stepped back, for stores
// whose clock a test can move. The function open returns an empty store and a
// function that puts its clock ahead of its usual time, by 0 for not at all; the
// clock may go on by itself. [Run] tests the same with times that are passed in.
func RunClock(t *testing.T, open func(t *testing.T) (store limiter.Store, ahead func(time.Duration))) {
	store, ahead := open(t)
	cases := []struct {
		name   string
		policy limiter.Policy
		owed   time.Duration // the longest that a key which took all of it is locked out
	}{
		{"bucket", limiter.TokenBucket{Capacity: 2, Refill: 1, Interval: 10 * time.Minute}, 10 * time.Minute},
		{"window shorter than the step", limiter.FixedWindow{Limit: 2, Window: 10 * time.Minute}, 10 * time.Minute},
		{"window as long as the step", limiter.FixedWindow{Limit: 2, Window: time.Hour}, time.Hour},
		{"window longer than the step", limiter.FixedWindow{Limit: 2, Window: 25 * time.Hour}, 25 * time.Hour},
		{"window that counts refusals", limiter.FixedWindow{Limit: 2, Window: time.Hour, CountRejected: true}, time.Hour},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			const rule = "the rule: a clock that was an hour ahead and came back grants nothing, and locks no key out for longer than it owed plus 2 s"
			f := &fixture{T: t, store: store}
			l := f.on(store, "clock", c.policy)
			allow := func() limiter.Result {
				t.Helper()
				r, err := l.Allow(context.Background(), c.name)
				if err != nil {
					t.Fatalf("Allow: %v", err)
				}
				return r
			}
			ahead(time.Hour)
			for i := range 3 {
				if r := allow(); r.Allowed != (i < 2) {
					t.Fatalf("request %d: %+v, want 2 to pass", i+1, r)
				}
			}
			ahead(0)
			wait := time.Duration(0) // from when the clock had come back
			for range 3 {            // a refusal on the way must not begin the wait anew
				r := allow()
				if r.Allowed || r.RetryAfter <= 0 || wait+r.RetryAfter > c.owed+limiter.ClockTolerance {
					t.Fatalf("%v after the clock came back: %+v, want a refusal for at most %v in all\n%s", wait, r, c.owed, rule)
				}
				wait += r.RetryAfter / 2
				ahead(wait)
			}
			r, err := l.Peek(context.Background(), c.name)
			if err != nil {
				t.Fatalf("Peek: %v", err)
			}
			ahead(wait + r.RetryAfter)
			if r := allow(); !r.Allowed {
				t.Errorf("%v after the clock came back: %+v, want it to pass\n%s", wait+r.RetryAfter, r, rule)
			}
		})
	}
}
