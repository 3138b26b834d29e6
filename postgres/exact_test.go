package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/postgres"
)

// sweeping is a store that sweeps.
type sweeping interface {
	limiter.Store
	Sweep(ctx context.Context, limit int64) (int64, error)
}

// Two stores are used at once, as by two processes.
func TestTwoStoresGrantExactly(t *testing.T) {
	behind := func(t *testing.T, d *database, schema string) *postgres.Store {
		return storeOn(t, mode(pgx.QueryExecModeExec)(t, dbtest.PgBouncer(t, d.dsn)), schema)
	}
	onPostgres(t, func(t *testing.T, d *database) {
		strict := func(level string) func(*testing.T, *database, string) [2]sweeping {
			return func(t *testing.T, d *database, schema string) [2]sweeping {
				return [2]sweeping{d.store(t, schema, isolated(level)), d.store(t, schema, isolated(level))}
			}
		}
		locked := func(level string) func(*testing.T, *database, string) [2]sweeping {
			return func(t *testing.T, d *database, schema string) [2]sweeping {
				return [2]sweeping{
					postgres.RowLocked{Store: d.store(t, schema, isolated(level))}, postgres.RowLocked{Store: d.store(t, schema, isolated(level))},
				}
			}
		}
		for _, c := range []struct {
			name string
			open func(t *testing.T, d *database, schema string) [2]sweeping
		}{
			{"on two pools", strict("read committed")},
			{"on a pool and behind PgBouncer", func(t *testing.T, d *database, schema string) [2]sweeping {
				return [2]sweeping{d.store(t, schema, nil), behind(t, d, schema)}
			}},
			{"on pools that are repeatable read by default", strict("repeatable read")},
			{"on pools that are serializable by default", strict("serializable")},
			{"under the lock", locked("read committed")},
			{"under the lock, on pools that are serializable by default", locked("serializable")},
			{"on a serializable database behind PgBouncer", func(t *testing.T, d *database, schema string) [2]sweeping {
				d.exec(t, "ALTER DATABASE "+query[string](t, d, "SELECT current_database()::text")+
					" SET default_transaction_isolation = 'serializable'")
				return [2]sweeping{d.store(t, schema, nil), behind(t, d, schema)}
			}},
		} {
			for kind, policy := range rowtest.Lasting {
				t.Run(c.name+", "+kind, func(t *testing.T) {
					schema := d.schema(t)
					stores := c.open(t, d, schema)
					exact(t, d, schema, stores, policy)
				})
			}
		}
	})
}

// exact takes from a hot key and from cold keys, half of which have an expired row that a sweep may delete.
// Four workers meet at each cold key, two on each store.
func exact(t *testing.T, d *database, schema string, stores [2]sweeping, policy func(int64) limiter.Policy) {
	t.Helper()
	const limit, coldLimit, coldKeys, coldEvery = 100, 2, 100, workers/4 - 1
	for _, insert := range []string{
		"token_buckets SELECT 3600000000000, 1, 3600000000000, 2, 1",
		"fixed_windows SELECT 0, 262980::bigint * 3600000000000, 2, 2, 1, 1",
	} {
		d.exec(t, fmt.Sprintf("INSERT INTO %s.limiter_%s, 'test', convert_to('cold-' || i, 'UTF8') FROM generate_series(0, %d, 2) AS i",
			schema, insert, coldKeys-1))
	}
	var hot, cold [2]*limiter.Limiter
	for i, store := range stores {
		hot[i], cold[i] = newLimiter(t, store, policy(limit)), newLimiter(t, store, policy(coldLimit))
	}
	seen := newTally()
	each(workers, func(worker int) {
		for range 3 {
			seen.allow(t, hot[worker%2], "hot", 1)
		}
		for i := range coldKeys {
			if (i+worker)%coldEvery == 0 {
				seen.allow(t, cold[worker%2], fmt.Sprintf("cold-%d", i), 1)
			}
			if worker < 2 && i%20 == 0 {
				if _, err := stores[worker].Sweep(t.Context(), 10_000); err != nil {
					t.Errorf("Sweep: %v", err)
				}
			}
		}
	})
	for key, calls := range seen.calls {
		want := int64(limit)
		if strings.HasPrefix(key, "cold-") {
			want = coldLimit
		}
		if got := seen.granted[key]; got != want {
			t.Errorf("%s: %d of %d calls were granted, want %d", key, got, calls, want)
		}
	}
	if len(seen.calls) != 1+coldKeys {
		t.Errorf("%d keys were called, want %d", len(seen.calls), 1+coldKeys)
	}
}
