package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
)

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

// wantShare checks what other callers got while callers asked for locked rows, beside what they got
// before and after that. The rows are locked all the time, because PostgreSQL gets slower the longer a
// transaction is open: it can remove no old version of a row.
func wantShare(t *testing.T, before, beside, after *load) {
	t.Helper()
	t.Logf("before: %v; beside: %v; after: %v", before, beside, after)
	// On a quiet machine the others get nearly all. If locked rows used up the pool, they would get 0.04
	// at most. With the race detector it also depends on what else runs on the machine.
	if without := min(before.rate(), after.rate()); beside.rate() < without/4 && !raceEnabled {
		t.Errorf("the others got %.2f of their decisions, want at least a quarter", beside.rate()/without)
	}
	if n := before.passed + beside.passed + after.passed; n > 0 {
		t.Errorf("%d of the others passed, want none", n)
	}
}

// twoStores are limiters on two stores with a pool each, as of two processes.
func twoStores(t *testing.T, d *database, schema string, timeout time.Duration) (limiters [2]*limiter.Limiter) {
	t.Helper()
	for i := range limiters {
		limiters[i] = failOpen(t, d.store(t, schema, nil), slow(1<<17), timeout)
	}
	return limiters
}

// askUsers has callers of each store ask for an organization and a user of their own.
func askUsers(t *testing.T, limiters [2]*limiter.Limiter, callers int, length time.Duration, organization string) (loads [2]*load) {
	t.Helper()
	each(len(limiters), func(i int) {
		loads[i] = ask(callers, length, func(caller int) (limiter.Result, error) {
			return allowAll(t, limiters[i], organization, fmt.Sprintf("n/%s/%d/%d", t.Name(), i, caller))
		})
	})
	return loads
}

// TestAllowAllBesideALock runs beside no other test, because it measures how many decisions a machine
// makes.
func TestAllowAllBesideALock(t *testing.T) {
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		d := newDatabase(t, server)
		schema := d.schema(t)
		for _, c := range []struct{ name, locked string }{
			{"of a later row, other users are decided", "z"},
			{"of an earlier row, other users are decided", "a"},
		} {
			t.Run(c.name, func(t *testing.T) {
				limiters, organization := twoStores(t, d, schema, patience), "m/"+t.Name()
				if _, err := allowAll(t, limiters[0], organization, c.locked); err != nil {
					t.Fatal(err)
				}
				defer d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets WHERE key = '"+c.locked+"' FOR UPDATE")()
				before := askUsers(t, limiters, 16, 600*time.Millisecond, organization)
				stop := keepAsking(1, func(int) { _, _ = allowAll(t, limiters[0], organization, c.locked) })
				beside := askUsers(t, limiters, 16, time.Second, organization)
				stop()
				for i, after := range askUsers(t, limiters, 16, 600*time.Millisecond, organization) {
					wantShare(t, before[i], beside[i], after)
				}
			})
		}
		for _, locked := range []string{"m", "z"} {
			t.Run("that is held half of the time, decides "+locked+" in time", func(t *testing.T) {
				l := twoStores(t, d, schema, limiter.DefaultTimeout)[0]
				call := func(int) (limiter.Result, error) { return allowAll(t, l, "m", "z") }
				if _, err := call(0); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(bounded(t))
				stop := keepAsking(1, func(int) {
					release := d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets WHERE key = '"+locked+"' FOR UPDATE")
					select {
					case <-time.After(10 * time.Millisecond):
					case <-ctx.Done():
					}
					release()
				})
				y := ask(4, 600*time.Millisecond, call)
				cancel()
				stop()
				wantDecided(t, y)
			})
		}
		t.Run("that nobody else holds, decides all in time", func(t *testing.T) {
			// 64 callers of one key need more than the default time limit on a slow machine.
			for _, y := range askUsers(t, twoStores(t, d, schema, 4*limiter.DefaultTimeout), 64, 700*time.Millisecond, "m/"+t.Name()) {
				wantDecided(t, y)
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

// connectAll makes all connections of a pool.
func connectAll(t *testing.T, p *pgxpool.Pool) {
	t.Helper()
	for range p.Config().MaxConns {
		conn, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
}

// TestLockedRows runs beside no other test, because it measures how many decisions a machine makes.
func TestLockedRows(t *testing.T) {
	const rows = 24
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		d := newDatabase(t, server)
		for _, size := range []int32{4, 8, 20} {
			t.Run(fmt.Sprint("leave other keys a pool of ", size), func(t *testing.T) {
				schema := d.schema(t)
				p := pool(t, d.dsn, few(size))
				connectAll(t, p) // a busy machine takes a second for it
				l := failOpen(t, storeOn(t, p, schema), slow(1<<17), patience)
				for i := range rows {
					if _, err := l.Allow(t.Context(), fmt.Sprint("locked", i)); err != nil {
						t.Fatal(err)
					}
				}
				others := func(caller int) (limiter.Result, error) { return l.Allow(t.Context(), fmt.Sprint("other", caller)) }
				release := d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets WHERE key LIKE 'locked%' FOR UPDATE")
				before := ask(16, 600*time.Millisecond, others)
				// Half of the rows have two callers.
				stop := keepAsking(rows*3/2, func(caller int) { _, _ = l.Allow(t.Context(), fmt.Sprint("locked", caller%rows)) })
				beside := ask(16, time.Second, others)
				stop()
				wantShare(t, before, beside, ask(16, 600*time.Millisecond, others))
				release()
				t.Logf("%d connections", p.Stat().NewConnsCount())
				wantConns(t, p)
			})
		}
	})
}
