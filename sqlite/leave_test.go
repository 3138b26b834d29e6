package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

// Callers leave at any time, alone and while others are there. What a caller is told agrees with
// what it was charged.
func TestCallersWhoLeave(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		store   *sqlite.Store
		callers int
		limits  int  // of each request
		unknown bool // whether an outcome may be unknown
	}{
		{"alone", openFile(t), 1, 1, false}, // a statement that has begun runs to its end
		{"file", openFile(t), 16, 1, true},
		{"memory", openPath(t, ":memory:"), 16, 1, true},
		{"own pool", newStore(t, openPool(t, "&_journal_mode=WAL")), 16, 1, true},
		{"own pool without WAL", newStore(t, openPool(t, "")), 16, 1, true},
		{"several limits", openFile(t), 16, 3, true},
		{"several limits, own pool", newStore(t, openPool(t, "&_journal_mode=WAL")), 16, 3, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			takes := 1500 / c.limits
			var all sync.WaitGroup
			answers := make([]error, takes)
			for w := range c.callers {
				all.Go(func() {
					random := rand.New(rand.NewPCG(uint64(w), 0))
					for i := w; i < takes; i += c.callers {
						answers[i] = leave(t, c.store, request(i, c.limits), soon(random))
					}
				})
			}
			all.Wait()
			checkAnswers(t, c.store, answers, c.limits, c.unknown)
		})
	}
}

// request returns takes of a fresh key, by several limits.
func request(i, limits int) (ops []limiter.Op) {
	for n := range limits {
		ops = append(ops, takeOf(fmt.Sprint("l", n), fmt.Sprint(i), []limiter.Policy{slow, window}[n%2], 1))
	}
	slices.SortFunc(ops, func(a, b limiter.Op) int { return a.Compare(&b) })
	return ops
}

// soon returns up to 131 ms, and as often 2 to 4 µs as 65 to 131 ms: a machine may be fast or slow.
// Now and then it returns 0.
func soon(random *rand.Rand) time.Duration {
	if random.IntN(16) == 0 {
		return 0
	}
	return time.Duration(random.Int64N(int64(time.Microsecond) << random.IntN(18)))
}

// leave makes a request, and cancels it after a while.
func leave(t *testing.T, store *sqlite.Store, ops []limiter.Op, after time.Duration) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if after == 0 {
		cancel()
	}
	defer time.AfterFunc(after, cancel).Stop()
	states, err := doAll(ctx, store, ops)
	for _, s := range states {
		testenv.Equal(t, s.Took, true, "a take of a fresh key was granted")
	}
	return err
}

// doAll calls Do for one operation, and DoAll for several.
func doAll(ctx context.Context, store *sqlite.Store, ops []limiter.Op) ([]limiter.State, error) {
	if len(ops) > 1 {
		return store.DoAll(ctx, ops)
	}
	s, err := store.Do(ctx, ops[0])
	if err != nil {
		return nil, err
	}
	return []limiter.State{s}, nil
}

// checkAnswers compares the answers with the rows, after the last statement.
func checkAnswers(t *testing.T, store *sqlite.Store, answers []error, limits int, mayBeUnknown bool) {
	t.Helper()
	must(t, testenv.ErrorOf(store.Do(t.Context(), takeOf("l", "last", slow, 1)))) // after all others
	var allowed, gone, unknown, charged int
	for i, err := range answers {
		ops := request(i, limits)
		n := used(read(t, store, ops[0]), ops[0])
		for _, op := range ops {
			if other := used(read(t, store, op), op); other != n || n > 1 {
				t.Errorf("a request was charged %d times by one limit and %d times by another", n, other)
			}
		}
		switch {
		case err == nil:
			allowed++
			testenv.Equal(t, n, 1, "charges of a granted request")
		case !errors.Is(err, limiter.ErrCanceled):
			t.Errorf("a request whose caller left: %v, want ErrCanceled", err)
		case errors.Is(err, limiter.ErrOutcomeUnknown) && mayBeUnknown:
			unknown++
			charged += int(n)
		default:
			gone++
			testenv.Equal(t, n, 0, "charges of a request that was reported as not applied:", err)
		}
	}
	t.Logf("%d granted, %d left in time, %d of unknown outcome, of which %d were charged", allowed, gone, unknown, charged)
	testenv.Equal(t, allowed == 0 || gone == 0, false, "the callers left too late or too early to show anything")
}

// Without WAL the commit waits for readers. Here it waits until one of its callers has left.
func TestSharedTransactionOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, openPool(t, ""))
		conn, err := store.DB().Conn(t.Context())
		must(t, err)
		end := begin(t, conn, "BEGIN", "SELECT count(*) FROM limiter_token_buckets")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		several := request(0, 2)
		several[0].Timeout, several[1].Timeout = 20*time.Millisecond, 20*time.Millisecond
		testenv.ErrorIs(t, testenv.ErrorOf(store.DoAll(t.Context(), several)), limiter.ErrNotApplied, "DoAll beside a reader")
		for _, op := range ahead { // they time out, and the others go together
			op.Timeout = 20 * time.Millisecond
			all.Go(func() {
				testenv.ErrorIs(t, testenv.ErrorOf(store.Do(t.Context(), op)), limiter.ErrNotApplied, "beside a reader")
			})
			synctest.Wait()
		}
		leaves := takeOf("l", "leaves", slow, 1)
		left := make(chan error, 1)
		go func() { left <- testenv.ErrorOf(store.Do(ctx, leaves)) }()
		synctest.Wait() // it is the first of those that go together
		for i := range 5 {
			all.Go(func() {
				s, err := store.Do(t.Context(), takeOf("l", fmt.Sprint("stays ", i), slow, 1))
				testenv.Equal(t, s.Took, true, "a take that stayed was granted:", err)
			})
		}
		<-time.After(100 * time.Millisecond)
		cancel()
		if err := <-left; !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, limiter.ErrOutcomeUnknown) {
			t.Errorf("the caller who left: %v, want ErrCanceled and ErrOutcomeUnknown", err)
		}
		end()
		all.Wait()
		testenv.Equal(t, used(read(t, store, leaves), leaves), 1, "charged to the caller who left")
	})
}

// Close leaves no outcome unknown: the rows have what was granted, and nothing else.
func TestCloseUnderTraffic(t *testing.T) {
	t.Parallel()
	endless := limiter.TokenBucket{Capacity: 1 << 30, Refill: 1, Interval: time.Second}
	test := func(t *testing.T, store *sqlite.Store) {
		t.Parallel()
		reader := openOnly(t, fileOf(t, store))
		ops := []limiter.Op{takeOf("l", "hot", endless, 1), takeOf("m", "hot", endless, 3)}
		for i := range 14 {
			ops = append(ops, takeOf("l", fmt.Sprint(i), endless, 2))
		}
		granted := make([]int64, len(ops))
		var mu sync.Mutex
		var all, warm sync.WaitGroup
		for w := range 32 {
			warm.Add(1)
			arrived := sync.OnceFunc(warm.Done)
			all.Go(func() {
				defer arrived()
				for i := w; ; i++ {
					s, err := store.Do(t.Context(), ops[i%len(ops)])
					if err != nil {
						testenv.ErrorIs(t, err, limiter.ErrNotApplied, "a take that Close met")
						testenv.Equal(t, errors.Is(err, limiter.ErrOutcomeUnknown), false, "a take that Close met has an unknown outcome:", err)
						return
					}
					testenv.Equal(t, s.Took, true, "granted")
					mu.Lock()
					granted[i%len(ops)]++
					mu.Unlock()
					if i == w+10 {
						arrived()
					}
				}
			})
		}
		warm.Wait()
		must(t, store.Close())
		all.Wait()
		for i, op := range ops {
			testenv.Equal(t, used(read(t, reader, op), op), granted[i]*op.Cost, op.Name, op.Key, "charged")
		}
	}
	for _, name := range []string{"file", "own pool"} { // the rows in memory go with the Store
		t.Run(name, func(t *testing.T) { test(t, openers[name](t)) })
	}
}
