package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

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

// taken is how much was taken of the key "k".
func taken(t *testing.T, l *limiter.Limiter) int64 {
	t.Helper()
	r, err := l.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return r.Limit - r.Remaining
}

// Requests over random limits in random order, single takes, refunds and sweeps, by 64 goroutines. A
// ledger of what they were told must equal the rows.
func TestRequestsOverSeveralLimitsOnTwoStoresAreTakenAllOrNone(t *testing.T) {
	t.Parallel()
	const workers, requests, rows = 64, 25, 10
	path := filepath.Join(t.TempDir(), "two.db")
	limit := func(i int) int64 { return int64(40 * (1 + i)) }
	var ls [2][]*limiter.Limiter
	for i := range ls {
		ls[i] = limits(t, openPath(t, path), rows, limit)
	}
	sweeping := openPath(t, path)
	seed := rand.Uint64()
	var ledger [rows]atomic.Int64
	var passed, refused atomic.Int64
	var next atomic.Uint64
	begin := time.Now()
	each(workers, func() {
		w := next.Add(1)
		r, ls := rand.New(rand.NewPCG(seed, w)), ls[w%2]
		for range requests {
			some := r.Perm(rows)[:1+r.IntN(limiter.MaxClaims)]
			var of []limiter.Claim
			cost := 1 + r.Int64N(3)
			for _, i := range some {
				of = append(of, limiter.Claim{Limiter: ls[i], Key: "k", Cost: cost})
			}
			if r.IntN(8) == 0 {
				if _, err := sweeping.Sweep(t.Context(), 100); err != nil {
					t.Errorf("Sweep beside: %v", err)
				}
				if res, err := ls[some[0]].Allow(t.Context(), "k"); err != nil {
					t.Errorf("Allow: %v", err)
				} else if res.Allowed {
					ledger[some[0]].Add(1)
				}
			}
			res, err := limiter.AllowAll(t.Context(), of...)
			switch {
			case err != nil:
				t.Errorf("AllowAll: %v", err)
			case !res.Allowed:
				refused.Add(1)
			default:
				passed.Add(1)
				for _, i := range some {
					ledger[i].Add(cost)
				}
				if r.IntN(4) > 0 {
					break
				}
				if gave, err := ls[some[0]].RefundOf(t.Context(), "k", cost, res.Each[0]); err != nil || !gave {
					t.Errorf("RefundOf: %v, %v", gave, err)
				}
				ledger[some[0]].Add(-cost)
			}
		}
	})
	t.Logf("seed %d: %d passed, %d were refused, in %v", seed, passed.Load(), refused.Load(), time.Since(begin))
	for i, l := range ls[0] {
		if got, row := ledger[i].Load(), taken(t, l); got != row || got > limit(i) {
			t.Errorf("seed %d: limit %d of %d: %d were taken, and the row says %d", seed, i, limit(i), got, row)
		}
	}
	if passed.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d passed and %d were refused; want both", passed.Load(), refused.Load())
	}
	checkTypes(t, sweeping)
}

// The Store reads the clock between reading and writing, which lets the other one in.
func TestWhatIsTakenBetweenReadingAndWritingSeveralLimitsCounts(t *testing.T) {
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
	policies := []limiter.Policy{limiter.PerDay(2), limiter.FixedWindow{Limit: 2, Window: 24 * time.Hour}}
	for i := range policies {
		key := fmt.Sprint("k", i)
		var ours, theirs []*limiter.Limiter
		for _, p := range policies {
			ours, theirs = append(ours, newLimiter(t, one, "l", p)), append(theirs, newLimiter(t, other, "l", p, at(t0)))
		}
		if res, err := limiter.AllowAll(t.Context(), claims(key, ours...)...); err != nil || !res.Allowed {
			t.Fatalf("AllowAll = %+v, %v; want it allowed", res, err)
		}
		meanwhile = func() {
			if r, err := theirs[i].Allow(t.Context(), key); err != nil || !r.Allowed {
				t.Errorf("between: %+v, %v; want it allowed", r, err)
			}
		}
		res, err := limiter.AllowAll(t.Context(), claims(key, ours...)...)
		if err != nil || res.Allowed || res.Binding != i || meanwhile != nil {
			t.Errorf("one was granted that somebody else had taken from limit %d: %+v, %v", i, res, err)
		}
		if r, err := theirs[1-i].Peek(t.Context(), key); err != nil || r.Remaining != 1 {
			t.Errorf("a refusal took from the other limit: %+v, %v", r, err)
		}
	}
}

func TestARefusalBySeveralLimitsNeedsNoWriteLock(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]*sqlite.Store{
		"file":                 openFile(t),
		"own pool":             newStore(t, openPool(t, "&_journal_mode=WAL&_txlock=immediate")),
		"own pool with no WAL": newStore(t, openPool(t, "")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ls := limits(t, store, 4, func(i int) int64 { return int64(1 + i/2) }) // of the last two more is left
			if res, err := limiter.AllowAll(t.Context(), claims("k", ls...)...); err != nil || !res.Allowed {
				t.Fatalf("AllowAll = %+v, %v; want it allowed", res, err)
			}
			conn := lock(t, store)
			defer conn.Close()
			for i := range 2 {
				res, err := limiter.AllowAll(t.Context(), claims("k", ls[3], ls[i], ls[2])...)
				if err != nil || res.Allowed || res.Binding != 1 || !res.Each[0].Allowed || !res.Each[2].Allowed {
					t.Errorf("AllowAll beside a writer = %+v, %v; want a refusal by claim 1", res, err)
				}
			}
			passes := make(chan error, 1)
			go func() {
				_, err := limiter.AllowAll(context.Background(), claims("k", ls[3], ls[2])...)
				passes <- err
			}()
			select {
			case err := <-passes:
				t.Errorf("AllowAll with room beside a writer: %v; want it to wait", err)
			case <-time.After(20 * time.Millisecond):
			}
			if _, err := conn.ExecContext(t.Context(), "COMMIT"); err != nil {
				t.Fatal(err)
			}
			if err := <-passes; err != nil {
				t.Errorf("AllowAll after the writer: %v", err)
			}
			if a, b := taken(t, ls[2]), taken(t, ls[3]); a != 2 || b != 2 {
				t.Errorf("%d and %d were taken, want 2 and 2", a, b)
			}
		})
	}
}

// Two limits are always taken together. Each of a refusal by a third one must say so, also if a
// snapshot refuses because others write.
func TestARefusalBySeveralLimitsTellsOfOneInstant(t *testing.T) {
	t.Parallel()
	ls := limits(t, openFile(t), 3, func(i int) int64 { return []int64{1_000_000, 1_000_000, 1}[i] })
	if _, err := ls[2].Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
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

func TestARequestOverSeveralLimitsIsNotStarved(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	ls := limits(t, store, 8, func(int) int64 { return 1_000_000 })
	var ended atomic.Bool
	var all sync.WaitGroup
	for w := range 64 {
		all.Go(func() {
			for i := 0; !ended.Load(); i++ {
				if r, err := ls[w%8].Allow(t.Context(), strconv.Itoa(i%3)); err != nil || !r.Allowed {
					t.Errorf("Allow = %+v, %v; want it allowed", r, err)
					return
				}
			}
		})
	}
	for range 100 {
		if res, err := limiter.AllowAll(t.Context(), claims("0", ls...)...); err != nil || !res.Allowed {
			t.Errorf("AllowAll = %+v, %v; want it allowed", res, err)
		}
	}
	ended.Store(true)
	all.Wait()
}

func TestRequestsOverSeveralLimitsBehindALockAreNotApplied(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	ls := limits(t, store, 3, func(int) int64 { return 100 }, limiter.WithTimeout(30*time.Millisecond))
	conn := lock(t, store)
	defer conn.Close()
	each(64, func() {
		res, err := limiter.AllowAll(t.Context(), claims("k", ls...)...)
		if !errors.Is(err, limiter.ErrNotApplied) || errors.Is(err, limiter.ErrKeyBusy) || !limiter.StoreFailed(err) || res.Allowed {
			t.Errorf("AllowAll beside a writer = %+v, %v; want ErrNotApplied", res, err)
		}
	})
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	for _, l := range ls {
		if n := taken(t, newLimiter(t, store, l.Name(), l.Policy(), at(t0))); n != 0 {
			t.Errorf("what was not applied took %d", n)
		}
	}
}

func TestCanceledRequestsOverSeveralLimitsAreCountedByAllOrNone(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]*sqlite.Store{"file": openFile(t), "own pool": newStore(t, openPool(t, "&_journal_mode=WAL"))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ls := limits(t, store, 3, func(int) int64 { return 1_000_000 })
			var allowed, unknown int64
			for i := range 400 {
				ctx, cancel := context.WithCancel(t.Context())
				timer := time.AfterFunc(time.Duration(i)*time.Microsecond/2, cancel)
				res, err := limiter.AllowAll(ctx, claims("k", ls...)...)
				timer.Stop()
				cancel()
				switch {
				case err == nil && res.Allowed:
					allowed++
				case errors.Is(err, limiter.ErrCanceled) && errors.Is(err, limiter.ErrOutcomeUnknown):
					unknown++
				case !errors.Is(err, limiter.ErrCanceled):
					t.Fatalf("AllowAll = %+v, %v; want it allowed or ErrCanceled", res, err)
				}
			}
			first := taken(t, ls[0])
			for _, l := range ls {
				if n := taken(t, l); n != first || n < allowed || n > allowed+unknown {
					t.Errorf("%d were counted and by the first limit %d; %d were allowed, and of %d it is not known", n, first, allowed, unknown)
				}
			}
		})
	}
}

func TestATableThatIsMissingDoesNotBlockTheOther(t *testing.T) {
	t.Parallel()
	store := openFile(t)
	ls := limits(t, store, 2, func(int) int64 { return 100 })
	if _, err := store.DB().ExecContext(t.Context(), "DROP VIEW limiter_remaining; DROP TABLE limiter_fixed_windows"); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if res, err := limiter.AllowAll(t.Context(), claims("k", ls...)...); !errors.Is(err, limiter.ErrMisconfigured) || res.Allowed {
			t.Errorf("AllowAll = %+v, %v; want ErrMisconfigured", res, err)
		}
	}
	if r, err := ls[0].Allow(t.Context(), "k"); err != nil || r.Remaining != 99 {
		t.Errorf("Allow on the other table = %+v, %v; want 99 left", r, err)
	}
}

// The file has to grow for new keys.
func TestNewKeysOfSeveralLimits(t *testing.T) {
	t.Parallel()
	ls := limits(t, openFile(t), 4, func(int) int64 { return 1 })
	for i := range 600 {
		if res, err := limiter.AllowAll(t.Context(), claims(fmt.Sprint("a key of some length ", i), ls...)...); err != nil || !res.Allowed {
			t.Fatalf("AllowAll on key %d = %+v, %v; want it allowed", i, res, err)
		}
	}
}
