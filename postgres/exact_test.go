package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// sweeping is a store that sweeps.
type sweeping interface {
	limiter.Store
	Sweep(ctx context.Context, limit int64) (int64, error)
}

// open opens a store on the tables of a schema.
type open func(t *testing.T, d *database, schema string) sweeping

// direct opens a store on a pool of its own.
func direct(change func(*pgxpool.Config), opts ...postgres.Option) open {
	return func(t *testing.T, d *database, schema string) sweeping { return d.store(t, schema, change, opts...) }
}

// Two stores are used at once, as by two processes.
func TestTwoStoresGrantExactly(t *testing.T) {
	locked := func(level string) open {
		return func(t *testing.T, d *database, schema string) sweeping {
			return postgres.RowLocked{Store: d.store(t, schema, isolated(level))}
		}
	}
	behind := func(t *testing.T, d *database, schema string) sweeping {
		return storeOn(t, mode(pgx.QueryExecModeExec)(t, dbtest.PgBouncer(t, d.dsn)), schema)
	}
	serializable := func(t *testing.T, d *database, schema string) sweeping {
		d.exec(t, "ALTER DATABASE "+query[string](t, d, "SELECT current_database()::text")+" SET default_transaction_isolation = 'serializable'")
		return d.store(t, schema, nil)
	}
	onPostgres(t, func(t *testing.T, d *database) {
		for _, c := range []struct {
			name          string
			first, second open
		}{
			{"on two pools", direct(isolated("read committed")), direct(isolated("read committed"))},
			{"on a pool and behind PgBouncer", direct(isolated("read committed")), behind},
			{"on pools that are repeatable read by default", direct(isolated("repeatable read")), direct(isolated("repeatable read"))},
			{"on pools that are serializable by default", direct(isolated("serializable")), direct(isolated("serializable"))},
			{"under the lock", locked("read committed"), locked("read committed")},
			{"under the lock, on pools that are serializable by default", locked("serializable"), locked("serializable")},
			{"on a serializable database behind PgBouncer", serializable, behind},
		} {
			t.Run(c.name, func(t *testing.T) { exact(t, d, c.first, c.second) })
		}
	})
}

// exact checks two stores on the same tables with each kind of policy.
func exact(t *testing.T, d *database, first, second open) {
	t.Helper()
	schema := d.schema(t)
	stores := [2]sweeping{first(t, d, schema), second(t, d, schema)}
	for kind := range rowtest.Lasting {
		t.Run(kind, func(t *testing.T) { exactOf(t, d, schema, stores, kind) })
	}
}

// exactOf takes from a hot key and from cold keys, half of which have an expired row that a sweep may delete.
// Four workers meet at each cold key, two on each store. The names of the keys begin with the kind of policy.
func exactOf(t *testing.T, d *database, schema string, stores [2]sweeping, kind string) {
	t.Helper()
	const limit, coldLimit, coldKeys, coldEvery = 100, 2, 100, workers/4 - 1
	for _, insert := range []string{
		"token_buckets SELECT 3600000000000, 1, 3600000000000, 2, 1",
		"fixed_windows SELECT 0, 262980::bigint * 3600000000000, 2, 2, 1, 1",
	} {
		d.exec(t, fmt.Sprintf("INSERT INTO %s.limiter_%s, 'test', convert_to('%s-cold-' || i, 'UTF8') FROM generate_series(0, %d, 2) AS i",
			schema, insert, kind, coldKeys-1))
	}
	var hot, cold [2]*limiter.Limiter
	for i, store := range stores {
		hot[i], cold[i] = newLimiter(t, store, rowtest.Lasting[kind](limit)), newLimiter(t, store, rowtest.Lasting[kind](coldLimit))
	}
	seen := newTally()
	each(workers, func(worker int) {
		for range 3 {
			seen.allow(t, hot[worker%2], kind+"-hot", 1)
		}
		for i := range coldKeys {
			if (i+worker)%coldEvery == 0 {
				seen.allow(t, cold[worker%2], fmt.Sprintf("%s-cold-%d", kind, i), 1)
			}
			if worker < 2 && i%20 == 0 {
				testenv.ErrorIs(t, testenv.ErrorOf(stores[worker].Sweep(t.Context(), 10_000)), nil, "Sweep")
			}
		}
	})
	for key, calls := range seen.calls {
		want := int64(limit)
		if strings.Contains(key, "cold") {
			want = coldLimit
		}
		testenv.Equal(t, seen.granted[key], want, key, "granted of", calls, "calls")
	}
	testenv.Equal(t, len(seen.calls), 1+coldKeys, "keys that were called")
}

// Pgpool-II keeps a server connection for each client, so prepared statements work.
func TestPgpool(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		dsn := dbtest.Pgpool(t, d.dsn)
		for _, m := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
			db := mode(m)(t, dsn)
			t.Run("any row, "+m.String(), func(t *testing.T) {
				schema := d.schema(t)
				rowtest.Run(t, storeOn(t, db, schema), rows{connect(t, d.dsn), schema}, 60)
			})
			t.Run("two stores grant exactly, "+m.String(), func(t *testing.T) {
				exact(t, d, direct(nil), func(t *testing.T, _ *database, schema string) sweeping { return storeOn(t, db, schema) })
			})
		}
		t.Run("no charge is lost or doubled when backends are terminated", func(t *testing.T) { terminatedBehind(t, d, dsn) })
	})
}

// terminatedBehind takes through the pooler of dsn while the backends behind it are terminated. The pooler
// answers 5 s after that, so the time limit of a take ends it.
func terminatedBehind(t *testing.T, d *database, dsn string) {
	const capacity, callers, kills = 100_000, 8, 3
	schema := d.schema(t)
	behind := newLimiter(t, storeOn(t, pool(t, dsn, few(callers)), schema), slow(capacity), limiter.WithTimeout(timeout))
	var granted, unknown [callers]atomic.Int64
	var all atomic.Int64
	stop := keepAsking(callers, func(i int) {
		res, err := behind.Allow(t.Context(), fmt.Sprint(secret, i))
		switch {
		case errors.Is(err, limiter.ErrOutcomeUnknown):
			unknown[i].Add(1)
		case err != nil:
			wantError(t, err, limiter.ErrNotApplied)
		case res.Allowed:
			granted[i].Add(1)
			all.Add(1)
		}
	})
	for range kills {
		enough := all.Load() + 50
		waitFor(t, "takes are granted", func() bool { return all.Load() > enough })
		d.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
	}
	stop()
	direct := newLimiter(t, d.store(t, schema, nil), slow(capacity))
	for i := range callers {
		res, err := direct.Peek(t.Context(), fmt.Sprint(secret, i))
		must(t, err)
		told, most := granted[i].Load(), granted[i].Load()+unknown[i].Load()
		if stored := capacity - res.Remaining; stored < told || stored > most {
			t.Errorf("caller %d: %d are stored, want %d to %d", i, stored, told, most)
		}
		t.Logf("caller %d: %d granted, %d outcomes unknown", i, told, most-told)
	}
}
