package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	// What is decided is tested, not how fast a busy machine lets it; options may say otherwise.
	l, err := limiter.New(store, name, p, append([]limiter.Option{limiter.WithTimeout(time.Minute)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A transaction that has read begins to write only if nobody else has written since.
func TestWhatIsTakenBetweenReadingAndWritingCounts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "between.db")
	one, other := openPath(t, path), openPath(t, path)
	var meanwhile func() // is called once, after one has read
	one.SetClock(func() time.Time {
		if f := meanwhile; f != nil {
			meanwhile = nil
			f()
		}
		return time.Now()
	})
	for kind, policy := range rowtest.Lasting {
		for before := range int64(2) { // no row, and one
			name := fmt.Sprint(kind, before)
			ours, theirs := newLimiter(t, one, name, policy(before+1)), newLimiter(t, other, name, policy(before+1))
			if r, err := theirs.AllowN(t.Context(), "k", before); err != nil || !r.Allowed {
				t.Fatalf("%s: before: %+v, %v", name, r, err)
			}
			meanwhile = func() {
				if r, err := theirs.Allow(t.Context(), "k"); err != nil || !r.Allowed {
					t.Errorf("%s: between: %+v, %v", name, r, err)
				}
			}
			if r, err := ours.Allow(t.Context(), "k"); err != nil || r.Allowed || meanwhile != nil {
				t.Errorf("%s: of %d one was granted that somebody else had taken: %+v, %v", name, before+1, r, err)
			}
		}
	}
}

func TestTwoStoresOnOneFileAdmitExactly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "two.db")
	stores := []*sqlite.Store{openPath(t, path), openPath(t, path)}
	const workers, cold, coldLimit = 64, 1000, 2
	sets := []struct {
		name  string
		keys  int
		calls int // of each worker
	}{{"hot", 1, 8}, {"warm", 8, 8}, {"cold", cold, 3 * cold / workers}}
	for name, of := range rowtest.Lasting {
		for _, set := range sets {
			limit := int64(50)
			if set.name == "cold" { // about three requests for two
				limit = coldLimit
			}
			admitted, asked := make([]atomic.Int64, set.keys), make([]atomic.Int64, set.keys)
			var wg sync.WaitGroup
			for w := range workers {
				l := newLimiter(t, stores[w%2], name+set.name, of(limit), at(t0))
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

// A child of a test does something to the file in a variable. The tests run in a time zone
// that is no whole number of hours off, with its own summer time: nothing must depend on it.
func TestMain(m *testing.M) {
	chatham, err := time.LoadLocation("Pacific/Chatham")
	if err != nil {
		panic(err)
	}
	time.Local = chatham
	for variable, do := range map[string]func(path string) error{"SQLITE_TEST_CHILD": child, "SQLITE_TEST_WRITER": hold, "SQLITE_TEST_BUSY": busy} {
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
