package memory_test

import (
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) limiter.Store { return memory.New() })
}

func TestStoreWhoseClockIsSteppedBack(t *testing.T) {
	t.Parallel()
	storetest.RunClock(t, func(*testing.T) (limiter.Store, func(time.Duration)) {
		now, store := newStore()
		usual := *now
		return store, func(d time.Duration) { *now = usual.Add(d) }
	})
}

func TestWithClockIgnoresNil(t *testing.T) {
	t.Parallel()
	now := time.Unix(2_000_000_000, 0)
	l := newLimiter(t, memory.New(memory.WithClock(func() time.Time { return now }), memory.WithClock(nil)), limiter.PerSecond(1))
	for i, want := range []bool{true, false, true} {
		if i == 2 {
			now = now.Add(time.Second)
		}
		testenv.Equal(t, allow(t, l, "k"), want, "call", i)
	}
}

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(*testing.B) limiter.Store { return memory.New() })
}

// newStore returns a store and its clock.
func newStore() (*time.Time, *memory.Store) {
	now := time.Unix(2_000_000_000, 0)
	return &now, memory.New(memory.WithClock(func() time.Time { return now }))
}

func newLimiter(t *testing.T, s limiter.Store, p limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(s, "l", p, opts...)
	testenv.Must(t, err)
	return l
}

func allow(t *testing.T, l *limiter.Limiter, key string) bool {
	t.Helper()
	r, err := l.Allow(t.Context(), key)
	testenv.Must(t, err)
	return r.Allowed
}

func TestStoreForgetsExpiredKeys(t *testing.T) {
	t.Parallel()
	now, store := newStore()
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
		*now = now.Add(time.Second)
	}
	*now = now.Add(24 * time.Hour) // now all that is left counts as expired
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

// The store forgets expired rows when it grows. An operation with its own time, far from the store's, must not
// make it forget rows that count by either clock.
func TestOtherTimesForgetNothing(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"a replay of the past": -1000 * time.Hour, "a time ahead": 1000 * time.Hour} {
		store := memory.New()
		other := time.Now().Add(ahead)
		l := newLimiter(t, store, limiter.PerHour(1))
		far := newLimiter(t, store, limiter.PerHour(1), limiter.WithClock(func() time.Time { return other }))
		if !allow(t, l, "own") {
			t.Fatalf("%s: the key of the store's clock is refused at first", name)
		}
		const keys = 40_000 // enough for every shard to be tidied
		for i := range keys {
			if !allow(t, far, strconv.Itoa(i)) {
				t.Fatalf("%s: the first request of key %d is refused", name, i)
			}
		}
		for i := range keys {
			if ahead < 0 && allow(t, far, strconv.Itoa(i)) {
				t.Fatalf("%s: key %d was forgotten", name, i)
			}
		}
		if allow(t, l, "own") {
			t.Errorf("%s: the key of the store's clock was forgotten", name)
		}
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
	testenv.Panics(t, "an option of New is nil", func() { memory.New(nil) })
}
