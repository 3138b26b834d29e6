package borrow

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
)

func TestShutdown(t *testing.T) {
	ctx := context.Background()
	in(t, "gives back what is held, of all keys", 1000, func(b *bed) {
		b.hold()
		for _, key := range []string{"a", "b", "c"} {
			for range 2 * busy {
				if _, err := b.l.Allow(ctx, key); err != nil {
					b.Fatal(err)
				}
			}
		}
		if stats := b.store.Stats(); stats.Holdings != 4 {
			b.Errorf("%+v", stats)
		}
		for range 2 {
			if err := b.store.Shutdown(ctx); err != nil {
				b.Error(err)
			}
		}
		stats := b.store.Stats()
		if b.used() != 4 || stats.Holdings != 0 || stats.Lost != 0 || stats.Borrowed-stats.GivenBack != 1+3*5 {
			b.Errorf("%d are charged; %+v", b.used(), stats)
		}
		b.sent()
		b.allow(1, true)
		b.sends(op(limiter.OpTake, 1))
	})
	in(t, "waits for a borrow in flight", 1000, func(b *bed) {
		b.hold()
		b.allow(3, true)
		release := b.block(limiter.OpTakeUpTo)
		own, waits := b.ask(ctx, 1), b.ask(ctx, 1)
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		if err := b.store.Shutdown(short); !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, context.DeadlineExceeded) {
			b.Error(err)
		}
		done := make(chan error, 1)
		go func() { done <- b.store.Shutdown(ctx) }()
		synctest.Wait()
		if len(done) > 0 {
			b.Error("it did not wait")
		}
		release(nil)
		if a, c := <-own, <-waits; !a.Allowed || !c.Allowed || <-done != nil {
			b.Errorf("%+v, %+v", a, c)
		}
		if stats := b.store.Stats(); b.used() != 7+2 || stats.GivenBack != 15 {
			b.Errorf("%d are charged; %+v", b.used(), stats)
		}
	})
	in(t, "gives nothing back after its context has ended", 1000, func(b *bed) {
		b.hold()
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := b.store.Shutdown(ended); !errors.Is(err, limiter.ErrCanceled) || b.holds() != 3 {
			b.Errorf("%v; %d are held", err, b.holds())
		}
		if err := b.store.Shutdown(ctx); err != nil || b.used() != 4 {
			b.Errorf("%v; %d are charged", err, b.used())
		}
	})
	in(t, "says that tokens are lost", 1000, func(b *bed) {
		b.hold()
		b.inner.before = func(limiter.Op) error { return limiter.ErrNotApplied }
		if err := b.store.Shutdown(ctx); !errors.Is(err, limiter.ErrNotApplied) || b.store.Stats().Lost != 3 {
			b.Errorf("%v; %+v", err, b.store.Stats())
		}
	})
}
