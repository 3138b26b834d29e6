package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
		if n := taken(t, theirs[1-i], key); n != 1 {
			t.Errorf("a refusal left %d taken of the other limit, want 1", n)
		}
	}
}

func TestTwoStoresOnOneFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "two.db")
	stores := []*sqlite.Store{openPath(t, path), openPath(t, path)}
	const workers = 64
	for _, set := range []struct {
		name  string
		keys  int
		calls int // of each worker
		limit int64
	}{{"hot", 1, 8, 50}, {"warm", 8, 8, 50}, {"cold", 1000, 3 * 1000 / workers, 2}} {
		t.Run("admit exactly the limit of "+set.name+" keys", func(t *testing.T) {
			skipShort(t, "the scripts of storetest count on one Store")
			for name, of := range rowtest.Lasting {
				admitted, asked := make([]atomic.Int64, set.keys), make([]atomic.Int64, set.keys)
				var next atomic.Int64
				each(workers, func() {
					w := int(next.Add(1))
					l := newLimiter(t, stores[w%2], name+set.name, of(set.limit), at(t0))
					for i := range set.calls {
						key := (w + i*workers) % set.keys
						r, err := l.Allow(t.Context(), strconv.Itoa(key))
						if err != nil {
							t.Errorf("%s: %v", name, err)
							return
						}
						asked[key].Add(1)
						if r.Allowed {
							admitted[key].Add(1)
						}
					}
				})
				for key := range set.keys {
					if got, want := admitted[key].Load(), min(set.limit, asked[key].Load()); got != want {
						t.Errorf("%s: key %d admitted %d of %d, want %d", name, key, got, asked[key].Load(), want)
					}
				}
			}
		})
	}
	// Requests over random limits in random order, single takes, refunds and sweeps. A ledger of what
	// the callers were told must equal the rows.
	t.Run("take all or none of several limits", func(t *testing.T) {
		const requests, rows = 25, 10
		limit := func(i int) int64 { return int64(40 * (1 + i)) }
		ls := [2][]*limiter.Limiter{limits(t, stores[0], rows, limit), limits(t, stores[1], rows, limit)}
		seed := rand.Uint64()
		var ledger [rows]atomic.Int64
		var passed, refused, next atomic.Int64
		each(workers, func() {
			w := next.Add(1)
			r, ls := rand.New(rand.NewPCG(seed, uint64(w))), ls[w%2]
			for range requests {
				some, cost := r.Perm(rows)[:1+r.IntN(limiter.MaxClaims)], 1+r.Int64N(3)
				if r.IntN(3) == 0 {
					res, err := ls[some[0]].AllowN(t.Context(), "k", cost)
					must(t, err)
					if res.Allowed {
						ledger[some[0]].Add(cost)
					}
					if r.IntN(4) == 0 {
						must(t, testenv.ErrorOf(stores[w%2].Sweep(t.Context(), 100)))
					}
					continue
				}
				var of []limiter.Claim
				for _, i := range some {
					of = append(of, limiter.Claim{Limiter: ls[i], Key: "k", Cost: cost})
				}
				res, err := limiter.AllowAll(t.Context(), of...)
				must(t, err)
				if !res.Allowed {
					refused.Add(1)
					continue
				}
				passed.Add(1)
				for _, i := range some {
					ledger[i].Add(cost)
				}
				if r.IntN(4) == 0 {
					if gave, err := ls[some[0]].RefundOf(t.Context(), "k", cost, res.Each[0]); err != nil || !gave {
						t.Errorf("RefundOf: %v, %v", gave, err)
					}
					ledger[some[0]].Add(-cost)
				}
			}
		})
		for i, l := range ls[0] {
			if got, row := ledger[i].Load(), taken(t, l, "k"); got != row || got > limit(i) {
				t.Errorf("seed %d: limit %d of %d: %d were taken, and the row says %d", seed, i, limit(i), got, row)
			}
		}
		if passed.Load() == 0 || refused.Load() == 0 {
			t.Errorf("%d passed and %d were refused; want both", passed.Load(), refused.Load())
		}
	})
	checkTypes(t, stores[0])
}

// A child process of a test does something to the file that a variable names. The tests run in a time
// zone with its own summer time, and a fraction of an hour off: nothing must depend on it.
func TestMain(m *testing.M) {
	chatham, err := time.LoadLocation("Pacific/Chatham")
	if err != nil {
		panic(err)
	}
	time.Local = chatham
	for variable, do := range map[string]func(path string) error{"SQLITE_TEST_CHILD": child, "SQLITE_TEST_WRITER": writes, "SQLITE_TEST_BUSY": busy} {
		if path := os.Getenv(variable); path != "" {
			if err := do(path); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	goleak.VerifyTestMain(m)
}

var shared = limiter.FixedWindow{Limit: 2000, Window: 24 * time.Hour}

// child takes on the file until it is refused, and prints how often it was not.
func child(path string) error {
	store, err := sqlite.Open(path)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := testenv.AwaitStart(); err != nil {
		return err
	}
	n, err := takeAll(context.Background(), store)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, n)
	return err
}

// busy takes from many keys of the file until a file beside it says that it may end.
func busy(path string) error {
	store, err := sqlite.Open(path)
	if err != nil {
		return err
	}
	defer store.Close()
	l, err := limiter.New(store, "busy", shared, limiter.WithTimeout(time.Minute))
	if err != nil {
		return err
	}
	if err := testenv.AwaitStart(); err != nil {
		return err
	}
	for err == nil {
		if _, stop := os.Stat(path + ".stop"); stop == nil {
			return nil
		}
		err = takeFor(context.Background(), l, 8, 20*time.Millisecond)
	}
	return err
}

// takeFor takes from many keys at a time until d is over.
func takeFor(ctx context.Context, l *limiter.Limiter, callers int, d time.Duration) error {
	begin, failed := time.Now(), make([]error, callers)
	var all sync.WaitGroup
	for w := range callers {
		all.Go(func() {
			for i := 0; failed[w] == nil && (i == 0 || time.Since(begin) < d); i++ {
				_, failed[w] = l.Allow(ctx, fmt.Sprint(w, " ", i%20_000))
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

func takeAll(ctx context.Context, store *sqlite.Store) (n int64, err error) {
	l, err := limiter.New(store, "shared", shared, at(t0), limiter.WithTimeout(time.Minute))
	if err != nil {
		return 0, err
	}
	for n <= shared.Limit { // one too many is wrong enough
		r, err := l.Allow(ctx, "key")
		if err != nil || !r.Allowed {
			return n, err
		}
		n++
	}
	return n, nil
}

func TestThreeProcessesShareOneFile(t *testing.T) {
	skipShort(t, "it starts processes")
	t.Parallel()
	path := filepath.Join(t.TempDir(), "processes.db")
	store := openPath(t, path)
	var admitted [3]int64
	var others []*exec.Cmd
	for range 2 {
		others = append(others, testenv.Self(t, "SQLITE_TEST_CHILD="+path))
	}
	ended := testenv.StartTogether(t, others, func(i int, out io.Reader) error {
		_, err := fmt.Fscanln(out, &admitted[i])
		return err
	})
	var err error
	if admitted[2], err = takeAll(t.Context(), store); err != nil {
		t.Error(err)
	}
	<-ended
	if total := admitted[0] + admitted[1] + admitted[2]; total != shared.Limit {
		t.Errorf("three processes admitted %v, want %d", admitted, shared.Limit)
	}
}
