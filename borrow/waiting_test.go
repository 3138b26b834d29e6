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
	in(t, "takes what a chunk lacks", 1000, func(b *bed) {
		b.hold()
		b.allow(4, true) // of 3 that are held, and the chunk is 16
		b.sends(op(limiter.OpTakeUpTo, 16-3))
		if b.holds() != 12 {
			b.Errorf("%d are held", b.holds())
		}
		b.allow(100, true) // more than the chunk
		b.sends(op(limiter.OpTakeUpTo, 100-12))
		if b.holds() != 0 || b.used() != 3+4+13+88 {
			b.Errorf("%d are held, %d charged", b.holds(), b.used())
		}
	})
	in(t, "sets aside what its own take needs", 1000, func(b *bed) {
		b.hold()
		release := b.block(limiter.OpTakeUpTo)
		own := b.ask(ctx, 4)
		small := b.ask(ctx, 1)
		select {
		case a := <-small:
			b.Errorf("the tokens were spent twice: %+v", a)
		default:
		}
		release(nil)
		if a, c := <-own, <-small; !a.Allowed || !c.Allowed || b.holds() != 11 {
			b.Errorf("%+v, %+v; %d are held", a, c, b.holds())
		}
	})
	in(t, "goes on when its caller leaves", 1000, func(b *bed) {
		b.hold()
		release := b.block(limiter.OpTakeUpTo)
		left, cancel := context.WithCancel(ctx)
		own, waits := b.ask(left, 4), b.ask(left, 1)
		cancel()
		for _, wait := range []<-chan answer{own, waits} {
			if a := <-wait; !errors.Is(a.err, limiter.ErrCanceled) || errors.Is(a.err, limiter.ErrOutcomeUnknown) {
				b.Errorf("%+v", a)
			}
		}
		release(nil)
		if b.holds() != 16 {
			b.Errorf("%d are held, want 16", b.holds())
		}
	})
	in(t, "does not take a caller whose context has ended", 1000, func(b *bed) {
		b.hold()
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := b.store.Do(ended, limiter.Op{Kind: limiter.OpTake, Name: "test", Key: "k", Policy: hourly, Cost: 1})
		if !errors.Is(err, limiter.ErrCanceled) || b.holds() != 3 {
			b.Errorf("%v; %d are held", err, b.holds())
		}
	})
	in(t, "that lasts longer than the ttl adds nothing", 1000, func(b *bed) {
		b.hold()
		b.allow(3, true)
		release := b.block(limiter.OpTakeUpTo)
		own := b.ask(ctx, 1)
		<-time.After(ttl)
		release(nil)
		if a, stats := <-own, b.store.Stats(); !a.Allowed || b.holds() != 0 || stats.GivenBack != 15 {
			b.Errorf("%+v; %d are held; %+v", a, b.holds(), stats)
		}
	})
	in(t, "spends nothing that is older than the ttl", 1000, func(b *bed) {
		b.hold()
		<-time.After(ttl / 2)
		release := b.block(limiter.OpTakeUpTo)
		own := b.ask(ctx, 4)
		<-time.After(ttl / 2)
		release(nil)
		if a, stats := <-own, b.store.Stats(); !a.Allowed || stats.GivenBack != 3 || b.holds() != 1 {
			b.Errorf("%+v; %d are held; %+v", a, b.holds(), stats)
		}
	})
}

// Rule 5.
func TestWaitingTakes(t *testing.T) {
	ctx := context.Background()
	// spent makes the bucket empty but for left, with nothing held.
	spent := func(b *bed, left int64) {
		b.hold()
		b.allow(3, true)
		l := b.limiter(b.inner.Store, hourly)
		if res, err := l.AllowN(ctx, "k", hourly.Capacity-7-left); err != nil || !res.Allowed {
			b.Fatal(res, err)
		}
		b.sent()
	}
	in(t, "are granted by a borrow that was sent before", 1000, func(b *bed) {
		spent(b, 2)
		release := b.block(limiter.OpTakeUpTo)
		first, second := b.ask(ctx, 1), b.ask(ctx, 1)
		release(nil)
		if a, c := <-first, <-second; !a.Allowed || !c.Allowed {
			b.Errorf("%+v, %+v", a, c)
		}
	})
	in(t, "are refused only by one that was sent after, and share it", 1000, func(b *bed) {
		spent(b, 1)
		release := b.block(limiter.OpTakeUpTo)
		first := b.ask(ctx, 1)
		var waits []<-chan answer
		for range 5 {
			waits = append(waits, b.ask(ctx, 1))
		}
		release(nil)
		if a := <-first; !a.Allowed {
			b.Errorf("%+v", a)
		}
		late := b.ask(ctx, 1)
		if n := len(b.sent()); n != 2 {
			b.Errorf("%d statements, want a second one for the others", n)
		}
		release(nil)
		for _, wait := range waits {
			if a := <-wait; a.err != nil || a.Allowed || a.RetryAfter == 0 {
				b.Errorf("%+v", a)
			}
		}
		b.sends(op(limiter.OpTakeUpTo, 125))
		release(nil)
		if a := <-late; a.Allowed {
			b.Errorf("%+v", a)
		}
	})
	in(t, "time out in the queue as on a store", 1000, func(b *bed) {
		spent(b, 1)
		release := b.block(limiter.OpTakeUpTo)
		first, second := b.ask(ctx, 1), b.ask(ctx, 1)
		if a := <-second; !errors.Is(a.err, limiter.ErrNotApplied) || errors.Is(a.err, limiter.ErrKeyBusy) || !limiter.StoreFailed(a.err) {
			b.Errorf("%v", a.err)
		}
		third := b.ask(ctx, 1)
		<-time.After(limiter.DefaultTimeout / 2)
		release(nil)
		if a := <-first; !a.Allowed { // the store keeps its time
			b.Errorf("%+v", a)
		}
		<-time.After(2 * limiter.DefaultTimeout)
		release(nil)
		if a := <-third; a.err != nil || a.Allowed {
			b.Errorf("%+v", a)
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
	in(t, "tokens stay if they do not cover the take", 1000, func(b *bed) {
		b.hold()
		if res := b.allow(999, false); b.holds() != 996 || res.Remaining != 996 || res.RetryAfter != 3*time.Hour {
			b.Errorf("%d are held; %+v", b.holds(), res)
		}
		b.allow(996, true)
	})
	in(t, "is sent at the next take", 1000, func(b *bed) {
		b.hold()
		<-time.After(2*ttl - 1)
		b.sends()
		b.allow(1, true) // the fifth take in two ttl: too few to take ahead
		b.sends(op(limiter.OpRefund, 3), op(limiter.OpTake, 1))
		b.allow(1, true)
		b.sends(op(limiter.OpTake, 1))
	})
	in(t, "is of one that costs more than n", 50, func(b *bed) {
		b.hold()
		b.allow(51, true)
		b.sends(op(limiter.OpRefund, 3), op(limiter.OpTake, 51))
	})
	in(t, "is not repeated", 1000, func(b *bed) {
		b.hold()
		<-time.After(ttl)
		b.inner.after = func(op limiter.Op) error {
			if op.Kind == limiter.OpRefund {
				return limiter.ErrOutcomeUnknown
			}
			return nil
		}
		b.allow(1, true)
		b.allow(1, true)
		if stats := b.store.Stats(); stats.Lost != 3 || stats.GivenBack != 0 {
			b.Errorf("%+v", stats)
		}
	})
	// The bucket was full, so its refill of ten tokens was lost to the tokens that were held. Later they
	// would be too many.
	in(t, "leaves out what has come back by itself", 1000, func(b *bed) {
		b.l = b.limiter(b.store, limiter.TokenBucket{Capacity: 1000, Refill: 2, Interval: time.Second})
		b.hold()
		<-time.After(ttl)
		b.allow(1, true)
		if stats := b.store.Stats(); b.sent()[0].Cost != 1 || stats.GivenBack != 3 {
			b.Errorf("%+v", stats)
		}
	})
	in(t, "lets nothing pass twice", 1000, func(b *bed) {
		p := limiter.PerSecond(1000)
		b.l = b.limiter(b.store, p)
		b.hold()
		<-time.After(10 * ttl)
		if res, err := b.limiter(b.inner.Store, p).AllowN(b.Context(), "k", 1000); err != nil || !res.Allowed {
			b.Fatal(res, err)
		}
		b.allow(1, false)
	})
	in(t, "is of all if the bucket was far from full", 1000, func(b *bed) {
		p := limiter.TokenBucket{Capacity: 1000, Refill: 2, Interval: time.Second}
		if _, err := b.limiter(b.inner.Store, p).AllowN(b.Context(), "k", 600); err != nil {
			b.Fatal(err)
		}
		b.l = b.limiter(b.store, p)
		b.hold()
		<-time.After(ttl)
		b.allow(1, true)
		if b.sent()[0].Cost != 3 {
			b.Error("not all were given back")
		}
	})
	in(t, "carries parts of a token over", 1000, func(b *bed) {
		step := int64(10)
		h := holding{policy: hourly, tokens: 5}
		h.state.Row.Period = step
		var carried, back int64
		for range 10 {
			back += h.refund(instant{7, 7}, &carried) // 70 in all, of which a tenth comes back each
		}
		if back != 50-7 {
			b.Errorf("%d of 50 are given back, want 43", back)
		}
	})
}

// Rule 7.
func TestFailedBorrow(t *testing.T) {
	ctx := context.Background()
	for what, failed := range map[string]error{"certain": limiter.ErrNotApplied, "unknown": limiter.ErrOutcomeUnknown} {
		in(t, "is the error of its take alone, "+what, 1000, func(b *bed) {
			b.hold()
			release := b.block(limiter.OpTakeUpTo)
			own, waits := b.ask(ctx, 4), b.ask(ctx, 5)
			release(failed)
			if a := <-own; !errors.Is(a.err, failed) {
				b.Errorf("%+v", a)
			}
			release(nil)
			if a := <-waits; !a.Allowed || b.holds() != 64-5 {
				b.Errorf("%+v; %d are held", a, b.holds())
			}
			b.sends(op(limiter.OpTakeUpTo, 16-3), op(limiter.OpTakeUpTo, 64-3)) // the 3 are still held
		})
	}
	in(t, "adds nothing if its outcome is unknown", 1000, func(b *bed) {
		b.hold()
		b.allow(3, true)
		b.inner.after = func(limiter.Op) error { return limiter.ErrOutcomeUnknown }
		if _, err := b.l.Allow(ctx, "k"); !errors.Is(err, limiter.ErrOutcomeUnknown) || b.holds() != 0 || b.used() != 7+16 {
			b.Errorf("%v; %d are held, %d charged", err, b.holds(), b.used())
		}
	})
	in(t, "ends no process by a panic", 1000, func(b *bed) {
		b.hold()
		b.allow(3, true)
		b.inner.before = func(limiter.Op) error { panic("broken") }
		if _, err := b.l.Allow(ctx, "k"); !errors.Is(err, limiter.ErrOutcomeUnknown) {
			b.Error(err)
		}
	})
	in(t, "is the last if the store cannot take up to a cost", 1000, func(b *bed) {
		b.inner.before = func(op limiter.Op) error {
			if op.Kind == limiter.OpTakeUpTo {
				return errors.ErrUnsupported
			}
			return nil
		}
		for range 20 {
			b.allow(1, true)
		}
		if stats := b.store.Stats(); stats.Borrows != 1 || b.used() != 20 {
			b.Errorf("%+v, %d are charged", stats, b.used())
		}
	})
}
