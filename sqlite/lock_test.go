package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

// lock takes the write lock on a connection of its own, until unlock is called.
func lock(t *testing.T, store *sqlite.Store) (conn *sql.Conn, unlock func()) {
	t.Helper()
	conn, err := store.DB().Conn(t.Context())
	must(t, err)
	return conn, begin(t, conn, "BEGIN IMMEDIATE")
}

// begin begins a transaction. Its end commits and closes the connection.
func begin(t *testing.T, conn *sql.Conn, queries ...string) (end func()) {
	t.Helper()
	end = sync.OnceFunc(func() {
		must(t, testenv.ErrorOf(conn.ExecContext(context.Background(), "COMMIT")))
		must(t, conn.Close())
	})
	t.Cleanup(end)
	for _, query := range queries {
		must(t, testenv.ErrorOf(conn.ExecContext(t.Context(), query)))
	}
	return end
}

// If a refusal waited, its time limit could end, and FailOpen would let a request pass on a key
// that has nothing left.
func TestNoWaitBesideWriters(t *testing.T) {
	t.Parallel()
	pools := map[string]func(t testing.TB) *sqlite.Store{
		"file": openFile,
		"own pool": func(t testing.TB) *sqlite.Store {
			return newStore(t, openPool(t, "&_journal_mode=WAL&_txlock=immediate"))
		},
		"own pool without WAL": openers["own pool"],
	}
	for _, c := range []struct {
		name    string
		callers int
		write   func(ctx context.Context, store *sqlite.Store) error
	}{
		{"takes", 3, func(ctx context.Context, store *sqlite.Store) error {
			return testenv.ErrorOf(store.Do(ctx, takeOf("l0", "a", slow, 1)))
		}},
		{"takes of several limits", 2, func(ctx context.Context, store *sqlite.Store) error {
			return testenv.ErrorOf(store.DoAll(ctx, request(1, 2)))
		}},
		{"a sweep", 1, func(ctx context.Context, store *sqlite.Store) error { return testenv.ErrorOf(store.Sweep(ctx, 1000)) }},
	} {
		for pool, open := range pools {
			bubble(t, c.name+", "+pool, func(t *testing.T) {
				store := open(t)
				// Of l0 and l1 nothing is left, of l2 there is more.
				ls := limits(t, store, 3, func(i int) int64 { return int64(1 + i/2) }, limiter.FailOpen())
				if res, err := limiter.AllowAll(t.Context(), claims("used", ls...)...); err != nil || !res.Allowed {
					t.Fatalf("AllowAll = %+v, %v; want it allowed", res, err)
				}
				expired := takeOf("l0", "expired", slow, 1)
				expired.At = 1
				must(t, testenv.ErrorOf(store.Do(t.Context(), expired)))
				_, unlock := lock(t, store)
				var all sync.WaitGroup
				for range c.callers {
					all.Go(func() { must(t, c.write(t.Context(), store)) })
					synctest.Wait()
				}
				began := time.Now()
				for _, l := range ls[:2] {
					r, err := l.Allow(t.Context(), "used")
					if err != nil || r.Allowed || r.RetryAfter == 0 || r.Source != limiter.SourceStore {
						t.Errorf("%T: Allow = %+v, %v; want a refusal by the store", l.Policy(), r, err)
					}
					if r, err := l.Peek(t.Context(), "used"); err != nil || r.Remaining != 0 {
						t.Errorf("%T: Peek = %+v, %v; want nothing left", l.Policy(), r, err)
					}
					res, err := limiter.AllowAll(t.Context(), claims("used", ls[2], l)...)
					if err != nil || res.Allowed || res.Binding != 1 || !res.Each[0].Allowed {
						t.Errorf("%T: AllowAll = %+v, %v; want a refusal by claim 1", l.Policy(), res, err)
					}
				}
				changed := newLimiter(t, store, "l0", limiter.TokenBucket{Capacity: 1, Refill: 1, Interval: time.Second / 2}, at(t0))
				if r, err := changed.Peek(t.Context(), "used"); err != nil || r.RetryAfter != time.Second/2 {
					t.Errorf("Peek by another policy = %+v, %v; want a refusal for 500 ms", r, err)
				}
				must(t, testenv.ErrorOf(store.Overrides(t.Context(), "l0", 10)))
				if pool == "file" { // elsewhere the busy timeout of the pool applies
					must(t, store.Check(t.Context()))
				}
				testenv.Equal(t, time.Since(began), 0, "the wait of operations that write nothing")
				unlock()
				all.Wait()
				testenv.Equal(t, taken(t, ls[2], "used"), 1, "taken of the limit that refused nothing")
			})
		}
	}
}

// neverEnds is a context that never ends. waiting counts the functions that AfterFunc registered.
type neverEnds struct {
	context.Context
	waiting atomic.Int64
}

func (*neverEnds) Done() <-chan struct{} { return make(chan struct{}) }

func (w *neverEnds) AfterFunc(func()) (stop func() bool) {
	w.waiting.Add(1)
	return func() bool { w.waiting.Add(-1); return true }
}

// If nothing is written, the transactions of an own pool do not lock out other processes.
func TestReadsOfAnOwnPool(t *testing.T) {
	t.Parallel()
	store := newStore(t, openPool(t, "&_journal_mode=WAL&_txlock=immediate"))
	other, ops, theirs := openOnly(t, fileOf(t, store)), request(1, 2), takeOf("l", "other", window, 1)
	for i := range ops {
		ops[i].At, ops[i].Cost = 0, 50
	}
	must(t, testenv.ErrorOf(store.DoAll(t.Context(), ops)))
	theirs.Timeout = time.Second
	meanwhile := func() { must(t, testenv.ErrorOf(other.Do(t.Context(), theirs))) }
	store.SetClock(func() time.Time {
		meanwhile()
		return time.Now()
	})
	look := ops[0]
	look.Kind = limiter.OpLook
	for _, ops := range [][]limiter.Op{{look}, ops[:1], ops} {
		ctx := &neverEnds{Context: t.Context()}
		states, err := doAll(ctx, store, ops)
		must(t, err)
		testenv.Equal(t, states[0].Took, false, ops[0].Kind, len(ops), "granted")
		testenv.Equal(t, ctx.waiting.Load(), 0, ops[0].Kind, len(ops), "AfterFunc callbacks left in the caller's context")
	}
	// The row has another policy, so a look writes. Its caller leaves before it does.
	look.Policy = limiter.TokenBucket{Capacity: 50, Refill: 1, Interval: time.Hour}
	ctx, leave := context.WithCancel(t.Context())
	meanwhile = func() { meanwhile = leave } // on the second reading of the clock
	if err := testenv.ErrorOf(store.Do(ctx, look)); !errors.Is(err, limiter.ErrCanceled) || errors.Is(err, limiter.ErrOutcomeUnknown) {
		t.Errorf("a caller who left: %v; want ErrCanceled, and its outcome known", err)
	}
	store.SetClock(func() time.Time { return time.Time{} })
	testenv.ErrorIs(t, testenv.ErrorOf(store.DoAll(t.Context(), ops)), limiter.ErrInvalid, "a clock that returns the zero time")
}

// A write waits for the lock as long as its time limit and its caller allow.
func TestWaitForTheWriteLock(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"a take": 1, "several limits": 3} {
		bubble(t, name, func(t *testing.T) {
			store := openFile(t)
			execute(t, store, "DROP TABLE limiter_sliding_windows")
			_, unlock := lock(t, store)
			short, long := request(0, n), request(1, n)
			fails := request(2, n)
			fails[n-1] = takeOf("l", "2", limiter.SlidingWindow{Limit: 1, Window: time.Hour}, 1)
			for i := range short {
				short[i].Timeout = 30 * time.Millisecond
			}
			began := time.Now()
			each(8, func() {
				err := testenv.ErrorOf(doAll(t.Context(), store, short))
				if !errors.Is(err, limiter.ErrNotApplied) || !errors.Is(err, context.DeadlineExceeded) || !limiter.StoreFailed(err) ||
					errors.Is(err, limiter.ErrCanceled) || errors.Is(err, limiter.ErrKeyBusy) {
					t.Errorf("a time limit that ended: %v; want ErrNotApplied and DeadlineExceeded, and no ErrKeyBusy", err)
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(30*time.Millisecond, cancel)
			_, err := doAll(ctx, store, request(0, n))
			if !errors.Is(err, limiter.ErrCanceled) || !errors.Is(err, context.Canceled) || errors.Is(err, limiter.ErrOutcomeUnknown) {
				t.Errorf("a caller who left: %v; want ErrCanceled, and its outcome known", err)
			}
			testenv.Equal(t, time.Since(began), 60*time.Millisecond, "the time until the answers")
			answered := make(chan error, 1)
			go func() { answered <- testenv.ErrorOf(doAll(t.Context(), store, long)) }()
			select {
			case err := <-answered:
				t.Errorf("beside a writer: %v; want it to wait", err)
			case <-time.After(time.Second):
			}
			testenv.ErrorIs(t, testenv.ErrorOf(doAll(t.Context(), store, fails)), limiter.ErrMisconfigured, "a take whose table is missing")
			unlock()
			must(t, <-answered)
			for i := range short {
				testenv.Equal(t, used(read(t, store, short[i]), short[i]), 0, "charged for what was not applied")
				testenv.Equal(t, used(read(t, store, long[i]), long[i]), 1, "charged")
			}
		})
	}
}

func TestFaultsOfLocks(t *testing.T) {
	for _, f := range []fault{
		{name: "another connection writes", class: limiter.ErrNotApplied, begin: begins("BEGIN IMMEDIATE")},
		// Without WAL a writer keeps readers out, and readers keep writers out.
		{name: "another connection has all of the file", class: limiter.ErrNotApplied, open: withoutWAL, begin: begins("BEGIN EXCLUSIVE")},
		// Only the commit waits.
		{name: "another connection reads, without WAL", class: limiter.ErrNotApplied, doubt: true, open: withoutWAL, begin: reader},
		{name: "another connection reads", begin: reader},
	} {
		f.slow = f.class != nil
		f.run(t)
	}
}

func withoutWAL(t testing.TB, path string) *sqlite.Store {
	return newStore(t, openDB(t, path, "?_busy_timeout=0&_synchronous=OFF"))
}

// begins begins a transaction on a connection of another program to the file.
func begins(queries ...string) func(p *faulty) (end func()) {
	return func(p *faulty) (end func()) {
		p.Helper()
		conn, err := openDB(p, p.path, "").Conn(p.Context())
		must(p, err)
		return begin(p.T, conn, queries...)
	}
}

// reader reads in a transaction, until the function that it returns is called.
var reader = begins("BEGIN", "SELECT count(*) FROM limiter_token_buckets")

// A write fails with SQLITE_BUSY_SNAPSHOT if another connection wrote since its transaction read. No
// busy timeout helps. The Store reads the clock in between. Here the other connection writes then.
func TestFaultsOfSnapshots(t *testing.T) {
	p := newFaulty(t, openPath)
	other := &faulty{T: t, path: p.path, key: "key", store: openPath(t, p.path)}
	must(t, other.ask(t.Context()))
	meddles, reads := 0, 0
	meddle := func() { must(t, other.ask(t.Context())) }
	p.store.SetClock(func() time.Time {
		if reads++; reads <= meddles {
			meddle()
		}
		return time.Now()
	})

	// A take that is too late tries again.
	for _, meddles = range []int{1, 2, 7} {
		reads = 0
		p.wantFailures(1, nil)
	}
	// A take that is always too late is not applied.
	meddles, reads = 1<<30, 0
	p.inTime(func() { p.is(p.askSoon(t.Context()), limiter.ErrNotApplied) })
	t.Logf("it was too late %d times", reads)
	// If DoAll is too late, it looks again. Then it takes the write lock before it reads.
	meddle = func() { _ = other.askFor(t.Context(), time.Millisecond) } // fails beside the lock
	several := request(0, 2)
	several[0].At, several[1].At, reads = 0, 0, 0
	must(t, testenv.ErrorOf(p.store.DoAll(t.Context(), several)))
	testenv.Equal(t, reads, 3, "readings of the clock")

	meddles = 0
	p.recovers()
	p.admitted.Add(other.admitted.Load())
	p.drains()
}
