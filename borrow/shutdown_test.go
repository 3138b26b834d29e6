package borrow

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestShutdown(t *testing.T) {
	ctx := context.Background()
	run(t, "gives back what is held, of all keys", 1000, func(f *fixture) {
		f.hold()
		for _, key := range []string{"a", "f", "c"} {
			for range 2 * busy {
				testenv.Must(f, testenv.ErrorOf(f.l.Allow(ctx, key)))
			}
		}
		if stats := f.store.Stats(); stats.Holdings != 4 {
			f.Errorf("%+v", stats)
		}
		for range 2 {
			testenv.Must(f, f.store.Shutdown(ctx))
		}
		f.state(0, 4)
		if stats := f.store.Stats(); stats.Holdings != 0 || stats.Lost != 0 || stats.Borrowed-stats.GivenBack != 1+3*5 {
			f.Errorf("%+v", stats)
		}
		f.sent()
		f.allow(1, true)
		f.sends(op(limiter.OpTake, 1))
	})
	run(t, "waits for a borrow in flight", 1000, func(f *fixture) {
		f.hold()
		f.allow(3, true)
		release := f.block(limiter.OpTakeUpTo)
		own, waits := f.ask(ctx, 1), f.ask(ctx, 1)
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		if err := f.store.Shutdown(short); !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, context.DeadlineExceeded) {
			f.Error(err)
		}
		done := make(chan error, 1)
		go func() { done <- f.store.Shutdown(ctx) }()
		synctest.Wait()
		if len(done) > 0 {
			f.Error("it did not wait")
		}
		release(nil)
		f.granted(own, waits)
		testenv.Must(f, <-done)
		f.state(0, 7+2)
		f.stats(15, 0)
	})
	run(t, "gives nothing back after its context has ended", 1000, func(f *fixture) {
		f.hold()
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := f.store.Shutdown(ended); !errors.Is(err, limiter.ErrCanceled) || f.holds() != 3 {
			f.Errorf("%v; %d are held", err, f.holds())
		}
		testenv.Must(f, f.store.Shutdown(ctx))
		f.state(0, 4)
	})
	run(t, "says that a borrow in flight lost tokens", 1000, func(f *fixture) {
		f.hold()
		f.allow(3, true)
		release := f.block(limiter.OpTakeUpTo)
		f.inner.after = func(op limiter.Op) error {
			if op.Kind == limiter.OpRefund {
				return limiter.ErrOutcomeUnknown
			}
			return nil
		}
		own, done := f.ask(ctx, 1), make(chan error, 1)
		go func() { done <- f.store.Shutdown(ctx) }()
		synctest.Wait()
		release(nil)
		f.granted(own)
		if err := <-done; !errors.Is(err, limiter.ErrOutcomeUnknown) {
			f.Errorf("Shutdown: %v, want ErrOutcomeUnknown", err)
		}
	})
	run(t, "says that tokens are lost", 1000, func(f *fixture) {
		f.hold()
		f.inner.before = func(limiter.Op) error { return limiter.ErrNotApplied }
		if err := f.store.Shutdown(ctx); !errors.Is(err, limiter.ErrNotApplied) || f.store.Stats().Lost != 3 {
			f.Errorf("%v; %+v", err, f.store.Stats())
		}
	})
}
