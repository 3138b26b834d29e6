package prove_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

// lockRows are those of callers who wait for somebody else, or do not wait.
func lockRows() []networkFault {
	return []networkFault{
		{"pool exhaustion", poolExhausted},
		{"lock queue by a stuck transaction: a lone take", loneTakeOfLockedRow},
		{"lock queue by a stuck transaction: a merged take beside cold keys", coldKeysBesideLockedRow},
		loadRow("lock queue by a stuck transaction: the table", func(_ *testing.T, n *network) loadFault {
			var release func()
			return loadFault{
				dsn: n.server.DSN() + "&pool_max_conns=8", must: []string{outcome.Unknown},
				begin: func(t *testing.T) {
					release = holdBy(t, n.server.DSN(), "LOCK "+tables.Names)
				},
				end: func(*testing.T) { release() },
			}
		}),
		{"ctx cancel mid-flight", canceledMidFlight},
	}
}

// poolExhausted has somebody else hold the only connection of a pool.
func poolExhausted(_ *testing.T, n *network) func(t *testing.T, r *campaign.Round) {
	return func(t *testing.T, r *campaign.Round) {
		pool := poolOf(t, n.server.DSN(), 1)
		store, err := postgres.New(pool)
		if err != nil {
			t.Fatal(err)
		}
		k := keyOn(t, n, r, store, limiter.DefaultTimeout)
		held, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			k.fails(t, r, limiter.DefaultTimeout, nil, outcome.NotApplied)
		}
		held.Release()
		k.works(t, r)
	}
}

func poolOf(t *testing.T, dsn string, conns int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func loneTakeOfLockedRow(_ *testing.T, n *network) func(t *testing.T, r *campaign.Round) {
	return func(t *testing.T, r *campaign.Round) {
		k := newOneKey(t, n, r, n.server.DSN(), limiter.DefaultTimeout)
		if _, err := k.Allow(t.Context(), k.key); err != nil {
			t.Fatal(err)
		}
		release := k.hold(t)
		k.fails(t, r, limiter.DefaultTimeout, func() {
			k.blocked(t, 1)
			wait(t.Context(), limiter.DefaultTimeout+20*time.Millisecond)
			release()
		}, outcome.Unknown, outcome.NotApplied)
		k.works(t, r)
	}
}

// coldKeysBesideLockedRow has many callers for a row that somebody has locked, and more
// for others, whom that is not to hold up.
func coldKeysBesideLockedRow(_ *testing.T, n *network) func(t *testing.T, r *campaign.Round) {
	// together is how long a statement of many keys waits for a row that is locked.
	const together = 100 * time.Millisecond
	return func(t *testing.T, r *campaign.Round) {
		// A statement that comes upon the locked row is over soon, and its keys go on one by
		// one: in time, if the machine is not busy with something else for long.
		k := newOneKey(t, n, r, n.server.DSN()+"&pool_max_conns=8", time.Second)
		if _, err := k.Allow(t.Context(), k.key); err != nil {
			t.Fatal(err)
		}
		before, release := k.spent(t), k.hold(t)
		var mu sync.Mutex
		hot, cold := map[string]int64{}, map[string]int64{}
		var waits []time.Duration // of cold keys
		var failure error
		late := newTimerDelay()
		ended := time.Now().Add(1500 * time.Millisecond)
		var callers sync.WaitGroup
		for i := range 32 {
			own := rand.New(rand.NewPCG(r.Seed, uint64(i)))
			callers.Go(func() {
				for time.Now().Before(ended) {
					key, told := k.key, hot
					if i%4 > 0 {
						key, told = fmt.Sprint(k.key, "/", own.IntN(200)), cold
					}
					began := time.Now()
					res, err := k.Allow(t.Context(), key)
					took := time.Since(began)
					mu.Lock()
					told[outcome.Of(res.Allowed, err)]++
					if i%4 > 0 {
						if waits = append(waits, took); err != nil {
							failure = err
						}
					}
					mu.Unlock()
					wait(t.Context(), time.Duration(own.IntN(10))*time.Millisecond)
				}
			})
		}
		callers.Wait()
		release()
		k.works(t, r)
		lag := late.stop()
		slices.Sort(waits)
		half, most := waits[len(waits)/2], waits[len(waits)*99/100]
		r.Most("answer of a cold key", waits[len(waits)-1])
		r.Most("answer of a cold key, 99 of 100", most)
		r.Most("answer of a cold key, half of them", half)
		if failure != nil || half > lateness()+lag || most > together+lateness()+lag {
			t.Errorf("cold keys were told %v, half of them within %v and 99 of 100 within %v, where timers ring %v late: %v", cold, half, most, lag, failure)
		}
		for class, count := range cold {
			r.Count("meanwhile of cold keys: "+class, count)
		}
		for class, count := range hot {
			r.Count("meanwhile of the hot key: "+class, count)
			r.Count(campaign.Operations, count)
			if class != outcome.Unknown && class != outcome.NotApplied {
				t.Errorf("%d takes of a locked row are %s", count, class)
			}
		}
		k.charged(t, r, before, hot)
	}
}

func canceledMidFlight(_ *testing.T, n *network) func(t *testing.T, r *campaign.Round) {
	const (
		keys = 20
		// lingering is for how long a statement may go on, and its caller wait for it,
		// when he has left.
		lingering = 100 * time.Millisecond
	)
	return func(t *testing.T, r *campaign.Round) {
		k := newOneKey(t, n, r, n.server.DSN()+"&pool_max_conns=8", limiter.DefaultTimeout)
		var mu sync.Mutex
		told := map[string]map[string]int64{}
		for i := range keys {
			told[fmt.Sprint(k.key, "/", i)] = map[string]int64{}
		}
		var longest time.Duration
		late := newTimerDelay()
		var callers sync.WaitGroup
		for i := range 16 {
			own := rand.New(rand.NewPCG(r.Seed, uint64(i)))
			callers.Go(func() {
				for range 100 {
					key := fmt.Sprint(k.key, "/", own.IntN(keys))
					ctx, cancel := context.WithCancel(t.Context())
					after := time.Duration(own.Int64N(int64(3 * time.Millisecond)))
					began := time.Now()
					timer := time.AfterFunc(after, cancel)
					res, err := k.Allow(ctx, key)
					took := time.Since(began)
					timer.Stop()
					cancel()
					mu.Lock()
					told[key][outcome.Of(res.Allowed, err)]++
					longest = max(longest, took-after)
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		k.works(t, r)
		lag := late.stop()
		r.Most("answer after the caller has left", longest)
		if longest > lingering+lateness()+lag {
			t.Errorf("a caller who left was answered %v later, where timers ring %v late", longest, lag)
		}
		quiet(t, k.dsn)
		conn := connection(t, n.server.DSN())
		defer conn.Close(context.Background())
		stored, err := tables.Spent(t.Context(), conn, k.Name())
		if err != nil {
			t.Fatal(err)
		}
		for key, classes := range told {
			certain, possible := outcome.Bounds(classes)
			r.Count(campaign.Unknown, possible)
			r.None(campaign.LostTakes, max(0, certain-stored[key]))
			r.None(campaign.DoubleCharges, max(0, stored[key]-certain-possible))
			for class, count := range classes {
				r.Count("after a caller left: "+class, count)
				r.Count(campaign.Operations, count)
				if class != outcome.Carried && class != outcome.Canceled && class != outcome.CanceledLate {
					t.Errorf("%d answers are %s", count, class)
				}
			}
		}
	}
}
