package borrow

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// What happens while tokens are given back. All but 12 tokens of the bucket are charged, and 5 of these are held.
func TestWhileGivingBack(t *testing.T) {
	ctx := context.Background()
	during := func(name string, test func(b *bed, answer func(limiter.OpKind, time.Duration))) {
		in(t, name, 1000, func(b *bed) {
			b.hold()
			for range 3 + 16 - 5 {
				b.allow(1, true)
			}
			if _, err := b.limiter(b.inner.Store, hourly).AllowN(ctx, "k", hourly.Capacity-23-7); err != nil || b.holds() != 5 {
				b.Fatal(err, b.holds())
			}
			b.sent()
			slow := map[limiter.OpKind]time.Duration{}
			b.inner.before = func(op limiter.Op) error {
				<-time.After(slow[op.Kind])
				return nil
			}
			test(b, func(kind limiter.OpKind, in time.Duration) { slow[kind] = in })
		})
	}
	during("a take waits", func(b *bed, answer func(limiter.OpKind, time.Duration)) {
		answer(limiter.OpRefund, ttl/10)
		go func() { _, _ = b.l.Charge(ctx, "k", 1) }()
		<-time.After(1)
		b.allow(11, true)
	})
	during("a reset waits", func(b *bed, answer func(limiter.OpKind, time.Duration)) {
		<-time.After(ttl)
		answer(limiter.OpRefund, ttl/10)
		b.ask(ctx, 1)
		if err := b.l.Reset(ctx, "k"); err != nil || b.sent()[0].Kind != limiter.OpRefund {
			b.Error(err)
		}
		b.allow(100, true)
		<-time.After(ttl)
		if got := b.used(); got != 101 && got != 100 { // the take may come before or after
			b.Errorf("%d are charged; the refund came after the reset", got)
		}
	})
	during("a take is not refused", func(b *bed, answer func(limiter.OpKind, time.Duration)) {
		<-time.After(ttl - 1)
		answer(limiter.OpTakeUpTo, 1)
		b.allow(12, true)
	})
	during("tokens that expire are given back as well", func(b *bed, answer func(limiter.OpKind, time.Duration)) {
		<-time.After(ttl - 1)
		answer(limiter.OpTakeUpTo, 1)
		answer(limiter.OpRefund, 2*ttl)
		own := b.ask(ctx, 6)
		<-time.After(3 * ttl / 2)
		_, _ = b.l.AllowN(ctx, "k", 5)
		<-own
		<-time.After(5 * ttl)
		if stats := b.store.Stats(); stats.Borrowed != 4+16+7 || stats.GivenBack != 5+1 {
			b.Errorf("%+v", stats)
		}
	})
	during("takes do not pass by FailOpen", func(b *bed, answer func(limiter.OpKind, time.Duration)) {
		b.l = b.limiter(b.store, hourly, limiter.FailOpen())
		<-time.After(ttl)
		answer(limiter.OpRefund, 4*limiter.DefaultTimeout/5)
		answer(limiter.OpTakeUpTo, 4*limiter.DefaultTimeout/5)
		b.ask(ctx, 1)
		for range 20 {
			if a := <-b.ask(ctx, 1); a.err != nil || a.Source != limiter.SourceStore {
				b.Errorf("%+v", a)
			}
		}
	})
}

// Takes that wait when a statement is sent share it.
func TestSharedStatement(t *testing.T) {
	for _, c := range []struct {
		what    string
		n       int64
		failure error
		sent    int
	}{
		{"takes the tokens of all", 1000, nil, 2},
		{"takes up to n, and the store decides the others", 50, nil, 2 + 7},
		{"fails all", 1000, limiter.ErrMisconfigured, 2},
	} {
		in(t, c.what, c.n, func(b *bed) {
			b.hold()
			b.allow(3, true)
			release := b.block(limiter.OpTakeUpTo)
			waits := []<-chan answer{b.ask(b.Context(), 1)}
			for range 20 {
				waits = append(waits, b.ask(b.Context(), 5))
			}
			release(c.failure) // the 16 tokens serve four
			<-time.After(ttl)
			release(c.failure) // late
			for _, wait := range waits {
				if a := <-wait; !errors.Is(a.err, c.failure) || a.Allowed != (c.failure == nil) {
					b.Fatalf("%+v", a)
				}
			}
			if n, stats := len(b.sent()), b.store.Stats(); n != c.sent || stats.Borrows != 3 {
				b.Errorf("%d statements, want %d; %+v", n, c.sent, stats)
			}
		})
	}
}
