package prove_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

const (
	waitLimit = 30 * time.Second     // how long a test waits for what takes a moment
	recovery  = 5 * time.Second      // how long after the end of a fault everything must work again
	interval  = 5 * time.Millisecond // how often a test polls
)

func openStore(t testing.TB, dsn string, opts ...postgres.Option) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(dsn, opts...)
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// connection is one of the test's own, to be closed by the caller.
func connection(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	must(t, err)
	return conn
}

func execute(t testing.TB, dsn string, statements ...string) {
	t.Helper()
	conn := connection(t, dsn)
	defer conn.Close(context.Background())
	executeOn(t, conn, statements...)
}

func executeOn(t testing.TB, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func query[T any](t testing.TB, dsn, sql string, args ...any) (answer T) {
	t.Helper()
	conn := connection(t, dsn)
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

// quiet waits until no statement is under way. One whose caller has left may still be at work.
func quiet(t testing.TB, dsn string) {
	t.Helper()
	until(t, dsn, `SELECT count(*) = 0 FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'`)
}

// compare compares what is stored with what was told, once nothing is under way.
func (l *load) compare(t testing.TB, dsn string) ledger.Verdict {
	t.Helper()
	quiet(t, dsn)
	conn := connection(t, dsn)
	defer conn.Close(context.Background())
	stored, err := ledger.Read(t.Context(), conn)
	must(t, err)
	return l.ledger.Compare(stored)
}

// exact compares, and counts what must not be.
func (l *load) exact(t testing.TB, r *campaign.Round, dsn string) {
	t.Helper()
	v := l.compare(t, dsn)
	r.None(campaign.LostTakes, v.Lost)
	judgeKept(t, r, l.ledger, v)
}

// judgeKept counts all of a comparison but what is lost, and the answers since the last one.
func judgeKept(t testing.TB, r *campaign.Round, told *ledger.Ledger, v ledger.Verdict) {
	t.Helper()
	r.None(campaign.DoubleCharges, v.Double)
	r.None(campaign.OverAdmitted, v.Over)
	for _, found := range v.Found[:min(len(v.Found), 5)] {
		t.Log(found)
	}
	testenv.ErrorIs(t, told.WrongErrors(), nil)
	all, several := told.Answers()
	for class, n := range several {
		r.Count("decisions over several limits: "+class, n)
	}
	for class, n := range all {
		switch class {
		case outcome.NotApplied: // the server never got most of them
			r.Count("answers of a store that was down", n)
			continue
		case outcome.Unknown:
			r.Count(campaign.Unknown, n)
		}
		r.Count(campaign.Operations, n)
	}
}

// renew goes on with other keys, and drops those of before, which were compared.
func (l *load) renew(t testing.TB, dsn string) {
	t.Helper()
	execute(t, dsn, "TRUNCATE "+tables.Names)
	l.ledger.Forget()
	l.epoch++
}

// recovers waits until each store grants a take again. Its server works since began.
func (l *load) recovers(t testing.TB, r *campaign.Round, began time.Time) {
	t.Helper()
	for _, of := range l.limiters {
		l.grants(t, r, of[0], "recovery", began)
	}
}

// grants waits until a limiter grants a take from a key.
func (l *load) grants(t testing.TB, r *campaign.Round, lim *limiter.Limiter, key string, began time.Time) {
	t.Helper()
	for {
		class, err := l.take(t.Context(), lim, key, 1)
		took := time.Since(began)
		if class == outcome.Carried {
			r.Most("recovery", took)
			testenv.Equal(t, took <= recovery, true, "a store works again after", took, "want at most", recovery)
			return
		}
		if took > waitLimit {
			t.Fatalf("a store does not work again: %s, %v", class, err)
		}
		wait(t.Context(), interval)
	}
}

// await waits until done returns true, and reports whether that took at most limit.
func await(t testing.TB, limit time.Duration, done func() bool) bool {
	t.Helper()
	for began := time.Now(); !done(); wait(t.Context(), interval) {
		if time.Since(began) > limit {
			return false
		}
	}
	return true
}

// wait lets a time go by that is part of a scenario.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func stores(t testing.TB, n int, dsn string, opts ...postgres.Option) []limiter.Store {
	t.Helper()
	var opened []limiter.Store
	for range n {
		opened = append(opened, openStore(t, dsn, opts...))
	}
	return opened
}

// newServer starts a durable server that has the tables.
func newServer(t testing.TB, settings ...string) *cluster.Cluster {
	t.Helper()
	server := cluster.New(t, slices.Concat(durable, settings)...)
	migrate(t, server.DSN())
	return server
}

// newServerWithClock is newServer with a clock that can be set.
func newServerWithClock(t testing.TB) (*cluster.Cluster, *cluster.Clock) {
	t.Helper()
	server, clock := cluster.NewWithClock(t, durable...)
	migrate(t, server.DSN())
	return server, clock
}

func migrate(t testing.TB, dsn string) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	must(t, err)
	defer db.Close()
	must(t, migrations.Up(context.Background(), migrations.Postgres, db))
}

func keyOf(seed uint64) string { return fmt.Sprintf("key %016x", seed) }

// pause waits for up to most, as the round's chance has it.
func pause(ctx context.Context, r *campaign.Round, most time.Duration) {
	wait(ctx, time.Duration(r.Rand.Int64N(int64(most))))
}
