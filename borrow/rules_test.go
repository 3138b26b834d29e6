package borrow

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// doOnly is a store without DoAll, which may be on a transaction.
type doOnly struct {
	limiter.Store
	provisional bool
}

func (s doOnly) Provisional() bool { return s.provisional }

func TestNew(t *testing.T) {
	store := memory.New()
	for _, c := range []struct {
		what  string
		store limiter.Store
		n     int64
		ttl   time.Duration
		ok    bool
	}{
		{"the least", store, 2, 10 * time.Millisecond, true},
		{"the most", store, 1_000_000, 10 * time.Second, true},
		{"n too small", store, 1, time.Second, false},
		{"n too large", store, 1_000_001, time.Second, false},
		{"ttl too short", store, 2, 10*time.Millisecond - 1, false},
		{"ttl too long", store, 2, 10*time.Second + 1, false},
		{"no store", nil, 2, time.Second, false},
		{"a nil store", (*memory.Store)(nil), 2, time.Second, false},
		{"a store on a transaction", doOnly{store, true}, 2, time.Second, false},
		{"a store on none", doOnly{store, false}, 2, time.Second, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			if s, err := New(c.store, c.n, c.ttl); (err == nil) != c.ok || err != nil && !errors.Is(err, limiter.ErrInvalid) || (s != nil) != c.ok {
				t.Errorf("%v, %v", s, err)
			}
		})
	}
}

// Rule 1.
func TestOnlyTakesOfBuckets(t *testing.T) {
	other := hourly
	other.Capacity = 500
	for what, op := range map[string]limiter.Op{
		"a look":              {Kind: limiter.OpLook, Cost: 1},
		"a take of up to":     {Kind: limiter.OpTakeUpTo, Cost: 2},
		"a reservation":       {Kind: limiter.OpTake, Cost: 1, MaxWait: time.Second},
		"an operation's time": {Kind: limiter.OpTake, Cost: 1, At: time.Now().UnixNano()},
		"a take of 0":         {Kind: limiter.OpTake},
		"a window":            {Kind: limiter.OpTake, Cost: 1, Policy: limiter.FixedWindow{Limit: 10, Window: time.Hour}},
	} {
		in(t, what+" goes to the store", 100, func(b *bed) {
			b.hold()
			if op.Name, op.Key = "test", "k"; op.Policy == nil {
				op.Policy = hourly
			}
			_, err := b.store.Do(b.Context(), op)
			if got := b.sent(); err != nil || len(got) != 1 || got[0] != op || b.holds() != 3 {
				b.Errorf("the inner store got %+v, %v; want %+v", got, err, op)
			}
		})
	}
	in(t, "AllowAll spends nothing", 100, func(b *bed) {
		b.hold()
		res, err := limiter.AllowAll(b.Context(), limiter.Claim{Limiter: b.l, Key: "k", Cost: 2})
		if err != nil || !res.Allowed || b.holds() != 3 || b.used() != 3+4+2 {
			b.Errorf("%+v, %v; %d are held, and %d charged", res, err, b.holds(), b.used())
		}
		b.l = b.limiter(b.store, other)
		_, err = limiter.AllowAll(b.Context(), limiter.Claim{Limiter: b.l, Key: "k"})
		if err != nil || b.holds() != 0 {
			b.Errorf("%v; %d are held after AllowAll by another policy", err, b.holds())
		}
	})
	in(t, "AllowAll needs it in the store", 100, func(b *bed) {
		s, _ := New(doOnly{Store: b.inner}, 2, ttl)
		_, err := limiter.AllowAll(b.Context(), limiter.Claim{Limiter: b.limiter(s, hourly), Key: "k"})
		if !errors.Is(err, limiter.ErrInvalid) || !errors.Is(err, errors.ErrUnsupported) {
			b.Error(err)
		}
	})
	in(t, "a result is that of one after another", 100, func(b *bed) {
		for i := range int64(100) {
			if res := b.allow(1, true); res.Remaining != 999-i || res.Taken != 1 || res.Source != limiter.SourceStore {
				b.Fatalf("take %d: %+v", i, res)
			}
		}
	})
}

// Rule 2.
func TestHoldingEnds(t *testing.T) {
	for _, c := range []struct {
		what             string
		monotonic, set   time.Duration
		fresh, comesBack bool
	}{
		{"the time is not over", ttl - 1, 0, true, false},
		{"the time is over", ttl, 0, false, true},
		{"the process was frozen", ttl / 2, ttl / 2, false, false},
		{"the process was frozen for long", 0, time.Hour, false, false},
		{"the clock was set back a little", 20 * time.Millisecond, -30 * time.Millisecond, true, false},
		{"the clock was set back", 20 * time.Millisecond, -31 * time.Millisecond, false, false},
		{"the clock was set back by much", ttl, -time.Hour, false, false},
	} {
		in(t, c.what, 100, func(b *bed) {
			b.hold()
			<-time.After(c.monotonic)
			b.apart.Store(int64(c.set))
			b.allow(1, true)
			spent, stats := len(b.sent()) == 0, b.store.Stats()
			if spent != c.fresh || (stats.GivenBack == 3) != c.comesBack || (stats.Lost == 3) != (!c.fresh && !c.comesBack) {
				b.Errorf("spent from memory: %v; %+v", spent, stats)
			}
		})
	}
}

// Rule 3.
func TestOperationsEndHolding(t *testing.T) {
	ctx := context.Background()
	other := hourly
	other.Capacity = 900
	operations := map[string]func(b *bed) error{
		"refund": func(b *bed) error { _, err := b.l.Refund(ctx, "k", 1); return err },
		"reset":  func(b *bed) error { return b.l.Reset(ctx, "k") },
		"charge": func(b *bed) error { _, err := b.l.Charge(ctx, "k", 1); return err },
		"block":  func(b *bed) error { return b.l.Block(ctx, "k", 1) },
		"cancel": func(b *bed) error {
			_, err := b.store.Do(ctx, limiter.Op{Kind: limiter.OpCancel, Name: "test", Key: "k", Policy: hourly, Cost: 1})
			return err
		},
		"take": func(b *bed) error { _, err := b.limiter(b.store, other).Allow(ctx, "k"); return err },
	}
	for kind, carryOut := range operations {
		in(t, "before a "+kind+" the tokens go back", 100, func(b *bed) {
			b.hold()
			if err := carryOut(b); err != nil {
				b.Fatal(err)
			}
			ops := b.sent()
			want := kind != "reset"
			first := ops[0].Kind == limiter.OpRefund && ops[0].Cost == 3
			if b.holds() != 0 || ops[len(ops)-1].Kind.String() != kind || first != want || len(ops) > 2 {
				b.Errorf("the store got %s", show(ops))
			}
			if stats := b.store.Stats(); (stats.GivenBack == 3) != want || (stats.Lost == 3) == want {
				b.Errorf("%+v", stats)
			}
		})
		if kind == "take" {
			continue
		}
		in(t, "nobody borrows during a "+kind, 100, func(b *bed) {
			kinds := map[string]limiter.OpKind{"refund": limiter.OpRefund, "reset": limiter.OpReset, "charge": limiter.OpCharge, "block": limiter.OpBlock, "cancel": limiter.OpCancel}
			release, done := b.block(kinds[kind]), make(chan error, 1)
			go func() { done <- carryOut(b) }()
			synctest.Wait()
			for range 3 * busy {
				b.allow(1, true)
			}
			if b.store.Stats().Borrows != 0 {
				b.Error("it borrowed")
			}
			release(nil)
			if err := <-done; err != nil {
				b.Error(err)
			}
		})
		in(t, "a borrow in flight during a "+kind+" adds nothing", 100, func(b *bed) {
			b.hold()
			b.allow(3, true)
			release := b.block(limiter.OpTakeUpTo)
			own := b.ask(ctx, 1)
			waits := b.ask(ctx, 1) // the store decides it
			if err := carryOut(b); err != nil {
				b.Fatal(err)
			}
			release(nil)
			first, second, stats := <-own, <-waits, b.store.Stats()
			if !first.Allowed && kind != "block" || second.err != nil || b.holds() != 0 {
				b.Errorf("%+v, %+v; %d are held", first, second, b.holds())
			}
			if lost := kind == "reset" || kind == "block"; lost && stats.GivenBack > 0 || !lost && stats.Lost > 0 {
				b.Errorf("%+v", stats)
			}
		})
	}
	in(t, "takes and charges in turn lose nothing", 100, func(b *bed) {
		for range 20 {
			for range 7 {
				b.allow(1, true)
			}
			if err := operations["charge"](b); err != nil {
				b.Fatal(err)
			}
		}
		if stats := b.store.Stats(); b.used() != 20*8 || stats.Lost != 0 || stats.Borrows != 20 {
			b.Errorf("%d are charged, want %d; %+v", b.used(), 20*8, stats)
		}
	})
	in(t, "two policies in turn borrow nothing", 100, func(b *bed) {
		one, two := b.l, b.limiter(b.store, other)
		for i := range 60 {
			b.l = []*limiter.Limiter{one, two}[i%2]
			b.allow(1, true)
		}
		if stats := b.store.Stats(); stats != (Stats{}) {
			b.Errorf("%+v", stats)
		}
	})
}

// Rule 8.
func TestChunk(t *testing.T) {
	huge := limiter.TokenBucket{Capacity: 1 << 40, Refill: 1 << 19, Interval: time.Second}
	for _, c := range []struct {
		what     string
		policy   limiter.TokenBucket
		n        int64
		cost     int64
		every    time.Duration
		takes    int
		borrowed []int64 // by the first statements
	}{
		{"is 1 until four takes within the ttl", huge, 100, 1, ttl / 2, 30, nil},
		{"is what half of the ttl needs", huge, 100, 1, ttl / 8, 8, []int64{4, 4}},
		{"grows by four times at most", huge, 1000, 1, 0, 200, []int64{4, 16, 64, 256}},
		{"is n at most", huge, 20, 1, 0, 60, []int64{4, 16, 20, 20}},
		{"is an eighth of the bucket at most", limiter.TokenBucket{Capacity: 64, Refill: 1, Interval: time.Hour}, 1000, 1, 0, 25, []int64{4, 8, 8, 8}},
		{"leaves small buckets alone", limiter.TokenBucket{Capacity: 15, Refill: 1, Interval: time.Hour}, 1000, 1, 0, 15, nil},
		{"is larger than a take", huge, 1000, 10, 0, 10, []int64{16, 64}}, // 4 was too small
		{"is no larger than n", huge, 10, 11, 0, 10, nil},
	} {
		in(t, c.what, c.n, func(b *bed) {
			b.l = b.limiter(b.store, c.policy)
			for range c.takes {
				b.allow(c.cost, true)
				<-time.After(c.every)
			}
			var got []int64
			held := int64(0)
			for _, op := range b.sent() {
				if op.Kind == limiter.OpTakeUpTo {
					got = append(got, op.Cost+held%c.cost)
					held = (op.Cost + held) % c.cost // what is left of a chunk
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(c.borrowed) {
				b.Errorf("borrowed %v, want %v", got, c.borrowed)
			}
		})
	}
	in(t, "is halved when tokens were not used", 1000, func(b *bed) {
		for range 30 {
			b.allow(1, true)
		}
		e := b.entry()
		chunk := e.chunk
		<-time.After(ttl)
		b.allow(1, true)
		if stats := b.store.Stats(); chunk != 64 || stats.GivenBack == 0 || e.chunk > 4*chunk/2 {
			b.Errorf("%d, then %d; %+v", chunk, e.chunk, stats)
		}
		e.chunk = 64
		e.halve()
		if e.chunk != 32 {
			b.Error(e.chunk)
		}
	})
	in(t, "is 1 again after a pause", 1000, func(b *bed) {
		for range 30 {
			b.allow(1, true)
		}
		<-time.After(2 * ttl)
		b.sent()
		b.allow(1, true)
		b.allow(1, true)
		for _, op := range b.sent() {
			if op.Kind == limiter.OpTakeUpTo {
				b.Errorf("borrowed %d", op.Cost)
			}
		}
	})
}

// entry returns the entry of the key "k".
func (b *bed) entry() *entry {
	op := limiter.Op{Name: "test", Key: "k"}
	return b.store.shardOf(&op).entries[id{"test", "k"}]
}

// Rule 9, the other part of which is in TestNew.
func TestMostHoldings(t *testing.T) {
	in(t, "the one used least recently is given up", 100, func(b *bed) {
		const more = 10
		sh, kept := &b.store.shards[0], ""
		for i, n := 0, 0; n < maxHoldings/shards+more; i++ {
			key := fmt.Sprint(i)
			if b.store.shardOf(&limiter.Op{Name: "test", Key: key}) != sh {
				continue
			}
			if n++; n == 1 {
				kept = key
			}
			for _, key := range []string{key, key, key, key, kept} {
				if _, err := b.l.Allow(b.Context(), key); err != nil {
					b.Fatal(err)
				}
			}
			synctest.Wait()
		}
		stats := b.store.Stats()
		if e := sh.entries[id{"test", kept}]; e == nil || stats.Holdings < maxHoldings/shards-1 || stats.Holdings > maxHoldings/shards || stats.GivenBack != 3*more || stats.Lost != 0 {
			b.Errorf("%+v, %+v; want %d given back", e, stats, 3*more)
		}
	})
	in(t, "one that is in use is not", 100, func(b *bed) {
		sh := &b.store.shards[0]
		for i := range maxHoldings/shards + 1 {
			e, removed := sh.entry(&limiter.Op{Name: "test", Key: fmt.Sprint(i)})
			if i == 0 {
				e.barred = 1
			}
			if removed != nil && removed.key != "1" || (removed != nil) != (i == maxHoldings/shards) {
				b.Fatalf("entry %d removed %+v, want the second", i, removed)
			}
		}
	})
}

// Rule 10.
func TestLimiterAround(t *testing.T) {
	in(t, "the deny cache refuses nothing that is held", 1000, func(b *bed) {
		b.l = b.limiter(b.store, hourly, limiter.WithDenyCache(10, time.Minute))
		b.hold()
		b.allow(999, false) // of 993 in the store and 3 that are held
		b.allow(996, true)
	})
	in(t, "the deny cache refuses when nothing is left", 1000, func(b *bed) {
		b.l = b.limiter(b.store, hourly, limiter.WithDenyCache(10, time.Minute))
		b.hold()
		b.allow(996, true)
		b.allow(1, false)
		if res := b.allow(1, false); res.Source != limiter.SourceDenyCache {
			b.Errorf("%+v", res)
		}
	})
	in(t, "an observer sees every take", 100, func(b *bed) {
		seen := 0
		b.l = b.limiter(b.store, hourly, limiter.WithObserver(func(_ context.Context, d limiter.Decision) {
			if seen++; d.Op != limiter.OpTake || !d.Result.Allowed {
				b.Errorf("%+v", d)
			}
		}))
		for range 20 {
			b.allow(1, true)
		}
		if stats := b.store.Stats(); seen != 20 || stats.Local+stats.Borrows+3 != 20 {
			b.Errorf("%d were seen; %+v", seen, stats)
		}
	})
	in(t, "FailOpen applies to an error of a borrow", 100, func(b *bed) {
		b.l = b.limiter(b.store, hourly, limiter.FailOpen())
		b.hold()
		b.inner.before = func(limiter.Op) error { return limiter.ErrNotApplied }
		b.allow(3, true)
		if res := b.allow(1, true); res.Source != limiter.SourcePolicy {
			b.Errorf("%+v", res)
		}
	})
}
