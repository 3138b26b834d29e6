package borrow

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// Rule 4.
func TestBorrow(t *testing.T) {
	ctx := context.Background()
	run(t, "takes what a chunk lacks", 1000, func(f *fixture) {
		f.hold()
		f.allow(4, true) // of 3 that are held, and the chunk is 16
		f.sends(op(limiter.OpTakeUpTo, 16-3))
		if f.holds() != 12 {
			f.Errorf("%d are held", f.holds())
		}
		f.allow(100, true) // more than the chunk
		f.sends(op(limiter.OpTakeUpTo, 100-12))
		if f.holds() != 0 || f.used() != 3+4+13+88 {
			f.Errorf("%d are held, %d charged", f.holds(), f.used())
		}
	})
	run(t, "is one for each key", 1000, func(f *fixture) {
		f.hold()
		f.allow(3, true)
		release := f.block(limiter.OpTakeUpTo)
		var waits []<-chan answer
		for range 10 {
			waits = append(waits, f.ask(ctx, 1))
		}
		f.sends(op(limiter.OpTakeUpTo, 16))
		release(nil)
		for _, wait := range waits {
			if a := <-wait; a.err != nil || !a.Allowed {
				f.Errorf("%+v", a)
			}
		}
		f.sends()
		if stats := f.store.Stats(); stats.Local != 1+9 || stats.Borrows != 2 || stats.Borrowed != 20 {
			f.Errorf("%+v", stats)
		}
	})
	run(t, "sets aside what its own take needs", 1000, func(f *fixture) {
		f.hold()
		release := f.block(limiter.OpTakeUpTo)
		own := f.ask(ctx, 4)
		small := f.ask(ctx, 1)
		select {
		case a := <-small:
			f.Errorf("the tokens were spent twice: %+v", a)
		default:
		}
		release(nil)
		if a, c := <-own, <-small; !a.Allowed || !c.Allowed || f.holds() != 11 {
			f.Errorf("%+v, %+v; %d are held", a, c, f.holds())
		}
	})
	run(t, "goes on when its caller leaves", 1000, func(f *fixture) {
		f.hold()
		release := f.block(limiter.OpTakeUpTo)
		left, cancel := context.WithCancel(ctx)
		own, waits := f.ask(left, 4), f.ask(left, 1)
		cancel()
		for _, wait := range []<-chan answer{own, waits} {
			if a := <-wait; !errors.Is(a.err, limiter.ErrCanceled) || errors.Is(a.err, limiter.ErrOutcomeUnknown) {
				f.Errorf("%+v", a)
			}
		}
		release(nil)
		if f.holds() != 16 {
			f.Errorf("%d are held, want 16", f.holds())
		}
	})
	run(t, "does not take a caller whose context has ended", 1000, func(f *fixture) {
		f.hold()
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := f.store.Do(ended, limiter.Op{Kind: limiter.OpTake, Name: "test", Key: "k", Policy: hourly, Cost: 1})
		if !errors.Is(err, limiter.ErrCanceled) || f.holds() != 3 {
			f.Errorf("%v; %d are held", err, f.holds())
		}
	})
	run(t, "that lasts longer than the ttl adds nothing", 1000, func(f *fixture) {
		f.hold()
		f.allow(3, true)
		release := f.block(limiter.OpTakeUpTo)
		own := f.ask(ctx, 1)
		<-time.After(ttl)
		release(nil)
		if a, stats := <-own, f.store.Stats(); !a.Allowed || f.holds() != 0 || stats.GivenBack != 15 {
			f.Errorf("%+v; %d are held; %+v", a, f.holds(), stats)
		}
	})
	run(t, "spends nothing that is older than the ttl", 1000, func(f *fixture) {
		f.hold()
		<-time.After(ttl / 2)
		release := f.block(limiter.OpTakeUpTo)
		own := f.ask(ctx, 4)
		<-time.After(ttl / 2)
		release(nil)
		if a, stats := <-own, f.store.Stats(); !a.Allowed || stats.GivenBack != 3 || f.holds() != 1 {
			f.Errorf("%+v; %d are held; %+v", a, f.holds(), stats)
		}
	})
}

// Rule 5.
func TestWaitingTakes(t *testing.T) {
	ctx := context.Background()
	// spent makes the bucket empty but for left, with nothing held.
	spent := func(f *fixture, left int64) {
		f.hold()
		f.allow(3, true)
		l := f.limiter(f.inner.Store, hourly)
		if res, err := l.AllowN(ctx, "k", hourly.Capacity-7-left); err != nil || !res.Allowed {
			f.Fatal(res, err)
		}
		f.sent()
	}
	run(t, "are granted by a borrow that was sent before", 1000, func(f *fixture) {
		spent(f, 2)
		release := f.block(limiter.OpTakeUpTo)
		first, second := f.ask(ctx, 1), f.ask(ctx, 1)
		release(nil)
		if a, c := <-first, <-second; !a.Allowed || !c.Allowed {
			f.Errorf("%+v, %+v", a, c)
		}
	})
	run(t, "are refused only by one that was sent after, and share it", 1000, func(f *fixture) {
		spent(f, 1)
		release := f.block(limiter.OpTakeUpTo)
		first := f.ask(ctx, 1)
		var waits []<-chan answer
		for range 5 {
			waits = append(waits, f.ask(ctx, 1))
		}
		release(nil)
		if a := <-first; !a.Allowed {
			f.Errorf("%+v", a)
		}
		late := f.ask(ctx, 1)
		if n := len(f.sent()); n != 2 {
			f.Errorf("%d statements, want a second one for the others", n)
		}
		release(nil)
		for _, wait := range waits {
			if a := <-wait; a.err != nil || a.Allowed || a.RetryAfter == 0 {
				f.Errorf("%+v", a)
			}
		}
		f.sends(op(limiter.OpTakeUpTo, 125))
		release(nil)
		if a := <-late; a.Allowed {
			f.Errorf("%+v", a)
		}
	})
	run(t, "are not refused because the chunk was too small", 1000, func(f *fixture) {
		f.hold()
		f.allow(3, true)
		release := f.block(limiter.OpTakeUpTo)
		first := f.ask(ctx, 1)
		var waits []<-chan answer
		for range 40 {
			waits = append(waits, f.ask(ctx, 1))
		}
		release(nil)
		release(nil)
		for _, wait := range append(waits, first) {
			if a := <-wait; !a.Allowed {
				f.Fatalf("%+v", a)
			}
		}
	})
	run(t, "are not refused by a holding", 1000, func(f *fixture) {
		f.hold()
		f.allow(4, true)
		f.sends(op(limiter.OpTakeUpTo, 13))
	})
	run(t, "time out in the queue as on a store", 1000, func(f *fixture) {
		spent(f, 1)
		release := f.block(limiter.OpTakeUpTo)
		first, second := f.ask(ctx, 1), f.ask(ctx, 1)
		if a := <-second; !errors.Is(a.err, limiter.ErrNotApplied) || errors.Is(a.err, limiter.ErrKeyBusy) || !limiter.StoreFailed(a.err) {
			f.Errorf("%v", a.err)
		}
		third := f.ask(ctx, 1)
		<-time.After(limiter.DefaultTimeout / 2)
		fourth := f.ask(ctx, 1)
		release(nil)
		if a := <-first; !a.Allowed { // the store keeps its time
			f.Errorf("%+v", a)
		}
		if a := <-fourth; !errors.Is(a.err, limiter.ErrKeyBusy) || !errors.Is(a.err, limiter.ErrNotApplied) {
			f.Errorf("%+v", a)
		}
		release(nil)
		if a := <-third; a.err != nil || a.Allowed {
			f.Errorf("%+v", a)
		}
	})
	in(t, "are too many if they time out while the store answers", 1000, func(b *bed) {
		spent(b, 1)
		release := b.block(limiter.OpTakeUpTo)
		first := b.ask(ctx, 5)
		<-time.After(ttl - 1)
		wait := b.ask(ctx, 1)
		b.inner.before = func(limiter.Op) error { <-time.After(limiter.DefaultTimeout); return nil }
		<-time.After(1)
		release(nil)
		if a, c := <-first, <-wait; a.Allowed || !errors.Is(c.err, limiter.ErrKeyBusy) || !errors.Is(c.err, limiter.ErrNotApplied) {
			b.Errorf("%+v, %+v", a, c)
		}
		<-time.After(ttl)
	})
}

// Rule 6.
func TestGiveBack(t *testing.T) {
	run(t, "tokens stay if they do not cover the take", 1000, func(f *fixture) {
		f.hold()
		if res := f.allow(999, false); f.holds() != 996 || res.Remaining != 996 || res.RetryAfter != 3*time.Hour {
			f.Errorf("%d are held; %+v", f.holds(), res)
		}
		f.allow(996, true)
	})
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
	})
	run(t, "is not repeated", 1000, func(f *fixture) {
		f.hold()
		<-time.After(ttl)
		f.inner.after = func(op limiter.Op) error {
			if op.Kind == limiter.OpRefund {
				return limiter.ErrOutcomeUnknown
			}
			return nil
		}
		f.allow(1, true)
		f.allow(1, true)
		if stats := f.store.Stats(); stats.Lost != 3 || stats.GivenBack != 0 {
			f.Errorf("%+v", stats)
		}
	})
	// The bucket was full, so its refill of ten tokens was lost to the tokens that were held. Later they
	// would be too many.
	run(t, "leaves out what has come back by itself", 1000, func(f *fixture) {
		f.l = f.limiter(f.store, limiter.TokenBucket{Capacity: 1000, Refill: 2, Interval: time.Second})
		f.hold()
		<-time.After(ttl)
		f.allow(1, true)
		if stats := f.store.Stats(); f.sent()[0].Cost != 1 || stats.GivenBack != 3 {
			f.Errorf("%+v", stats)
		}
	})
	run(t, "lets nothing pass twice", 1000, func(f *fixture) {
		p := limiter.PerSecond(1000)
		f.l = f.limiter(f.store, p)
		f.hold()
		<-time.After(10 * ttl)
		if res, err := f.limiter(f.inner.Store, p).AllowN(f.Context(), "k", 1000); err != nil || !res.Allowed {
			f.Fatal(res, err)
		}
		f.allow(1, false)
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
		if res, err := f.limiter(f.inner.Store, p).AllowN(f.Context(), "k", p.Capacity); err != nil || !res.Allowed {
			f.Fatal(res, err)
		}
		f.allow(1, false)
	})
	run(t, "carries parts of a token over", 1000, func(f *fixture) {
		step := int64(10)
		h := holding{policy: hourly, tokens: 5}
		h.state.Row.Period = step
		var carried, back int64
		for range 10 {
			back += h.refund(instant{7, 7}, &carried) // 70 in all, of which a tenth comes back each
		}
		if back != 50-7 {
			f.Errorf("%d of 50 are given back, want 43", back)
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
			if a := <-own; !errors.Is(a.err, failed) {
				f.Errorf("%+v", a)
			}
			release(nil)
			if a := <-waits; !a.Allowed || f.holds() != 64-5 {
				f.Errorf("%+v; %d are held", a, f.holds())
			}
			f.sends(op(limiter.OpTakeUpTo, 16-3), op(limiter.OpTakeUpTo, 64-3)) // the 3 are still held
		})
	}
	run(t, "adds nothing if its outcome is unknown", 1000, func(f *fixture) {
		f.hold()
		f.allow(3, true)
		f.inner.after = func(limiter.Op) error { return limiter.ErrOutcomeUnknown }
		if _, err := f.l.Allow(ctx, "k"); !errors.Is(err, limiter.ErrOutcomeUnknown) || f.holds() != 0 || f.used() != 7+16 {
			f.Errorf("%v; %d are held, %d charged", err, f.holds(), f.used())
		}
	})
	run(t, "ends no process by a panic", 1000, func(f *fixture) {
		f.hold()
		f.allow(3, true)
		f.inner.before = func(limiter.Op) error { panic("broken") }
		if _, err := f.l.Allow(ctx, "k"); !errors.Is(err, limiter.ErrOutcomeUnknown) {
			f.Error(err)
		}
	})
	run(t, "is the last if the store cannot take up to a cost", 1000, func(f *fixture) {
		f.inner.before = func(op limiter.Op) error {
			if op.Kind == limiter.OpTakeUpTo {
				return errors.ErrUnsupported
			}
			return nil
		}
		for range 20 {
			f.allow(1, true)
		}
		if stats := f.store.Stats(); stats.Borrows != 1 || f.used() != 20 {
			f.Errorf("%+v, %d are charged", stats, f.used())
		}
	})
}
