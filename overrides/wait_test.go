package overrides_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/overrides"
)

func TestWaitForRead(t *testing.T) {
	t.Parallel()
	const deadline = 50 * time.Millisecond
	// leave asks for the policy of "k" with a near deadline.
	leave := func(t *testing.T, f policyFor) (limiter.Policy, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		defer cancel()
		return f(ctx, "k")
	}

	t.Run("ends with the context, and the read continues", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			source, seen := &fakeSource{takes: 500 * time.Millisecond}, &reported{}
			source.set("k", 5)
			f := overrides.New(source, "api", seen.option())
			l := withOverrides(t, f, limiter.FailOpen())
			began := time.Now()
			for i := range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				r, err := l.Allow(ctx, "k")
				cancel()
				if r.Allowed || !errors.Is(err, limiter.ErrCanceled) || time.Since(began) != time.Duration(i+1)*deadline {
					t.Errorf("Allow after %v: %+v, %v; want ErrCanceled at the deadline", time.Since(began), r, err)
				}
			}
			want(t, f, "k", 5)
			if n, d := source.count(), time.Since(began); n != 1 || d != 500*time.Millisecond || len(seen.errs) != 0 {
				t.Errorf("%d reads in %v, errors %v; want one read that succeeds after 500 ms", n, d, seen.errs)
			}
		})
	})

	t.Run("ends if the source panics", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			seen := &reported{}
			f := overrides.New(panicking{}, "api", seen.option())
			if p, err := leave(t, f); p != nil || err != nil {
				t.Errorf("%+v, %v; want the policy of New", p, err)
			}
			if len(seen.errs) != 1 || !errors.Is(seen.errs[0], limiter.ErrNotApplied) {
				t.Errorf("OnError got %v, want ErrNotApplied once", seen.errs)
			}
		})
	})

	t.Run("leaves half of the time to the decision", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			source := &fakeSource{}
			source.set("k", 5)
			f := overrides.New(source, "api", overrides.MaxAge(10*time.Second), overrides.OnError(func(error) {}))
			want(t, f, "k", 5)
			<-time.After(10 * time.Second)
			source.change(func() { source.takes = time.Hour })
			began := time.Now()
			for range 2 { // the second does not wait, because the read is in flight
				p, err := leave(t, f)
				if d := time.Since(began); err != nil || p != limiter.Policy(limiter.PerMinute(5)) || d != deadline/2 {
					t.Errorf("after %v: %+v, %v; want the old policy after %v", d, p, err, deadline/2)
				}
			}
			if n := source.count(); n != 2 {
				t.Errorf("%d reads, want 2", n)
			}
			<-time.After(time.Second) // a goroutine that is left fails the test
		})
	})

	t.Run("ends with a new read if the process was frozen", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			source, clock := &fakeSource{takes: time.Hour}, newClocks()
			f := overrides.New(source, "api", clock.option())
			var waiting sync.WaitGroup
			waiting.Go(func() { want(t, f, "k", 5) })
			synctest.Wait()
			clock.move(time.Minute, 0) // the other clock and all timers stand still
			source.set("k", 5)
			source.change(func() { source.takes = 0 })
			began := time.Now()
			want(t, f, "k", 5)
			waiting.Wait()
			if n, d := source.count(), time.Since(began); n != 2 || d != 0 {
				t.Errorf("%d reads in %v, want a second one at once", n, d)
			}
		})
	})

	t.Run("begins again after the failure of a frozen read", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			source, clock, seen := &fakeSource{}, newClocks(), &reported{}
			source.set("k", 5)
			f := overrides.New(source, "api", overrides.MaxAge(10*time.Second), clock.option(), seen.option())
			want(t, f, "k", 5)
			clock.advance(10 * time.Second)
			source.change(func() { source.takes = time.Hour })
			if _, err := leave(t, f); err != nil {
				t.Error(err)
			}
			clock.move(time.Minute, 0)
			<-time.After(time.Second)
			synctest.Wait()
			source.set("k", 7)
			source.change(func() { source.takes = 0 })
			want(t, f, "k", 7)
			if len(seen.errs) != 1 {
				t.Errorf("OnError got %v, want one error", seen.errs)
			}
		})
	})
}
