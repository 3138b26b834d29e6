package sqlite_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata" // where the machine has none

	"go.uber.org/goleak"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

// t0 is the time of all tests that pass the time in.
var t0 = time.Date(2033, 5, 18, 3, 33, 20, 0, time.UTC)

func at(now time.Time) limiter.Option { return limiter.WithClock(func() time.Time { return now }) }

func newLimiter(t testing.TB, store limiter.Store, name string, p limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	// The tests are of decisions, not of the speed of a busy machine. Options may say otherwise.
	l, err := limiter.New(store, name, p, append([]limiter.Option{limiter.WithTimeout(time.Minute)}, opts...)...)
	must(t, err)
	return l
}

// allow takes one, which must be granted.
func allow(t testing.TB, l *limiter.Limiter, key string) {
	t.Helper()
	if r, err := l.Allow(t.Context(), key); err != nil || !r.Allowed {
		t.Errorf("%s: Allow = %+v, %v; want it allowed", l.Name(), r, err)
	}
}

// each runs f in n goroutines.
func each(n int, f func()) {
	var all sync.WaitGroup
	for range n {
		all.Go(f)
	}
	all.Wait()
}

// The Store reads the clock between reading and writing. Here another Store takes meanwhile.
func TestTakeBetweenReadAndWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "between.db")
	one, other := openPath(t, path), openPath(t, path)
	var meanwhile func() // is called once, after one has read
	one.SetClock(func() time.Time {
		if f := meanwhile; f != nil {
			meanwhile = nil
			f()
		}
		return t0
	})
	for kind, policy := range rowtest.Lasting {
		for before := range int64(2) { // no row, and one
			name := fmt.Sprint(kind, before)
			ours, theirs := newLimiter(t, one, name, policy(before+1)), newLimiter(t, other, name, policy(before+1), at(t0))
			if r, err := theirs.AllowN(t.Context(), "k", before); err != nil || !r.Allowed {
				t.Fatalf("%s: before: %+v, %v", name, r, err)
			}
			meanwhile = func() { allow(t, theirs, "k") }
			if r, err := ours.Allow(t.Context(), "k"); err != nil || r.Allowed || meanwhile != nil {
				t.Errorf("%s: of %d one was granted that somebody else had taken: %+v, %v", name, before+1, r, err)
			}
		}
	}
	limit := func(int) int64 { return 2 }
	theirs := limits(t, other, 2, limit)
	var ours []*limiter.Limiter // by the clock of the Store
	for _, l := range theirs {
		ours = append(ours, newLimiter(t, one, l.Name(), l.Policy()))
	}
	for i := range theirs {
		key := fmt.Sprint("several ", i)
		if res, err := limiter.AllowAll(t.Context(), claims(key, ours...)...); err != nil || !res.Allowed {
			t.Fatalf("AllowAll = %+v, %v; want it allowed", res, err)
		}
		meanwhile = func() { allow(t, theirs[i], key) }
		res, err := limiter.AllowAll(t.Context(), claims(key, ours...)...)
		if err != nil || res.Allowed || res.Binding != i || meanwhile != nil {
			t.Errorf("one was granted that somebody else had taken from limit %d: %+v, %v", i, res, err)
		}
		testenv.Equal(t, taken(t, theirs[1-i], key), 1, "taken of the other limit after a refusal")
	}
}

// The tests run in a time zone with its own summer time, and a fraction of an hour off: nothing must
// depend on it.
func TestMain(m *testing.M) {
	chatham, err := time.LoadLocation("Pacific/Chatham")
	if err != nil {
		panic(err)
	}
	time.Local = chatham
	goleak.VerifyTestMain(m)
}

// limits returns n limiters in both tables. The limit of the i-th is limit(i).
func limits(t testing.TB, store *sqlite.Store, n int, limit func(i int) int64, opts ...limiter.Option) (ls []*limiter.Limiter) {
	t.Helper()
	for i := range n {
		var p limiter.Policy = limiter.TokenBucket{Capacity: limit(i), Refill: 1, Interval: time.Second}
		if i%2 == 1 {
			p = limiter.FixedWindow{Limit: limit(i), Window: 24 * time.Hour}
		}
		ls = append(ls, newLimiter(t, store, fmt.Sprint("l", i), p, append([]limiter.Option{at(t0)}, opts...)...))
	}
	return ls
}

func claims(key string, ls ...*limiter.Limiter) (claims []limiter.Claim) {
	for _, l := range ls {
		claims = append(claims, limiter.Claim{Limiter: l, Key: key})
	}
	return claims
}

// taken is how much was taken of a key.
func taken(t *testing.T, l *limiter.Limiter, key string) int64 {
	t.Helper()
	r, err := l.Peek(t.Context(), key)
	must(t, err)
	return r.Limit - r.Remaining
}

// Two limits are always taken together. Each of a refusal by a third limit must say so, also if a
// snapshot refuses because others write.
func TestRefusalTellsOfOneInstant(t *testing.T) {
	skipShort(t, "it needs traffic")
	t.Parallel()
	ls := limits(t, openFile(t), 3, func(i int) int64 { return []int64{1_000_000, 1_000_000, 1}[i] })
	allow(t, ls[2], "k")
	var ended atomic.Bool
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !ended.Load() {
				if res, err := limiter.AllowAll(t.Context(), claims("k", ls[0], ls[1])...); err != nil || !res.Allowed {
					t.Errorf("AllowAll = %+v, %v; want it allowed", res, err)
					return
				}
			}
		})
	}
	// Refusals are faster than charges: only a count of changes tells that both ran at once.
	changes, last := 0, int64(0)
	for changes < 100 && !t.Failed() {
		res, err := limiter.AllowAll(t.Context(), claims("k", ls...)...)
		if err != nil || res.Allowed {
			t.Errorf("AllowAll = %+v, %v; want a refusal", res, err)
			break
		}
		left := res.Each[0].Remaining
		if other := res.Each[1].Remaining; left != other {
			t.Errorf("a refusal saw %d left of one limit and %d of the other", left, other)
			break
		}
		if left != last {
			changes, last = changes+1, left
		}
	}
	ended.Store(true)
	all.Wait()
}
