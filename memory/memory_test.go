package memory_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) limiter.Store { return memory.New() })
}

func TestStoreWhoseClockIsSteppedBack(t *testing.T) {
	t.Parallel()
	storetest.RunClock(t, func(*testing.T) (limiter.Store, func(time.Duration)) {
		c := newClock()
		usual := c.now
		return memory.New(memory.WithClock(c.Now)), func(d time.Duration) { c.now = usual.Add(d) }
	})
}

func TestStepBackWithinAWindow(t *testing.T) {
	t.Parallel()
	c := newClock() // 3 hours and 33 minutes after midnight
	l := newLimiter(t, memory.New(memory.WithClock(c.Now)), limiter.FixedWindow{Limit: 2, Window: 24 * time.Hour})
	c.Add(time.Hour)
	if !allow(t, l, "k") {
		t.Fatal("the first request is refused")
	}
	c.Add(-time.Hour)
	for i, want := range []bool{true, false} {
		if got := allow(t, l, "k"); got != want {
			t.Errorf("request %d after the step: Allow = %v, want %v", i+1, got, want)
		}
	}
}

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(*testing.B) limiter.Store { return memory.New() })
}

// clock is a clock that tests move by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newClock() *clock { return &clock{now: time.Unix(2_000_000_000, 0)} }

func newLimiter(t *testing.T, s limiter.Store, p limiter.Policy) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(s, "l", p)
	testenv.Must(t, err)
	return l
}

func allow(t *testing.T, l *limiter.Limiter, key string) bool {
	t.Helper()
	r, err := l.Allow(t.Context(), key)
	testenv.Must(t, err)
	return r.Allowed
}

func TestWithClockSetsTheStoreSClock(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := newLimiter(t, memory.New(memory.WithClock(c.Now), memory.WithClock(nil)), limiter.PerSecond(1))
	for i, want := range []bool{true, false} {
		if got := allow(t, l, "k"); got != want {
			t.Errorf("call %d: Allow = %v, want %v", i, got, want)
		}
	}
	c.Add(time.Second)
	if !allow(t, l, "k") {
		t.Error("Allow a second later is refused")
	}
}

func TestStoreForgetsExpiredKeys(t *testing.T) {
	t.Parallel()
	c := newClock()
	store := memory.New(memory.WithClock(c.Now))
	b := newLimiter(t, store, limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: time.Minute})
	w := newLimiter(t, store, limiter.FixedWindow{Limit: 1, Window: time.Minute})
	const total, inUse = 200_000, 2 * 3700 // keys of the last hour and a minute, one of each a second
	for i := range total / 2 {
		if !allow(t, b, strconv.Itoa(i)) || !allow(t, w, strconv.Itoa(i)) {
			t.Fatalf("the first request of key %d is refused", i)
		}
		if allow(t, b, strconv.Itoa(i)) || allow(t, w, strconv.Itoa(i)) {
			t.Fatalf("key %d was forgotten at once", i)
		}
		c.Add(time.Second)
	}
	c.Add(24 * time.Hour) // now all that is left counts as expired
	held, err := store.Sweep(t.Context(), total)
	testenv.Must(t, err)
	// A shard of 64 is not tidied below 256 rows.
	const most = max(64*256, 3*inUse)
	if held > most || held < inUse {
		t.Errorf("the store held %d of %d keys, want %d to %d", held, total, inUse, most)
	}
	if again, err := store.Sweep(t.Context(), total); again != 0 || err != nil {
		t.Errorf("a second Sweep removed %d, %v, want 0", again, err)
	}
}

func TestSweepLimit(t *testing.T) {
	t.Parallel()
	c := newClock()
	store := memory.New(memory.WithClock(c.Now))
	l := newLimiter(t, store, limiter.PerSecond(1))
	const keys = 1000 // several in each shard
	for i := range keys {
		allow(t, l, strconv.Itoa(i))
	}
	c.Add(24 * time.Hour)
	for _, want := range []int64{1, keys / 2, keys/2 - 1, 0} {
		if n, err := store.Sweep(t.Context(), max(1, want)); n != want || err != nil {
			t.Errorf("Sweep removed %d, %v, want %d", n, err, want)
		}
	}
}

func TestReplayForgetsNothing(t *testing.T) {
	t.Parallel()
	store := memory.New()
	now := time.Now().Add(-1000 * time.Hour) // a replay of the past
	l, err := limiter.New(store, "l", limiter.PerHour(1), limiter.WithClock(func() time.Time { return now }))
	testenv.Must(t, err)
	const keys = 40_000 // enough for every shard to be tidied
	for i := range keys {
		if !allow(t, l, strconv.Itoa(i)) {
			t.Fatalf("the first request of key %d is refused", i)
		}
	}
	for i := range keys {
		if allow(t, l, strconv.Itoa(i)) {
			t.Fatalf("key %d was forgotten", i)
		}
	}
}

// The store forgets expired rows when it grows. An operation with its own time, hours ahead, must not
// make it forget rows that count by the store's clock.
func TestATimeAheadForgetsNoKeyInUse(t *testing.T) {
	t.Parallel()
	store := memory.New()
	policy := limiter.PerHour(1)
	own, err := limiter.New(store, "own", policy)
	testenv.Must(t, err)
	later := time.Now().Add(1000 * time.Hour)
	ahead, err := limiter.New(store, "ahead", policy, limiter.WithClock(func() time.Time { return later }))
	testenv.Must(t, err)
	if res, err := own.Allow(t.Context(), "k"); err != nil || !res.Allowed {
		t.Fatalf("Allow = %+v, %v", res, err)
	}
	for i := range 40_000 { // every part of the store grows
		testenv.Must(t, testenv.ErrorOf(ahead.Allow(t.Context(), strconv.Itoa(i))))
	}
	if res, err := own.Allow(t.Context(), "k"); err != nil || res.Allowed {
		t.Errorf("Allow = %+v, %v, want it refused", res, err)
	}
}

func TestZeroStore(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, new(memory.Store), limiter.PerHour(1))
	if !allow(t, l, "k") || allow(t, l, "k") {
		t.Error("want one request allowed, and the next one refused")
	}
}

func TestNewPanicsForANilOption(t *testing.T) {
	t.Parallel()
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "an option of New is nil") {
			t.Errorf("panic %q", text)
		}
	}()
	memory.New(nil)
}
