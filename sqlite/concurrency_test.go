package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

// t0 is the time of all tests that pass the time in.
var t0 = time.Date(2033, 5, 18, 3, 33, 20, 0, time.UTC)

func at(now time.Time) limiter.Option { return limiter.WithClock(func() time.Time { return now }) }

func newLimiter(t testing.TB, store limiter.Store, name string, p limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	// What is decided is tested, not how fast a busy machine lets it; options may say otherwise.
	l, err := limiter.New(store, name, p, append([]limiter.Option{limiter.WithTimeout(time.Minute)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTwoStoresOnOneFileAdmitExactly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "two.db")
	stores := []*sqlite.Store{openPath(t, path), openPath(t, path)}
	policies := map[string]limiter.Policy{
		"bucket":  limiter.TokenBucket{Capacity: 50, Refill: 1, Interval: 24 * time.Hour},
		"window":  limiter.FixedWindow{Limit: 50, Window: 24 * time.Hour},
		"counted": limiter.FixedWindow{Limit: 50, Window: 24 * time.Hour, CountRejected: true},
	}
	const workers, cold, coldLimit = 64, 1000, 2
	sets := []struct {
		name  string
		keys  int
		calls int // of each worker
	}{{"hot", 1, 8}, {"warm", 8, 8}, {"cold", cold, 3 * cold / workers}}
	for name, policy := range policies {
		for _, set := range sets {
			limit := int64(50)
			if set.name == "cold" { // about three requests for two
				limit = coldLimit
				switch p := policy.(type) {
				case limiter.TokenBucket:
					p.Capacity = limit
					policy = p
				case limiter.FixedWindow:
					p.Limit = limit
					policy = p
				}
			}
			admitted, asked := make([]atomic.Int64, set.keys), make([]atomic.Int64, set.keys)
			var wg sync.WaitGroup
			for w := range workers {
				l := newLimiter(t, stores[w%2], name+set.name, policy, at(t0))
				wg.Go(func() {
					for i := range set.calls {
						key := (w + i*workers) % set.keys
						r, err := l.Allow(t.Context(), strconv.Itoa(key))
						if err != nil {
							t.Errorf("%s %s: %v", name, set.name, err)
							return
						}
						asked[key].Add(1)
						if r.Allowed {
							admitted[key].Add(1)
						}
					}
				})
			}
			wg.Go(func() {
				if _, err := stores[0].Sweep(t.Context(), 1_000_000); err != nil {
					t.Errorf("Sweep beside: %v", err)
				}
			})
			wg.Wait()
			for key := range set.keys {
				if got, want := admitted[key].Load(), min(limit, asked[key].Load()); got != want {
					t.Errorf("%s %s: key %d admitted %d of %d, want %d", name, set.name, key, got, asked[key].Load(), want)
				}
			}
		}
	}
	checkTypes(t, stores[0])
}

// The child takes on the file until it is refused, and prints how often it was not.
func TestMain(m *testing.M) {
	if path := os.Getenv("SQLITE_TEST_CHILD"); path != "" {
		if err := child(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

var shared = limiter.FixedWindow{Limit: 2000, Window: 24 * time.Hour}

func child(path string) error {
	store, err := sqlite.Open(path)
	if err != nil {
		return err
	}
	defer store.Close()
	n, err := takeAll(context.Background(), store)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, n)
	return err
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
	t.Parallel()
	path := filepath.Join(t.TempDir(), "processes.db")
	store := openPath(t, path)
	var total atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), "SQLITE_TEST_CHILD="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			line, _ := bufio.NewReader(out).ReadString('\n')
			if err := cmd.Wait(); err != nil {
				t.Errorf("child: %v", err)
			}
			n, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
			total.Add(n)
		})
	}
	wg.Go(func() {
		n, err := takeAll(t.Context(), store)
		if err != nil {
			t.Error(err)
		}
		total.Add(n)
	})
	wg.Wait()
	if total.Load() != shared.Limit {
		t.Errorf("three processes admitted %d, want %d", total.Load(), shared.Limit)
	}
}
