package postgres_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/rowtest"
)

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
			for _, kind := range []string{"bucket", "window"} {
				t.Run("two stores grant exactly, "+m.String()+", "+kind, func(t *testing.T) {
					schema := d.schema(t)
					exact(t, d, schema, [2]sweeping{d.store(t, schema, nil), storeOn(t, db, schema)}, rowtest.Lasting[kind])
				})
			}
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
