package borrow

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

// Rule 4.
func TestBorrow(t *testing.T) {
	ctx := context.Background()
	during := func(name string, held int64, test func(f *fixture, release func(error))) {
		run(t, name, 1000, func(f *fixture) {
			f.hold()
			if held == 0 {
				f.allow(3, true)
			}
			test(f, f.block(limiter.OpTakeUpTo))
		})
	}
	during("is one for each key", 0, func(f *fixture, release func(error)) {
		var takes []<-chan answer
		for range 10 {
			takes = append(takes, f.ask(ctx, 1))
		}
		f.sends(op(limiter.OpTakeUpTo, 16))
		release(nil)
		f.granted(takes...)
		f.sends()
		if stats := f.store.Stats(); stats.Local != 1+9 || stats.Borrows != 2 || stats.Borrowed != 20 {
			f.Errorf("%+v", stats)
		}
	})
	during("sets aside what its own take needs", 3, func(f *fixture, release func(error)) {
		own, small := f.ask(ctx, 4), f.ask(ctx, 1)
		if len(small) > 0 {
			f.Error("the tokens were spent twice")
		}
		release(nil)
		f.granted(own, small)
		f.state(11, 3+4+13)
	})
	during("goes on when its caller leaves", 3, func(f *fixture, release func(error)) {
		<-time.After(ttl / 2)
		left, cancel := context.WithCancel(ctx)
		own, waits := f.ask(left, 4), f.ask(left, 1)
		cancel()
		for _, take := range []<-chan answer{own, waits} {
			if a := <-take; !errors.Is(a.err, limiter.ErrCanceled) || errors.Is(a.err, limiter.ErrOutcomeUnknown) {
				f.Errorf("%+v", a)
			}
		}
		if f.store.shards[0].leave(&waiter{done: closed}) {
			f.Error("a caller left after its take was decided")
		}
		release(nil)
		f.state(8, 4+8)
		<-time.After(ttl / 2)
		f.allow(100, true) // the 3 older tokens make all 8 expire
		f.stats(8, 0)
	})
	run(t, "spends nothing that is older than the ttl", 1000, func(f *fixture) {
		f.hold()
		<-time.After(ttl / 2)
		release := f.block(limiter.OpTakeUpTo)
		own := f.ask(ctx, 14)
		<-time.After(ttl / 2)
		release(nil) // 13 tokens do not cover the take, because the 3 older ones have expired
		release(nil)
		f.granted(own)
		f.state(0, 4+14)
		f.stats(3, 0)
	})
	run(t, "does not take a caller whose context has ended", 1000, func(f *fixture) {
		f.hold()
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := f.store.Do(ended, limiter.Op{Kind: limiter.OpTake, Name: "test", Key: "k", Policy: hourly, Cost: 1})
		if !errors.Is(err, limiter.ErrCanceled) || f.holds() != 3 {
			f.Errorf("%v; %d are held", err, f.holds())
		}
		testenv.Must(f, testenv.ErrorOf(f.store.Do(ctx, limiter.Op{Kind: limiter.OpTake, Name: "test", Key: "k", Policy: hourly, Cost: 4})))
	})
}

// Rule 5.
func TestWaitingTakes(t *testing.T) {
	ctx := context.Background()
	// first, of the cost, sends a borrow, when none are held and left tokens are in the store.
	during := func(name string, left, cost int64, test func(f *fixture, release func(error), first <-chan answer)) {
		run(t, name, 1000, func(f *fixture) {
			f.hold()
			f.allow(3, true)
			_, err := f.limiter(f.inner.Store, hourly).AllowN(ctx, "k", hourly.Capacity-7-left)
			testenv.Must(f, err)
			f.sent()
			release := f.block(limiter.OpTakeUpTo)
			first := f.ask(ctx, cost)
			f.l = f.limiter(f.store, hourly)
			test(f, release, first)
		})
	}
	during("are refused only by one that was sent after, and share it", 1, 1, func(f *fixture, release func(error), first <-chan answer) {
		waits := []<-chan answer{f.ask(ctx, 1), f.ask(ctx, 1), f.ask(ctx, 1)}
		release(nil)
		f.granted(first)
		late := f.ask(ctx, 1)
		testenv.Equal(f, len(f.sent()), 2, "statements, the second one for the others")
		release(nil)
		for _, wait := range waits {
			if a := <-wait; a.err != nil || a.Allowed || a.RetryAfter == 0 {
				f.Errorf("%+v", a)
			}
		}
		f.sends(op(limiter.OpTakeUpTo, 125))
		release(nil)
		f.refused(late)
	})
	during("are not refused because the chunk was too small", 900, 1, func(f *fixture, release func(error), first <-chan answer) {
		takes := []<-chan answer{first}
		f.refused(f.ask(ctx, 1), limiter.ErrNotApplied) // this take times out and is not charged
		for range 40 {
			takes = append(takes, f.ask(ctx, 1))
		}
		release(nil)
		release(nil)
		f.granted(takes...)
		f.state(39, 100+16+64)
	})
	during("time out in the queue as on a store", 1, 1, func(f *fixture, release func(error), first <-chan answer) {
		wait, begin := f.ask(ctx, 1), time.Now()
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, failed := f.store.Do(ended, limiter.Op{})
		_, failedAll := f.store.DoAll(ended, nil)
		if failed == nil || failedAll == nil {
			f.Errorf("calls of an ended context: %v, %v", failed, failedAll)
		}
		if a := <-wait; !errors.Is(a.err, limiter.ErrNotApplied) || errors.Is(a.err, limiter.ErrKeyBusy) || !limiter.StoreFailed(a.err) || time.Since(begin) != limiter.DefaultTimeout {
			f.Errorf("%v", a.err)
		}
		busy := f.ask(ctx, 1)
		testenv.Must(f, testenv.ErrorOf(f.l.Allow(ctx, "other")))
		f.refused(busy, limiter.ErrKeyBusy, limiter.ErrNotApplied)
		busy = f.ask(ctx, 1)
		testenv.Must(f, testenv.ErrorOf(limiter.AllowAll(ctx, limiter.Claim{Limiter: f.l, Key: "other"}, limiter.Claim{Limiter: f.l, Key: "third"})))
		f.refused(busy, limiter.ErrKeyBusy, limiter.ErrNotApplied)
		third := f.ask(ctx, 1)
		<-time.After(limiter.DefaultTimeout / 2)
		release(nil)
		f.granted(first) // the store keeps its time
		<-time.After(limiter.DefaultTimeout)
		release(nil)
		f.refused(third)
		f.refused(f.ask(ctx, 1), limiter.ErrNotApplied) // the statement of another limiter's takes may have more time
		release(nil)
	})
	during("are too many if they time out while the store answers", 1, 5, func(f *fixture, release func(error), first <-chan answer) {
		<-time.After(ttl - 1)
		wait := f.ask(ctx, 1)
		f.inner.before = func(limiter.Op) error { <-time.After(limiter.DefaultTimeout); return nil }
		<-time.After(1)
		release(nil)
		f.refused(first)
		f.refused(wait, limiter.ErrKeyBusy, limiter.ErrNotApplied)
		<-time.After(ttl)
	})
}

// Rule 6.
func TestGiveBack(t *testing.T) {
	run(t, "is sent at the next take", 1000, func(f *fixture) {
		f.hold()
		<-time.After(2*ttl - 1)
		f.sends()
		f.allow(1, true) // the fifth take in two ttl: too few to take ahead
		f.sends(op(limiter.OpRefund, 3), op(limiter.OpTake, 1))
		f.allow(1, true)
		f.sends(op(limiter.OpTake, 1))
	})
	run(t, "is of one that costs more than n", 50, func(f *fixture) {
		f.hold()
		f.allow(51, true)
		f.sends(op(limiter.OpRefund, 3), op(limiter.OpTake, 51))
		release := f.block(limiter.OpTakeUpTo)
		own := f.ask(f.Context(), 1)
		f.allow(51, true) // it does not wait for the borrow
		release(nil)
		f.granted(own)
	})
	run(t, "is not repeated", 1000, func(f *fixture) {
		f.hold()
		<-time.After(ttl)
		f.inner.after = fail(limiter.OpRefund, limiter.ErrOutcomeUnknown)
		f.allow(1, true)
		f.allow(1, true)
		f.stats(0, 3)
		f.inner.after = nil
		testenv.Must(f, f.store.Shutdown(f.Context())) // which reports only what fails after it was called
	})
	run(t, "waits for the one before", 1000, func(f *fixture) {
		f.hold()
		before := make(chan struct{})
		f.entry().back = before
		charged := make(chan error, 1)
		go func() { charged <- testenv.ErrorOf(f.l.Charge(f.Context(), "k", 1)) }()
		synctest.Wait()
		f.sends(op(limiter.OpRefund, 3))
		close(before)
		testenv.Must(f, <-charged)
		f.sends(op(limiter.OpCharge, 1))
	})
	// The bucket was full, so its refill of ten tokens was lost to the tokens that were held. Later they
	// would be too many.
	run(t, "leaves out what has come back by itself", 1000, func(f *fixture) {
		f.l = f.limiter(f.store, limiter.TokenBucket{Capacity: 1000, Refill: 2, Interval: time.Second})
		f.hold()
		<-time.After(ttl)
		f.allow(1, true)
		f.stats(3, 0)
		testenv.Equal(f, f.sent()[0].Cost, 1, "what was given back")
	})
	// The others give back what they hold, so the bucket is full before the last one gives back.
	run(t, "lets nothing pass twice after others gave back", 1024, func(f *fixture) {
		p := limiter.TokenBucket{Capacity: 9000, Refill: 1, Interval: time.Second}
		var others []*Store
		for range 7 {
			others = append(others, f.store)
			f.store = f.open(1024)
			f.l = f.limiter(f.store, p)
			for range 345 {
				f.allow(1, true)
			}
		}
		for _, s := range others {
			_ = s.Shutdown(f.Context())
		}
		<-time.After(time.Hour)
		last := f.l
		f.l = f.limiter(f.inner.Store, p)
		f.allow(p.Capacity, true)
		f.l = last
		f.allow(1, false)
	})
	run(t, "carries parts of a token over", 1000, func(f *fixture) {
		h := holding{policy: hourly, tokens: 5}
		h.state.Row.Period = 10
		var carried, back int64
		h.charged = instant{100, 200}
		for i := range int64(10) {
			back += h.refund(instant{104 + i%2*3, 207 - i%2*3}, &carried) // 70 in all, of which a tenth comes back each
		}
		if late := h.refund(instant{157, 257}, &carried); back != 50-7 || late != 0 || carried != 0 {
			f.Errorf("%d of 50 are given back, want 43; %d after all came back, and %d ns are left", back, late, carried)
		}
	})
}

// Rule 7.
func TestFailedBorrow(t *testing.T) {
	ctx := context.Background()
	for what, failed := range map[string]error{"certain": limiter.ErrNotApplied, "unknown": limiter.ErrOutcomeUnknown} {
		run(t, "is the error of its take alone, "+what, 1000, func(f *fixture) {
			f.hold()
			release := f.block(limiter.OpTakeUpTo)
			own, waits := f.ask(ctx, 4), f.ask(ctx, 5)
			release(failed)
			f.refused(own, failed)
			release(nil)
			f.granted(waits)
			f.sends(op(limiter.OpTakeUpTo, 16-3), op(limiter.OpTakeUpTo, 64-3)) // the 3 are still held
			f.state(64-5, 7+61)
		})
	}
	run(t, "adds nothing if its outcome is unknown", 1000, func(f *fixture) {
		f.hold()
		f.allow(3, true)
		f.inner.after = func(limiter.Op) error { return limiter.ErrOutcomeUnknown }
		f.refused(f.ask(ctx, 1), limiter.ErrOutcomeUnknown)
		f.inner.after = nil
		f.state(0, 7+16)
	})
	run(t, "ends no process by a panic", 1000, func(f *fixture) {
		f.hold()
		f.allow(3, true)
		f.inner.before = func(limiter.Op) error { panic("broken") }
		f.refused(f.ask(ctx, 1), limiter.ErrOutcomeUnknown)
	})
	run(t, "is the last if the store cannot take up to a cost", 1000, func(f *fixture) {
		f.inner.before = fail(limiter.OpTakeUpTo, fmt.Errorf("inner: %w", errors.ErrUnsupported))
		for range 20 {
			f.allow(1, true)
		}
		if stats := f.store.Stats(); stats.Borrows != 1 || f.used() != 20 {
			f.Errorf("%+v, %d are charged", stats, f.used())
		}
	})
}
