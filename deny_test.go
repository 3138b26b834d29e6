package limiter_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// denying is a Limiter with a deny cache of 10 keys on a store that remembers.
type denying struct {
	*limiter.Limiter
	t     *testing.T
	store *spyStore
}

func newDenying(t *testing.T, p limiter.Policy, opts ...limiter.Option) denying {
	t.Helper()
	store := &spyStore{Store: memory.New()}
	return denying{newLimiter(t, store, p, append([]limiter.Option{limiter.WithDenyCache(10, time.Minute)}, opts...)...), t, store}
}

// expect asks for n and checks who decides, and what.
func (d denying) expect(key string, n int64, allowed bool, source limiter.Source) limiter.Result {
	d.t.Helper()
	r, err := d.AllowN(d.t.Context(), key, n)
	if err != nil || r.Allowed != allowed || r.Source != source {
		d.t.Errorf("AllowN(%d) = %+v, %v; want Allowed %v by %v", n, r, err, allowed, source)
	}
	return r
}

// fill takes the only unit of a key, so that the store refuses the next request, and the cache the one after it.
func (d denying) fill(key string) {
	d.t.Helper()
	d.expect(key, 1, true, store)
	d.expect(key, 1, false, store)
	d.expect(key, 1, false, cache)
}

const (
	store = limiter.SourceStore
	cache = limiter.SourceDenyCache
)

func TestDenyCacheDecidesAsTheStoreWould(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []limiter.Policy{
			limiter.TokenBucket{Capacity: 4, Refill: 1, Interval: 200 * time.Millisecond},
			limiter.FixedWindow{Limit: 4, Window: 800 * time.Millisecond},
		} {
			d := newDenying(t, p)
			peek := func(n int64, allowed bool) {
				t.Helper()
				if r, err := d.PeekN(t.Context(), "k", n); err != nil || r.Allowed != allowed || r.Source != store {
					t.Errorf("%T: PeekN(%d) = %+v, %v; want Allowed %v by the store", p, n, r, err, allowed)
				}
			}
			d.expect("k", 2, true, store)
			peek(3, false) // the cache does not keep the refusal of a look
			d.expect("k", 3, false, store)
			peek(3, false) // and does not decide a look
			for _, n := range []int64{3, 4} {
				for _, wait := range []time.Duration{0, 10 * time.Millisecond} {
					want, err := newLimiter(t, d.store.Store, p).Reserve(t.Context(), "k", n, wait)
					must(t, err)
					want.Source = cache
					got, err := d.Reserve(t.Context(), "k", n, wait)
					if err != nil || got.Result != want.Result || got.Delay != want.Delay {
						t.Errorf("%T: Reserve(%d, %v) = %+v, %v; want %+v", p, n, wait, got.Result, err, want.Result)
					}
					must(t, got.Cancel(t.Context()))
					<-time.After(time.Millisecond)
				}
			}
			peek(1, true)
			d.expect("k", 2, true, store) // which fits
		}
	})
}

func TestACachedRefusalIsNoOlderThanItMayBe(t *testing.T) {
	t.Parallel()
	for maxAge, want := range map[time.Duration]time.Duration{0: limiter.DefaultDenyAge, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			d := newDenying(t, limiter.PerDay(1), limiter.WithDenyCache(1, maxAge))
			d.fill("k")
			<-time.After(want)
			d.expect("k", 1, false, cache)
			<-time.After(1)
			d.expect("k", 1, false, store)
			d.expect("k", 1, false, cache)
		})
	}
}

func TestWithClockMovesTheDenyCache(t *testing.T) {
	t.Parallel()
	now := time.Unix(2_000_000_000, 0)
	d := newDenying(t, limiter.PerDay(1), limiter.WithDenyCache(10, 0), clockOf(&now))
	d.fill("k")
	now = now.Add(time.Second)
	d.expect("k", 1, false, cache)
	now = now.Add(-2 * time.Second) // back: what was said then is of no use, now or later
	d.expect("k", 1, false, store)
	d.expect("k", 1, false, cache)
	now = now.Add(2 * time.Second)
	d.expect("k", 1, false, store)
}

func TestAWallClockThatGoesBackEndsARefusal(t *testing.T) {
	t.Parallel()
	d := newDenying(t, limiter.PerDay(1), limiter.WithDenyCache(10, 0))
	wall, mono, step := int64(1e18), int64(0), int64(0)
	d.SetDenyClock(func() (int64, int64) {
		now := wall
		wall, step = wall+step, 0 // the clock is stepped while the store is asked
		return now, mono
	})
	calls := []struct {
		wall, mono time.Duration
		want       limiter.Source
	}{
		{0, 0, store},
		{0, 20 * time.Millisecond, cache},
		{0, 1, store},           // set back while it went on
		{time.Second, 0, cache}, // frozen
		{1, 0, store},
		{-1, 0, store},
		{1, 0, cache},
		{-5, 9, store}, // set back
		{-9e17, 0, store},
		{9e17, 0, store}, // and by far
		{0, 0, cache},
		{time.Hour, time.Hour, store}, // or slept
		{-time.Hour, 0, store},
		{time.Hour, 0, store}, // and set right, which wakes nothing
	}
	d.expect("k", 1, true, store)
	for i, c := range calls {
		wall, mono = wall+int64(c.wall), mono+int64(c.mono)
		if r := d.expect("k", 1, false, c.want); t.Failed() {
			t.Fatalf("call %d: %+v", i, r)
		}
	}
	for _, during := range []int64{-int64(time.Hour), int64(time.Hour)} {
		wall, step = wall-1, during
		d.expect("k", 1, false, store)
		wall -= during
		d.expect("k", 1, false, store) // although the clock is right again
	}
}

func TestTheDenyCacheIsOffWhereItCouldBeWrong(t *testing.T) {
	t.Parallel()
	counts := limiter.FixedWindow{Limit: 1, Window: time.Hour, CountRejected: true}
	// The refusal of an unused key.
	lost := limiter.State{Row: limiter.Row{Limit: 1, Period: int64(24 * time.Hour)}, Now: time.Now().UnixNano()}
	// The row of this store stays that of another policy.
	anothers := memory.New()
	mustAllow(t, newLimiter(t, anothers, limiter.PerHour(1)), true)
	cached := limiter.WithDenyCache(1, 0)
	for name, l := range map[string]*limiter.Limiter{
		"CountRejected":   newLimiter(t, memory.New(), counts, cached),
		"a transaction":   newLimiter(t, inTransaction{memory.New()}, limiter.PerDay(1), cached),
		"not asked for":   newLimiter(t, memory.New(), limiter.PerDay(1)),
		"another policy":  newLimiter(t, anothers, limiter.PerDay(1), cached),
		"a race was lost": newLimiter(t, refusing(lost), limiter.PerDay(1), cached),
	} {
		for i := range 3 {
			r, err := l.Allow(t.Context(), "k")
			if err != nil || r.Source != store || i > 1 && r.Allowed {
				t.Errorf("%s: Allow = %+v, %v; want the store's result", name, r, err)
			}
		}
	}
}

func TestTheDenyCacheHoldsKeysAsTheyAreStored(t *testing.T) {
	t.Parallel()
	for _, c := range denyKeys {
		d := newDenying(t, limiter.PerDay(1), c.opts...)
		d.fill(c.key)
		d.expect(c.key+"2", 1, true, store)
		keys, _ := d.DenyKeys()
		if len(keys) != 1 || slices.Contains(keys, c.key) != (c.name == "Short") {
			t.Errorf("%s: the cache holds %q", c.name, keys)
		}
	}
}

func TestObserverSeesCachedRefusals(t *testing.T) {
	t.Parallel()
	var seen []limiter.Decision
	d := newDenying(t, limiter.PerDay(2), limiter.WithObserver(func(_ context.Context, x limiter.Decision) { seen = append(seen, x) }))
	d.expect("k", 2, true, store)
	d.expect("k", 2, false, store)
	r := d.expect("k", 1, false, cache)
	if len(seen) != 3 || seen[2].Result != r || seen[2].Cost != 1 || seen[2].Err != nil || seen[2].Limiter != "l" {
		t.Errorf("the observer saw %+v", seen)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if r, err := d.Allow(gone, "k"); r.Allowed || !errors.Is(err, limiter.ErrCanceled) {
		t.Errorf("Allow = %+v, %v; want ErrCanceled", r, err)
	}
	if r, err := d.AllowN(t.Context(), "k", 3); r.Source != limiter.SourcePolicy || !errors.Is(err, limiter.ErrExceedsCapacity) {
		t.Errorf("AllowN(3) = %+v, %v; want ErrExceedsCapacity", r, err)
	}
	calls := len(d.store.ops)
	if err := d.Wait(t.Context(), "k"); !errors.Is(err, limiter.ErrExceedsMaxWait) || len(d.store.ops) != calls {
		t.Errorf("Wait = %v, in %d calls of the store", err, len(d.store.ops)-calls)
	}
}

// The row was charged after the edge of a window, and the clock shows a time before the edge. The
// store counts in the row's window then, and so must the cache.
func TestDenyCacheBeforeTheRowsWindow(t *testing.T) {
	t.Parallel()
	edge := time.Unix(0, start)
	now := edge.Add(time.Millisecond)
	d := newDenying(t, limiter.FixedWindow{Limit: 10, Window: time.Hour}, clockOf(&now))
	d.expect("k", 9, true, store)
	now = edge.Add(-time.Second)
	d.expect("k", 5, false, store)
	d.expect("k", 5, false, cache)
	d.expect("k", 1, true, store)
}

func TestAllowUpToAndTheDenyCache(t *testing.T) {
	t.Parallel()
	d := newDenying(t, limiter.PerHour(2), fixed())
	upTo := func(n, want int64, source limiter.Source) {
		t.Helper()
		r, err := d.AllowUpTo(t.Context(), "k", n)
		if err != nil || r.Taken != want || r.Allowed != (want > 0) || r.Source != source {
			t.Errorf("AllowUpTo(%d) = %+v, %v, want %d by %v", n, r, err, want, source)
		}
	}
	d.expect("k", 1, true, store)
	d.expect("k", 2, false, store)
	upTo(9, 1, store) // the cached refusal of 2 says nothing about 1
	upTo(9, 0, store)
	upTo(9, 0, cache)
	d.expect("k", 1, false, cache) // a refusal of AllowUpTo is one of a cost of 1
	d.expect("k", 2, false, cache)
	must(t, d.Block(t.Context(), "k", time.Hour))
	d.expect("k", 1, false, store) // the refusal before the block ends too early
	d.expect("k", 1, false, cache)
	must(t, d.Reset(t.Context(), "k"))
	upTo(9, 2, store)
}

// The store's clock may run faster than the local one by 1/500, and may show the start of its tick.
func TestDenyCacheAsksTheStoreInTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		tick   int64
		wait   time.Duration // until the key passes
		before time.Duration // that, the request is made
		own    bool          // requests have a time of their own
		by     limiter.Source
	}{
		{"before the drift counts", 1, time.Second, 3 * time.Millisecond, false, cache},
		{"when the drift counts", 1, time.Second, time.Millisecond, false, store},
		{"by its own time there is no drift", 1, time.Second, time.Millisecond, true, cache},
		{"in the last tick", int64(time.Millisecond), 2 * time.Millisecond, 900 * time.Microsecond, false, store},
		{"before the last tick", int64(time.Millisecond), 2 * time.Millisecond, 1100 * time.Microsecond, false, cache},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			now := time.Unix(0, start)
			opts := []limiter.Option{limiter.WithDenyCache(1, time.Minute)}
			if c.own {
				opts = append(opts, clockOf(&now))
			}
			d := denying{newLimiter(t, oneRow(c.tick), limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: c.wait}, opts...), t, nil}
			d.SetDenyClock(func() (wall, mono int64) {
				return now.Truncate(16 * time.Millisecond).UnixNano(), now.UnixNano() - start
			})
			d.expect("k", 1, true, store)
			d.expect("k", 1, false, store)
			now = now.Add(c.wait - c.before)
			d.expect("k", 1, false, c.by)
		})
	}
}
