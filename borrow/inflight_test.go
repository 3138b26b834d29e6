package borrow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

// What happens while tokens are given back. All but 12 tokens of the bucket are charged, and 5 of these are held.
func TestWhileGivingBack(t *testing.T) {
	ctx := context.Background()
	during := func(name string, test func(f *fixture, answer func(limiter.OpKind, time.Duration))) {
		run(t, name, 1000, func(f *fixture) {
			f.hold()
			for range 3 + 16 - 5 {
				f.allow(1, true)
			}
			if _, err := f.limiter(f.inner.Store, hourly).AllowN(ctx, "k", hourly.Capacity-23-7); err != nil || f.holds() != 5 {
				f.Fatal(err, f.holds())
			}
			f.sent()
			slow := map[limiter.OpKind]time.Duration{}
			f.inner.before = func(op limiter.Op) error {
				<-time.After(slow[op.Kind])
				return nil
			}
			test(f, func(kind limiter.OpKind, in time.Duration) { slow[kind] = in })
		})
	}
	for _, most := range []time.Duration{0, 1} {
		during(fmt.Sprintf("a take waits, MaxWait %v", most), func(f *fixture, answer func(limiter.OpKind, time.Duration)) {
			answer(limiter.OpRefund, ttl/10)
			go func() { _, _ = f.l.Charge(ctx, "k", 1) }()
			<-time.After(1)
			if res, err := f.l.Reserve(ctx, "k", 11, most); err != nil || !res.Allowed {
				f.Errorf("%+v, %v", res, err)
			}
		})
	}
	during("a take in the queue waits", func(f *fixture, answer func(limiter.OpKind, time.Duration)) {
		<-time.After(ttl)
		answer(limiter.OpRefund, ttl/10)
		own := f.ask(ctx, 11)
		testenv.Must(f, testenv.ErrorOf(f.l.Charge(ctx, "k", 1)))
		f.granted(own)
	})
	during("a reset waits", func(f *fixture, answer func(limiter.OpKind, time.Duration)) {
		<-time.After(ttl)
		answer(limiter.OpRefund, ttl/10)
		f.ask(ctx, 1)
		if err := f.l.Reset(ctx, "k"); err != nil || f.sent()[0].Kind != limiter.OpRefund {
			f.Error(err)
		}
		f.allow(100, true)
		<-time.After(ttl)
		if got := f.used(); got != 101 && got != 100 { // the take may come before or after
			f.Errorf("%d are charged; the refund came after the reset", got)
		}
	})
	during("a take is not refused", func(f *fixture, answer func(limiter.OpKind, time.Duration)) {
		<-time.After(ttl - 1)
		answer(limiter.OpTakeUpTo, 1)
		f.allow(12, true)
	})
	during("tokens that expire are given back as well", func(f *fixture, answer func(limiter.OpKind, time.Duration)) {
		<-time.After(ttl - 1)
		answer(limiter.OpTakeUpTo, 1)
		answer(limiter.OpRefund, 2*ttl)
		own := f.ask(ctx, 6)
		<-time.After(3 * ttl / 2)
		f.allow(5, true)
		f.granted(own)
		<-time.After(5 * ttl)
		if stats := f.store.Stats(); stats.Borrowed != 4+16+7 || stats.GivenBack != 5+1 {
			f.Errorf("%+v", stats)
		}
	})
	during("takes do not pass by FailOpen", func(f *fixture, answer func(limiter.OpKind, time.Duration)) {
		f.l = f.limiter(f.store, hourly, limiter.FailOpen())
		<-time.After(ttl)
		answer(limiter.OpRefund, 4*limiter.DefaultTimeout/5)
		answer(limiter.OpTakeUpTo, 4*limiter.DefaultTimeout/5)
		f.ask(ctx, 1)
		for range 20 {
			if a := <-f.ask(ctx, 1); a.err != nil || a.Source != limiter.SourceStore {
				f.Errorf("%+v", a)
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
		run(t, c.what, c.n, func(f *fixture) {
			f.hold()
			f.allow(3, true)
			release := f.block(limiter.OpTakeUpTo)
			waits := []<-chan answer{f.ask(f.Context(), 1)}
			for range 20 {
				waits = append(waits, f.ask(f.Context(), 5))
			}
			release(c.failure) // the 16 tokens serve four
			<-time.After(ttl)
			release(c.failure) // late
			for _, wait := range waits {
				if a := <-wait; !errors.Is(a.err, c.failure) || a.Allowed != (c.failure == nil) {
					f.Fatalf("%+v", a)
				}
			}
			if n, stats := len(f.sent()), f.store.Stats(); n != c.sent || stats.Borrows != 3 {
				f.Errorf("%d statements, want %d; %+v", n, c.sent, stats)
			}
		})
	}
}

func TestShutdown(t *testing.T) {
	ctx := context.Background()
	run(t, "gives back what is held, of all keys", 1000, func(f *fixture) {
		f.hold()
		const keys = 2000 // about 31 in each of the 64 shards
		for key := range keys {
			for range busy {
				testenv.Must(f, testenv.ErrorOf(f.l.Allow(ctx, fmt.Sprint(key))))
			}
		}
		testenv.Equal(f, f.store.Stats().Holdings, keys+1, fmt.Sprintf("%+v", f.store.Stats()))
		for range 2 {
			testenv.Must(f, f.store.Shutdown(ctx))
		}
		f.state(0, 4)
		if stats := f.store.Stats(); stats.Holdings != 0 || stats.Lost != 0 || stats.Borrowed-stats.GivenBack != 1+keys {
			f.Errorf("%+v", stats)
		}
		for range 2 * busy {
			f.sent()
			f.allow(1, true)
			f.sends(op(limiter.OpTake, 1))
		}
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
		f.allow(1, true)
		f.sends(op(limiter.OpTake, 1))
		testenv.Must(f, f.store.Shutdown(ctx))
		f.state(0, 4+1)
	})
	run(t, "says that a borrow in flight lost tokens", 1000, func(f *fixture) {
		f.hold()
		f.allow(3, true)
		release := f.block(limiter.OpTakeUpTo)
		f.inner.after = fail(limiter.OpRefund, limiter.ErrOutcomeUnknown)
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

// A Reset frees all tokens. What was given back after it would be free a second time.
func TestResetComesAfterRefunds(t *testing.T) {
	for name, begin := range map[string]func(f *fixture){
		"of a key that others displace": func(f *fixture) {
			sh := f.store.shardOf(&limiter.Op{Name: "test", Key: "k"})
			sh.mu.Lock()
			defer sh.mu.Unlock()
			for i := range maxHoldings/shards + 1 {
				f.store.entry(sh, &limiter.Op{Name: "test", Key: fmt.Sprint(i)}, f.store.clocks())
			}
		},
		"of Shutdown": func(f *fixture) { go func() { testenv.Must(f, f.store.Shutdown(f.Context())) }() },
	} {
		run(t, name, 1000, func(f *fixture) {
			f.hold()
			release := f.block(limiter.OpRefund)
			begin(f)
			synctest.Wait()
			go func() { testenv.Must(f, f.l.Reset(f.Context(), "k")) }()
			synctest.Wait()
			f.sends(op(limiter.OpRefund, 3))
			release(nil)
			f.sends(op(limiter.OpReset, 0))
			f.state(0, 0)
		})
	}
}

// The inner store decides these calls, and counts what is held as taken. A refusal of theirs says nothing about a
// take, which what is held may cover.
func TestDenyCacheBesideAHolding(t *testing.T) {
	// upTo calls AllowUpTo while the inner bucket is empty. Before the inner store answers, it calls meanwhile.
	upTo := func(f *fixture, meanwhile func() error) (limiter.Result, error) {
		testenv.Must(f, testenv.ErrorOf(f.limiter(f.inner.Store, hourly).AllowN(f.Context(), "k", 993)))
		f.inner.after = func(limiter.Op) error { f.inner.after = nil; return meanwhile() }
		return f.l.AllowUpTo(f.Context(), "k", 5)
	}
	waits := map[string]time.Duration{"AllowAll": 2 * time.Hour, "Reserve": 2*time.Hour - time.Millisecond, "a take during a borrow": 16 * time.Hour}
	for name, call := range map[string]func(f *fixture) (limiter.Result, error){
		"AllowAll": func(f *fixture) (limiter.Result, error) {
			r, err := limiter.AllowAll(f.Context(), limiter.Claim{Limiter: f.l, Key: "k", Cost: 995})
			return r.Result, err
		},
		"Reserve": func(f *fixture) (limiter.Result, error) {
			r, err := f.l.Reserve(f.Context(), "k", 995, time.Millisecond)
			return r.Result, err
		},
		"AllowUpTo": func(f *fixture) (limiter.Result, error) { return upTo(f, func() error { return nil }) },
		"AllowUpTo while tokens come back": func(f *fixture) (limiter.Result, error) {
			return upTo(f, func() error { return testenv.ErrorOf(f.limiter(f.store, hourly).Refund(f.Context(), "k", 1)) })
		},
		"AllowUpTo before a borrow": func(f *fixture) (limiter.Result, error) {
			f.allow(1, true)
			limited := f.limiter(f.inner.Store, hourly)
			return upTo(f, func() error {
				return errors.Join(testenv.ErrorOf(limited.Refund(f.Context(), "k", 100)), testenv.ErrorOf(f.limiter(f.store, hourly).Allow(f.Context(), "k")))
			})
		},
		"a take during a borrow": func(f *fixture) (limiter.Result, error) {
			f.allow(1, true)
			answers := make(chan error)
			f.inner.after = func(op limiter.Op) error {
				if op.Kind == limiter.OpTakeUpTo {
					return <-answers
				}
				return nil
			}
			own := f.ask(f.Context(), 1)
			testenv.Must(f, testenv.ErrorOf(f.l.Refund(f.Context(), "k", 1))) // so the store decides the next take
			r, err := f.l.AllowN(f.Context(), "k", 994)
			answers <- nil
			f.granted(own)
			return r, err
		},
	} {
		run(t, name, 1000, func(f *fixture) {
			f.l = f.limiter(f.store, hourly, limiter.WithDenyCache(10, time.Minute))
			f.hold()
			f.allow(2, true) // one token is left
			r, err := call(f)
			testenv.Must(f, err)
			next, err := f.l.AllowN(f.Context(), "k", min(994, r.Remaining+1))
			if r.Allowed || r.RetryAfter != cmp.Or(waits[name], time.Hour) || err != nil || next.Source == limiter.SourceDenyCache {
				f.Errorf("%+v, then %+v, %v", r, next, err)
			}
		})
	}
}
