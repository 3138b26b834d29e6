package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/postgres"
)

// pairs are two stores on one database, as two processes have them.
var pairs = []struct {
	name string
	open func(t *testing.T, d *database, schema string) [2]*postgres.Store
}{
	{"two pools", func(t *testing.T, d *database, schema string) [2]*postgres.Store {
		return [2]*postgres.Store{d.store(t, schema, nil), d.store(t, schema, nil)}
	}},
	{"a pool and pgbouncer in transaction mode", func(t *testing.T, d *database, schema string) [2]*postgres.Store {
		behind := mode(pgx.QueryExecModeExec)(t, dbtest.PgBouncer(t, d.dsn))
		return [2]*postgres.Store{d.store(t, schema, nil), storeOn(t, behind, schema)}
	}},
}

const (
	warmKeys  = 16
	coldLimit = 2
	// coldEvery spreads the cold keys such that four workers meet at each, of both stores:
	// those have every other worker, so it is odd.
	coldEvery = workers/4 - 1
)

// seedExpired gives every other cold key a row that was forgotten long ago, so
// that a sweep has something to remove under the takes.
func (d *database) seedExpired(t *testing.T, schema string, coldKeys int) {
	t.Helper()
	d.exec(t, fmt.Sprintf(`INSERT INTO %s.limiter_token_buckets
		SELECT 3600000000000, 1, 3600000000000, %d, 1, 'test', convert_to('cold-' || i, 'UTF8')
		FROM generate_series(0, %d, 2) AS i`, schema, coldLimit, coldKeys-1))
	d.exec(t, fmt.Sprintf(`INSERT INTO %s.limiter_fixed_windows
		SELECT 0, 262980::bigint * 3600000000000, %[2]d, %[2]d, 1, 1, 'test', convert_to('cold-' || i, 'UTF8')
		FROM generate_series(0, %[3]d, 2) AS i`, schema, coldLimit, coldKeys-1))
}

func TestTakesOf64WorkersOnTwoStoresAreGrantedExactly(t *testing.T) {
	cases := []struct {
		pair     int
		kind     string // of rowtest.Lasting
		coldKeys int
	}{
		{0, "bucket", 1000},
		{0, "window", 1000},
		{0, "counting-window", 100},
		{1, "bucket", 200},
		{1, "window", 100},
	}
	onPostgres(t, func(t *testing.T, d *database) {
		for _, c := range cases {
			t.Run(pairs[c.pair].name+", "+c.kind, func(t *testing.T) {
				schema := d.schema(t)
				d.seedExpired(t, schema, c.coldKeys)
				exact(t, pairs[c.pair].open(t, d, schema), rowtest.Lasting[c.kind], c.coldKeys)
			})
		}
	})
}

func exact(t *testing.T, stores [2]*postgres.Store, policy func(int64) limiter.Policy, coldKeys int) {
	const limit = 100
	var some, cold [2]*limiter.Limiter
	for i, store := range stores {
		some[i], cold[i] = newLimiter(t, store, policy(limit)), newLimiter(t, store, policy(coldLimit))
	}
	seen := newTally()
	var removed atomic.Int64
	each(workers, func(worker int) {
		some, cold, store := some[worker%2], cold[worker%2], stores[worker%2]
		for range 3 {
			seen.allow(t, some, "hot", 1)
		}
		for i := range coldKeys {
			if (i+worker)%coldEvery == 0 {
				seen.allow(t, cold, fmt.Sprintf("cold-%d", i), 1)
			}
			if worker < 2 && i%40 == 0 {
				n, err := store.Sweep(t.Context(), 10_000)
				if err != nil {
					t.Errorf("Sweep: %v", err)
				}
				removed.Add(n)
			}
		}
		for i := range warmKeys * 2 {
			seen.allow(t, some, fmt.Sprintf("warm-%d", i%warmKeys), 1)
		}
	})
	for key, calls := range seen.calls {
		want := min(calls, limit)
		if strings.HasPrefix(key, "cold-") {
			want = coldLimit
		}
		if got := seen.granted[key]; got != want {
			t.Errorf("%s: %d of %d calls were granted, want %d", key, got, calls, want)
		}
	}
	if len(seen.calls) != 1+warmKeys+coldKeys {
		t.Errorf("%d keys were called, want %d", len(seen.calls), 1+warmKeys+coldKeys)
	}
	t.Logf("%d expired rows were removed meanwhile", removed.Load())
}

// booked has 64 workers reserve n times each on one key, and returns what was granted.
func booked(t *testing.T, stores [2]*postgres.Store, policy limiter.Policy, maxWait time.Duration, n int) (granted []limiter.State) {
	t.Helper()
	var mu sync.Mutex
	each(workers, func(worker int) {
		op := take(policy, "hot", 1)
		op.MaxWait = maxWait
		for range n {
			s, err := stores[worker%2].Do(t.Context(), op)
			if err != nil {
				t.Errorf("Do: %v", err)
			}
			if s.Took {
				mu.Lock()
				granted = append(granted, s)
				mu.Unlock()
			}
		}
	})
	return granted
}

func TestReservationsOf64WorkersAreSpacedByTheStep(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) { spaced(t, pairs[1].open(t, d, d.schema(t))) })
}

func spaced(t *testing.T, stores [2]*postgres.Store) {
	t.Helper()
	policy := limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: time.Minute}
	step, reach := int64(time.Minute), int64(5*time.Minute)
	acts := map[int64]bool{} // the instants at which bookings act, before the first one: at once
	first := int64(1) << 62
	for _, s := range booked(t, stores, policy, 30*time.Minute, 3) {
		act := s.Row.FullAt - reach
		if acts[act] {
			t.Errorf("two bookings act at %d", act)
		}
		acts[act], first = true, min(first, act)
	}
	if len(acts) != 5+30 {
		t.Errorf("%d were booked, want 5 at once and 30 in the minutes ahead", len(acts))
	}
	for i := range int64(len(acts)) {
		if !acts[first+i*step] {
			t.Errorf("nobody acts %d steps after the first", i)
		}
	}
}

func TestReservationsFillOneWindowAfterAnother(t *testing.T) {
	// The windows of 20 minutes that begin within 40 minutes: this one, the next
	// and, as it happens, one more.
	policy := limiter.FixedWindow{Limit: 10, Window: 20 * time.Minute}
	onPostgres(t, func(t *testing.T, d *database) {
		stores := pairs[0].open(t, d, d.schema(t))
		inWindow := map[int64]int{}
		for _, s := range booked(t, stores, policy, 40*time.Minute, 2) {
			inWindow[s.Row.Start]++
		}
		// An edge may pass while the test runs, and then there is one more.
		if len(inWindow) < 3 || len(inWindow) > 4 {
			t.Errorf("bookings went into %d windows, want 3", len(inWindow))
		}
		for start, n := range inWindow {
			if n > 10 || n < 10 && len(inWindow) == 3 {
				t.Errorf("%d booked in the window at %d, want 10", n, start)
			}
		}
	})
}

func TestPoliciesThatAlternateAdmitNoMoreThanTheLarger(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		stores := pairs[0].open(t, d, d.schema(t))
		for kind, two := range map[string][2]limiter.Policy{
			"bucket":                      {slow(100), limiter.TokenBucket{Capacity: 60, Refill: 1, Interval: 2 * time.Hour}},
			"window":                      {long(100), long(60)},
			"window that counts refusals": {counting(100), counting(60)},
		} {
			ls := [2]*limiter.Limiter{newLimiter(t, stores[0], two[0]), newLimiter(t, stores[1], two[1])}
			seen := newTally()
			each(workers, func(worker int) {
				for i := range 4 {
					seen.allow(t, ls[worker%2], kind, 1)
					seen.allow(t, ls[(worker+i)%2], fmt.Sprintf("%s %d", kind, worker%4), 1)
				}
			})
			for key, got := range seen.granted {
				if got < 1 || got > 100 {
					t.Errorf("%s: %d of %d were granted, want at most 100", key, got, seen.calls[key])
				}
				t.Logf("%s: %d of %d", key, got, seen.calls[key])
			}
		}
	})
}
