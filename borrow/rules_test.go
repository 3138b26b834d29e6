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
		run(t, what+" goes to the store", 100, func(f *fixture) {
			f.hold()
			if op.Name, op.Key = "test", "k"; op.Policy == nil {
				op.Policy = hourly
			}
			_, err := f.store.Do(f.Context(), op)
			if got := f.sent(); err != nil || len(got) != 1 || got[0] != op || f.holds() != 3 {
				f.Errorf("the inner store got %+v, %v; want %+v", got, err, op)
			}
		})
	}
	run(t, "AllowAll spends nothing", 100, func(f *fixture) {
		f.hold()
		res, err := limiter.AllowAll(f.Context(), limiter.Claim{Limiter: f.l, Key: "k", Cost: 2})
		if err != nil || !res.Allowed {
			f.Errorf("%+v, %v", res, err)
		}
		f.state(3, 3+4+2)
		f.l = f.limiter(f.store, other)
		_, err = limiter.AllowAll(f.Context(), limiter.Claim{Limiter: f.l, Key: "k"})
		if err != nil || f.holds() != 0 {
			f.Errorf("%v; %d are held after AllowAll by another policy", err, f.holds())
		}
	})
	run(t, "AllowAll needs it in the store", 100, func(f *fixture) {
		s, _ := New(doOnly{Store: f.inner}, 2, ttl)
		_, err := limiter.AllowAll(f.Context(), limiter.Claim{Limiter: f.limiter(s, hourly), Key: "k"})
		if !errors.Is(err, limiter.ErrInvalid) || !errors.Is(err, errors.ErrUnsupported) {
			f.Error(err)
		}
	})
	run(t, "a result is that of one after another", 100, func(f *fixture) {
		for i := range int64(100) {
			<-time.After(time.Millisecond)
			reset := time.Duration(i+1)*time.Hour - time.Duration(i)*time.Millisecond
			if res := f.allow(1, true); res.Remaining != 999-i || res.Taken != 1 || res.Source != limiter.SourceStore || res.ResetAfter != reset {
				f.Fatalf("take %d: %+v", i, res)
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
		{"the time is over and the clock was set back by 10 ms", ttl, -10 * time.Millisecond, false, true},
		{"the time is over and the clock was set back by more", ttl, -10*time.Millisecond - 1, false, false},
		{"a copy continues within the ttl", ttl / 4, ttl / 2, true, false},
		{"a copy continues after the ttl", ttl / 4, 3 * ttl / 4, false, false},
		{"the process was frozen for long", 0, time.Hour, false, false},
		{"the clock was set back a little", 20 * time.Millisecond, -30 * time.Millisecond, true, false},
		{"the clock was set back", 20 * time.Millisecond, -31 * time.Millisecond, false, false},
		{"the clock was set back by much", ttl, -time.Hour, false, false},
	} {
		run(t, c.what, 100, func(f *fixture) {
			f.hold()
			<-time.After(c.monotonic)
			f.apart.Store(int64(c.set))
			f.allow(1, true)
			spent, stats := len(f.sent()) == 0, f.store.Stats()
			if spent != c.fresh || (stats.GivenBack == 3) != c.comesBack || (stats.Lost == 3) != (!c.fresh && !c.comesBack) {
				f.Errorf("spent from memory: %v; %+v", spent, stats)
			}
		})
	}
}

// Rule 3.
func TestOperationsEndHolding(t *testing.T) {
	ctx := context.Background()
	other := hourly
	other.Capacity = 900
	charge := func(f *fixture) error { return testenv.ErrorOf(f.l.Charge(ctx, "k", 1)) }
	for _, c := range []struct {
		kind limiter.OpKind
		do   func(f *fixture) error
	}{
		{limiter.OpRefund, func(f *fixture) error { return testenv.ErrorOf(f.l.Refund(ctx, "k", 1)) }},
		{limiter.OpReset, func(f *fixture) error { return f.l.Reset(ctx, "k") }},
		{limiter.OpCharge, charge},
		{limiter.OpBlock, func(f *fixture) error { return f.l.Block(ctx, "k", 1) }},
		{limiter.OpCancel, func(f *fixture) error {
			return testenv.ErrorOf(f.store.Do(ctx, limiter.Op{Kind: limiter.OpCancel, Name: "test", Key: "k", Policy: hourly, Cost: 1}))
		}},
		{limiter.OpTake, func(f *fixture) error { return testenv.ErrorOf(f.limiter(f.store, other).Allow(ctx, "k")) }},
		{limiter.OpTakeUpTo, func(f *fixture) error { return testenv.ErrorOf(f.limiter(f.store, other).AllowUpTo(ctx, "k", 1)) }},
	} {
		kind := c.kind.String()
		run(t, "before a "+kind+" the tokens go back", 100, func(f *fixture) {
			f.hold()
			testenv.Must(f, c.do(f))
			ops := f.sent()
			if c.kind == limiter.OpReset {
				f.stats(0, 3)
			} else {
				f.stats(3, 0)
				if ops[0].Kind != limiter.OpRefund || ops[0].Cost != 3 {
					f.Errorf("the store got %s", show(ops))
				}
				ops = ops[1:]
			}
			if f.holds() != 0 || f.entry().reset || len(ops) != 1 || ops[0].Kind != c.kind {
				f.Errorf("then the store got %s", show(ops))
			}
		})
		if c.kind == limiter.OpTake || c.kind == limiter.OpTakeUpTo {
			continue
		}
		run(t, "nobody borrows during a "+kind, 100, func(f *fixture) {
			release, done := f.block(c.kind), make(chan error, 1)
			go func() { done <- c.do(f) }()
			synctest.Wait()
			for range 3 * busy {
				f.allow(1, true)
			}
			testenv.Equal(f, f.store.Stats().Borrows, 0, "borrows")
			release(nil)
			testenv.Must(f, <-done)
		})
		run(t, "a borrow in flight during a "+kind+" adds nothing", 100, func(f *fixture) {
			f.hold()
			f.allow(3, true)
			release := f.block(limiter.OpTakeUpTo)
			own, waits := f.ask(ctx, 1), f.ask(ctx, 1) // the store decides the second one
			testenv.Must(f, c.do(f))
			if c.kind == limiter.OpReset { // then the borrow gives nothing back, although a charge came after it
				testenv.Must(f, charge(f))
			}
			release(nil)
			first, second, stats := <-own, <-waits, f.store.Stats()
			if !first.Allowed && c.kind != limiter.OpBlock || second.err != nil || f.holds() != 0 {
				f.Errorf("%+v, %+v; %d are held", first, second, f.holds())
			}
			if lost := c.kind == limiter.OpReset || c.kind == limiter.OpBlock; lost && stats.GivenBack > 0 || !lost && stats.Lost > 0 {
				f.Errorf("%+v", stats)
			}
		})
	}
	run(t, "takes and charges in turn lose nothing", 100, func(f *fixture) {
		for range 20 {
			for range 7 {
				f.allow(1, true)
			}
			testenv.Must(f, charge(f))
		}
		if stats := f.store.Stats(); f.used() != 20*8 || stats.Lost != 0 || stats.Borrows != 20 {
			f.Errorf("%d are charged, want %d; %+v", f.used(), 20*8, stats)
		}
	})
	run(t, "two policies in turn borrow nothing", 100, func(f *fixture) {
		one, two := f.l, f.limiter(f.store, other)
		for i := range 60 {
			f.l = []*limiter.Limiter{one, two}[i%2]
			f.allow(1, true)
		}
		testenv.Equal(f, f.store.Stats(), Stats{})
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
		run(t, c.what, c.n, func(f *fixture) {
			f.l = f.limiter(f.store, c.policy)
			<-time.After(time.Hour) // so that the first demand is not of time 0
			for range c.takes {
				f.allow(c.cost, true)
				<-time.After(c.every)
			}
			var got []int64
			held := int64(0)
			for _, op := range f.sent() {
				if op.Kind == limiter.OpTakeUpTo {
					got = append(got, op.Cost+held%c.cost)
					held = (op.Cost + held) % c.cost // what is left of a chunk
				}
			}
			testenv.Equal(f, fmt.Sprint(got), fmt.Sprint(c.borrowed), "borrowed")
		})
	}
	run(t, "is halved when tokens were not used", 1000, func(f *fixture) {
		f.hold() // with a chunk of 4
		<-time.After(ttl)
		f.allow(30, true)
		testenv.Equal(f, f.entry().chunk, 4*4/2, "the chunk, four times half of 4")
	})
	run(t, "is 1 again after a pause", 1000, func(f *fixture) {
		for range 30 {
			f.allow(1, true)
		}
		<-time.After(2 * ttl)
		f.sent()
		f.allow(1, true)
		f.allow(1, true)
		f.sends(op(limiter.OpRefund, 57), op(limiter.OpTake, 1), op(limiter.OpTake, 1))
	})
}

// Rule 9, the other part of which is in TestNew.
func TestMostHoldings(t *testing.T) {
	run(t, "the one used least recently is given up", 100, func(f *fixture) {
		const more = 10
		sh, kept := &f.store.shards[0], ""
		for i, n := 0, 0; n < maxHoldings/shards+more; i++ {
			key := fmt.Sprint(i)
			if f.store.shardOf(&limiter.Op{Name: "test", Key: key}) != sh {
				continue
			}
			if n++; n == 1 {
				kept = key
			}
			for _, key := range []string{key, key, key, key, key, key, kept} { // one token is left of four
				testenv.Must(f, testenv.ErrorOf(f.l.Allow(f.Context(), key)))
			}
			synctest.Wait()
		}
		stats := f.store.Stats()
		if e := sh.entries[id{"test", kept}]; e == nil || e.now.takes < maxHoldings/shards || stats.Holdings < maxHoldings/shards-1 || stats.Holdings > maxHoldings/shards || stats.GivenBack != more || stats.Lost != 0 {
			f.Errorf("%+v, %+v; want %d given back", e, stats, more)
		}
	})
	for what, use := range map[string]func(e *entry){
		"barred":      func(e *entry) { e.barred = 1 },
		"borrowing":   func(e *entry) { e.running = true },
		"giving back": func(e *entry) { e.back = make(chan struct{}) },
	} {
		run(t, "an entry in use stays, "+what, 100, func(f *fixture) {
			sh := &f.store.shards[0]
			for i := range maxHoldings/shards + 1 {
				e := f.store.entry(sh, &limiter.Op{Name: "test", Key: fmt.Sprint(i)}, instant{})
				if i == 0 {
					use(e)
				}
				if _, second := sh.entries[id{"test", "1"}]; second != (i > 0 && i < maxHoldings/shards) {
					f.Fatalf("after entry %d the second is there: %t", i, second)
				}
			}
		})
	}
}

// Rule 10.
func TestLimiterAround(t *testing.T) {
	run(t, "the deny cache refuses nothing that is held", 1000, func(f *fixture) {
		f.l = f.limiter(f.store, hourly, limiter.WithDenyCache(10, time.Minute))
		f.hold()
		// 993 are in the store and 3 are held.
		if res := f.allow(999, false); f.holds() != 996 || res.Remaining != 996 || res.RetryAfter != 3*time.Hour {
			f.Errorf("%d are held; %+v", f.holds(), res)
		}
		f.allow(996, true)
		f.allow(1, false)
		testenv.Equal(f, f.allow(1, false).Source, limiter.SourceDenyCache)
	})
	run(t, "a wait under another policy is the store's", 1000, func(f *fixture) {
		fast := hourly
		fast.Interval = time.Minute
		f.hold()
		testenv.Must(f, testenv.ErrorOf(f.limiter(f.inner.Store, fast).AllowUpTo(f.Context(), "k", 1000)))
		for cost := int64(1); cost <= 5; cost++ {
			got, err := f.l.Reserve(f.Context(), "k", cost, time.Second)
			testenv.Must(f, err)
			want, err := f.limiter(f.inner.Store, hourly).Reserve(f.Context(), "k", cost, time.Second)
			testenv.Must(f, err)
			testenv.Equal(f, got.RetryAfter, want.RetryAfter, "cost", cost)
		}
		testenv.Equal(f, f.allow(5, false).RetryAfter, 5*time.Minute, "Allow, beside 3 tokens that are held")
	})
	run(t, "FailOpen applies to an error of a borrow", 100, func(f *fixture) {
		f.l = f.limiter(f.store, hourly, limiter.FailOpen())
		f.hold()
		f.inner.before = func(limiter.Op) error { return limiter.ErrNotApplied }
		f.allow(3, true)
		testenv.Equal(f, f.allow(1, true).Source, limiter.SourcePolicy)
	})
}
