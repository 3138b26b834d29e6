package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

// load counts the answers of callers.
type load struct {
	mu      sync.Mutex
	length  time.Duration
	decided int // by the store, within the length
	granted int // by the store
	passed  int // by the failure policy
	busy    int // ErrKeyBusy
	failed  int // another error
}

// ask has callers send one call after another, for a length of time.
func ask(callers int, length time.Duration, call func(caller int) (limiter.Result, error)) *load {
	y := &load{length: length}
	end := time.Now().Add(length)
	each(callers, func(caller int) {
		for time.Now().Before(end) {
			res, err := call(caller)
			y.add(res, err, time.Now().Before(end))
		}
	})
	return y
}

func (y *load) add(res limiter.Result, err error, within bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	switch {
	case errors.Is(err, limiter.ErrKeyBusy):
		y.busy++
	case err != nil:
		y.failed++
	case res.Source != limiter.SourceStore:
		y.passed++
	case within:
		y.decided++
	}
	if res.Allowed && res.Source == limiter.SourceStore {
		y.granted++
	}
}

// rate is the number of decisions per second.
func (y *load) rate() float64 { return float64(y.decided) / y.length.Seconds() }

func (y *load) String() string {
	return fmt.Sprintf("%.0f decisions/s, %d granted, %d passed, %d busy, %d failed", y.rate(), y.granted, y.passed, y.busy, y.failed)
}

// failOpen makes a limiter with FailOpen. The test logs the first failure of the store, because
// FailOpen hides it from the caller.
func failOpen(t *testing.T, store limiter.Store, policy limiter.Policy, timeout time.Duration) *limiter.Limiter {
	t.Helper()
	var first sync.Once
	return newLimiter(t, store, policy, limiter.WithTimeout(timeout), limiter.FailOpen(),
		limiter.WithObserver(func(_ context.Context, d limiter.Decision) {
			if limiter.StoreFailed(d.Err) {
				first.Do(func() { t.Logf("the store failed first with: %v", d.Err) })
			}
		}))
}

// allowAll is [limiter.AllowAll] of keys of one limiter.
func allowAll(t *testing.T, l *limiter.Limiter, keys ...string) (limiter.Result, error) {
	t.Helper()
	claims := make([]limiter.Claim, len(keys))
	for i, key := range keys {
		claims[i] = limiter.Claim{Limiter: l, Key: key}
	}
	res, err := limiter.AllowAll(t.Context(), claims...)
	return res.Result, err
}

// wantConns checks that a pool has made at most five connections more than it may have at a time.
func wantConns(t *testing.T, p *pgxpool.Pool) {
	t.Helper()
	if n, most := p.Stat().NewConnsCount(), int64(p.Config().MaxConns)+5; n > most {
		t.Errorf("%d connections were made, want at most %d", n, most)
	}
}

// distant makes round trips 1 ms longer, so that 500 callers overload a key on a fast machine too.
type distant struct{ net.Conn }

func (c distant) Write(b []byte) (int, error) {
	<-time.After(time.Millisecond)
	return c.Conn.Write(b)
}

// overloadTimeout is the time limit of callers that overload a key. A busy machine may need the default of
// 250 ms for one statement, and FailOpen would then be right to answer.
const overloadTimeout = 750 * time.Millisecond

// TestOverload runs beside no other test, because it keeps the machine busy.
func TestOverload(t *testing.T) {
	callers := 500
	if testenv.Race { // a statement of so many calls then takes longer than a time limit now and then
		callers = 50
	}
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		d := newDatabase(t, server)
		schema := d.schema(t)
		for _, c := range []struct {
			name       string
			limit      int64
			own, mixed bool // AllowAll also names a key of its caller; every second caller uses Allow
			leases     bool // instead
		}{
			{"AllowAll of one key passes nothing", 5, false, false, false},
			{"AllowAll of one key that has room passes nothing", 1 << 17, false, false, false},
			{"AllowAll of one key and one of each caller passes nothing", 5, true, false, false},
			{"AllowAll and Allow of one key pass nothing", 5, false, true, false},
			{"AllowAll of one key and one of each caller, and Allow, pass nothing", 5, true, true, false},
			{"leases of one key pass nothing", 1 << 17, false, false, true},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				p := pool(t, d.dsn, func(config *pgxpool.Config) {
					config.MaxConns = 4
					wrap(config.ConnConfig, func(conn net.Conn) net.Conn { return distant{conn} })
				})
				store := storeOn(t, p, schema)
				l := failOpen(t, store, slow(c.limit), overloadTimeout)
				leases, err := limiter.NewConcurrency(store, "leases", limiter.InFlight{Limit: 5, Hold: time.Minute},
					limiter.WithTimeout(overloadTimeout), limiter.FailOpen())
				must(t, err)
				y := ask(callers, time.Second, func(caller int) (limiter.Result, error) {
					if c.leases {
						lease, err := leases.TryAcquire(t.Context(), t.Name())
						defer lease.Release(t.Context()) //nolint:errcheck // the lease ends
						return lease.Result, err
					}
					if c.mixed && caller%2 == 0 {
						return l.Allow(t.Context(), t.Name())
					}
					keys := []string{t.Name()}
					if c.own { // half of them come before the shared key in the order of locks
						keys = append(keys, fmt.Sprintf("%c%s%d", "AZ"[caller/2%2], t.Name(), caller))
					}
					return allowAll(t, l, keys...)
				})
				t.Logf("%v; %d connections", y, p.Stat().NewConnsCount())
				if y.granted == 0 || int64(y.granted) > c.limit || y.passed > 0 {
					t.Errorf("%d were granted and %d passed, want at most %d and none", y.granted, y.passed, c.limit)
				}
				wantConns(t, p)
			})
		}
	})
}

// keepAsking has callers in the background ask again 10 ms after each answer.
func keepAsking(callers int, call func(caller int)) (stop func()) {
	ended := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		each(callers, func(caller int) {
			for {
				call(caller)
				select {
				case <-time.After(10 * time.Millisecond):
				case <-ended:
					return
				}
			}
		})
	})
	return func() {
		close(ended)
		all.Wait()
	}
}

// TestAllowAllBesideALock runs beside no other test, because its time limits are short.
func TestAllowAllBesideALock(t *testing.T) {
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		d := newDatabase(t, server)
		schema := d.schema(t)
		lock := func(t *testing.T, key string) (release func()) {
			t.Helper()
			return d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets WHERE key = '"+key+"' FOR UPDATE")
		}
		for name, locked := range map[string]string{"later": "z", "earlier": "a"} {
			t.Run("of an "+name+" row, other users are decided", func(t *testing.T) {
				var limiters [2]*limiter.Limiter // of two stores, as of two processes
				for i := range limiters {
					limiters[i] = failOpen(t, d.store(t, schema, nil), slow(1<<17), overloadTimeout)
				}
				organization := "m/" + t.Name()
				must(t, testenv.ErrorOf(allowAll(t, limiters[0], organization, locked)))
				defer lock(t, locked)()
				defer keepAsking(2, func(int) { _, _ = allowAll(t, limiters[0], organization, locked) })()
				d.blocked(t, 1)
				for _, l := range limiters {
					wantDecided(t, ask(1, overloadTimeout, func(int) (limiter.Result, error) {
						return allowAll(t, l, organization, "n/"+t.Name())
					}))
				}
				res, err := allowAll(t, limiters[1], organization, locked)
				must(t, err)
				testenv.Equal(t, res.Source, limiter.SourcePolicy, "a lock that lasts is a failure of the store:", res)
			})
		}
		for _, locked := range []string{"m", "z"} {
			t.Run("that is held half of the time, decides "+locked+" in time", func(t *testing.T) {
				l := failOpen(t, d.store(t, schema, nil), slow(1<<17), 2*limiter.DefaultTimeout)
				call := func(int) (limiter.Result, error) { return allowAll(t, l, "m", "z") }
				must(t, testenv.ErrorOf(call(0)))
				stop := keepAsking(1, func(int) {
					release := lock(t, locked)
					<-time.After(10 * time.Millisecond)
					release()
				})
				y := ask(4, 600*time.Millisecond, call)
				stop()
				wantDecided(t, y)
			})
		}
		t.Run("is busy if its time ends in the queue of the key", func(t *testing.T) {
			l := newLimiter(t, d.store(t, schema, nil), slow(5), limiter.WithTimeout(overloadTimeout))
			must(t, testenv.ErrorOf(allowAll(t, l, "m", "x")))
			defer lock(t, "x")()
			defer d.holdLock(t, queueOf(schema, limiter.Op{Name: "test", Key: "x", Policy: slow(5)}))()
			wantError(t, testenv.ErrorOf(allowAll(t, l, "m", "x")), limiter.ErrKeyBusy, limiter.ErrNotApplied)
		})
		for left, sent := range map[time.Duration]bool{30 * time.Millisecond: false, 95 * time.Millisecond: true} {
			t.Run(fmt.Sprintf("that leaves a third try %v, is busy", left), func(t *testing.T) {
				var acquired atomic.Int64
				var release func()
				var server peer
				l := newLimiter(t, d.store(t, schema, func(c *pgxpool.Config) {
					server.of(c, 4)
					c.PrepareConn = func(ctx context.Context, _ *pgx.Conn) (bool, error) {
						switch acquired.Add(1) {
						case 4: // the wait for the row, which the second try waited for in vain
							release()
						case 5: // the third try
							<-time.After(opcontext.LongestLockWait(ctx)*5/2 - left)
							server.gone.Store(true)
						}
						return true, nil
					}
				}), slow(5), limiter.WithTimeout(overloadTimeout))
				must(t, testenv.ErrorOf(allowAll(t, l, "m", "y")))
				release = lock(t, "y")
				if _, err := allowAll(t, l, "m", "y"); !errors.Is(err, limiter.ErrKeyBusy) || !sent && errors.Is(err, limiter.ErrOutcomeUnknown) {
					t.Errorf("%v, want ErrKeyBusy, and ErrOutcomeUnknown only if it was sent (%t)", err, sent)
				}
			})
		}
		t.Run("of a row that is being added, waits for that row", func(t *testing.T) {
			r := newTracer(false)
			l := newLimiter(t, d.store(t, schema, r.in), slow(5), limiter.WithTimeout(2*overloadTimeout))
			tx := storeOn(t, begin(t, connect(t, d.dsn), pgx.ReadCommitted), schema)
			for _, keys := range [][]string{{"new"}, {"known", "newer"}} {
				must(t, testenv.ErrorOf(allowAll(t, l, "known")))
				do(t, tx, take(slow(5), keys[len(keys)-1], 1))
				r.take()
				_, err := allowAll(t, l, keys...)
				if sent := r.take(); !limiter.StoreFailed(err) || len(sent) > 3+4*4 { // a wait, and three of two fifths of the time that is left
					t.Errorf("%v: %v after %d statements: %v", keys, err, len(sent), sent)
				}
			}
		})
		d.wantNoDeadlocks(t, 0)
	})
}

// wantDecided checks that the store decided all calls.
func wantDecided(t *testing.T, y *load) {
	t.Helper()
	if t.Log(y); y.granted == 0 || y.passed+y.busy+y.failed > 0 {
		t.Errorf("%v; want all decided", y)
	}
}

// TestLockedRows compares the decisions of other callers beside callers of locked rows with those before and after.
// In the best of three rounds they get at least a fourth. Other work of the machine makes one round slower; a pool
// that is used up makes all of them slower. New sessions answer more slowly, so a round comes before the rows are locked.
// The test runs beside no other, because it measures what a machine can do.
func TestLockedRows(t *testing.T) {
	const rows = 24
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		d := newDatabase(t, server)
		for _, size := range []int32{4, 20} {
			t.Run(fmt.Sprint("leave other keys a pool of ", size), func(t *testing.T) {
				schema := d.schema(t)
				p := pool(t, d.dsn, few(size))
				useUp(t, p, int(size))() // a busy machine takes a second for it
				store := storeOn(t, p, schema)
				l, free := failOpen(t, store, slow(1<<17), overloadTimeout), failOpen(t, store, slow(1<<17), overloadTimeout)
				locked := func(round, caller int) string { return fmt.Sprintf("locked %d %d", round, caller%rows) }
				for i := range 4 * rows {
					must(t, testenv.ErrorOf(l.Allow(t.Context(), locked(i/rows, i))))
				}
				others := func(caller int) (limiter.Result, error) { return free.Allow(t.Context(), fmt.Sprint("other", caller)) }
				alone := func() *load { return ask(16, 600*time.Millisecond, others) }
				besideLocked := func(round int) *load {
					// Half of the rows have two callers.
					defer keepAsking(rows*3/2, func(caller int) { _, _ = l.Allow(t.Context(), locked(round, caller)) })()
					return ask(16, time.Second, others)
				}
				t.Logf("before the rows are locked: %v", besideLocked(0))
				// PostgreSQL gets slower while this is open, because it cannot remove old versions of rows.
				release := d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets WHERE key LIKE 'locked%' FOR UPDATE")
				best := 0.0
				for round := 1; round < 4 && best < 0.25; round++ {
					before, beside, after := alone(), besideLocked(round), alone()
					t.Logf("before: %v; beside: %v; after: %v", before, beside, after)
					if n := before.passed + beside.passed + after.passed; n > 0 {
						t.Errorf("%d of the others passed, want none", n)
					}
					best = max(best, beside.rate()/min(before.rate(), after.rate()))
				}
				// On a quiet machine the others get nearly all. If locked rows used up the pool, they would get 0.04
				// at most. With the race detector it also depends on what else runs on the machine.
				if best < 0.25 && !testenv.Race {
					t.Errorf("the others got %.2f of their decisions, want at least a fourth", best)
				}
				release()
				t.Logf("%d connections", p.Stat().NewConnsCount())
				wantConns(t, p)
			})
		}
	})
}
