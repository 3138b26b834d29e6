package prove_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

// durable are settings under which a commit is on the disk before a caller is told, and restarts are quick.
var durable = []string{"fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=32MB", "checkpoint_timeout=30s"}

const (
	epoch       = 20        // for how many rounds the same keys are used
	application = "limiter" // the name of the sessions of the stores
	// aBackend selects a session of the stores, an active one if there is one.
	aBackend = `SELECT pid FROM pg_stat_activity WHERE application_name = '` + application + `'
		ORDER BY state = 'active' DESC, random() LIMIT 1`
	noRoom   = "53100" // a SQLSTATE, as the next ones
	readOnly = "25006"
	deadlock = "40P01"
)

// sqlState returns the SQLSTATE of an error, if it has one.
func sqlState(err error) string {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		return server.Code
	}
	return ""
}

// loadOn returns callers with two stores on a server, and makes the tables.
func loadOn(t *testing.T, server *cluster.Cluster, opts ...postgres.Option) *load {
	t.Helper()
	migrate(t, server.DSN())
	return newLoad(t, stores(t, 2, server.DSN()+"&pool_max_conns=8&application_name="+application, opts...))
}

// underLoad runs the rounds of a scenario in which something happens to a server while callers take. Then
// each store must work again, what is stored must agree with the answers, and no takes deadlocked.
func underLoad(t *testing.T, name string, sizes campaign.Sizes, server *cluster.Cluster, during func(*testing.T, *campaign.Round, *load)) {
	load := loadOn(t, server)
	proof.Rounds(t, name, sizes, func(t *testing.T, r *campaign.Round) {
		stop := load.begin(t, r, server.DSN())
		during(t, r, load)
		load.recovers(t, r, time.Now())
		stop()
		load.exact(t, r, server.DSN())
		// The store retries the victim of a deadlock, so no answer tells of one.
		r.None("deadlocks", int64(strings.Count(server.Log(), "deadlock detected")))
	})
}

func TestServerKills(t *testing.T) {
	server := cluster.New(t, durable...)
	underLoad(t, "kills of a cluster", campaign.Sizes{CI: 4, Nightly: 100, Release: 300}, server, func(t *testing.T, r *campaign.Round, _ *load) {
		wait(t.Context(), 20*time.Millisecond)
		pause(t.Context(), r, 280*time.Millisecond)
		server.Kill()
		r.Count(campaign.ClusterKills, 1)
		pause(t.Context(), r, 100*time.Millisecond)
		server.Start()
	})
}

func TestServerKillsWithAsyncCommit(t *testing.T) {
	const (
		// PostgreSQL begins to write an asynchronous commit after at most three delays of its WAL writer.
		walWriterDelay = 200 * time.Millisecond
		walFlush       = 400 * time.Millisecond // for the writing itself, and for a busy machine
	)
	server := cluster.New(t, append(durable, "wal_writer_delay=200ms")...)
	load := loadOn(t, server, postgres.WithAsyncCommit())
	proof.Rounds(t, "kills of a cluster, WithAsyncCommit", campaign.Sizes{CI: 2, Nightly: 30, Release: 100}, func(t *testing.T, r *campaign.Round) {
		stop := load.begin(t, r, server.DSN())
		wait(t.Context(), 4*walWriterDelay) // longer than what may be lost, so that it shows if more is
		pause(t.Context(), r, walWriterDelay)
		server.Kill()
		killed := time.Now()
		r.Count(campaign.ClusterKills, 1)
		stop() // a lost take can be granted again, and must not count as over-admitted
		server.Start()
		began := time.Now()
		v := load.compare(t, server.DSN())
		r.Count(campaign.LostAsyncCommit, v.Lost)
		if v.Lost > 0 {
			age := killed.Sub(v.Oldest)
			r.Count("kills that lost takes with WithAsyncCommit", 1)
			r.Most("age of a take lost with WithAsyncCommit", age)
			testenv.Equal(t, age <= 3*walWriterDelay+walFlush, true, "a take was lost", age, "after its acknowledgement, want at most", 3*walWriterDelay+walFlush)
		}
		judgeKept(t, r, load.ledger, v)
		load.recovers(t, r, began)
	})
}

func TestTerminatedBackends(t *testing.T) {
	server := cluster.New(t, durable...)
	underLoad(t, "backends terminated", campaign.Sizes{CI: 2, Nightly: 30, Release: 100}, server, func(t *testing.T, r *campaign.Round, _ *load) {
		var killed int64
		for range 20 {
			pause(t.Context(), r, 20*time.Millisecond)
			killed += query[int64](t, server.DSN(), `SELECT count(*) FROM (`+aBackend+`) AS s WHERE pg_terminate_backend(pid)`)
		}
		testenv.Equal(t, killed > 0, true, "sessions were terminated")
		r.Count(campaign.BackendKills, killed)
	})
}

// killBackend kills a session of the stores, and waits until the server has ended the others. It may find none.
func killBackend(t *testing.T, server *cluster.Cluster) bool {
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	other := connection(t, server.DSN())
	defer other.Close(context.Background())
	for pid := 0; ; must(t, ctx.Err()) {
		err := other.QueryRow(ctx, aBackend).Scan(&pid)
		if errors.Is(err, pgx.ErrNoRows) {
			return false
		}
		must(t, err)
		_ = syscall.Kill(pid, syscall.SIGKILL) // does nothing to a session that ended by itself
		if _, err := other.Exec(ctx, "SELECT pg_sleep(5)"); err != nil && ctx.Err() == nil {
			return true
		}
	}
}

// untilFails takes from the keys until a take ends within a time and fails in a way, in which it was not applied.
func (l *load) untilFails(t *testing.T, lim *limiter.Limiter, within time.Duration, key func(n int) string, so func(error) bool) {
	t.Helper()
	for n, began := 0, time.Now(); ; n++ {
		class, err := l.take(t.Context(), lim, key(n), 1)
		if took := time.Since(began); took > within {
			t.Fatalf("after %v, of at most %v, the store answers %s, %v", took, within, class, err)
		}
		if so(err) {
			testenv.Equal(t, class, outcome.NotApplied, "a take:", err)
			return
		}
		wait(t.Context(), time.Millisecond)
	}
}

func failing(int) string { return "fails" }

// A full disk refuses new keys. Keys that exist go on.
func TestFullDisk(t *testing.T) {
	disk := cluster.NewDisk(t, 100)
	server := cluster.NewOn(t, disk, durable...)
	load := loadOn(t, server)
	proof.Rounds(t, "disks full", campaign.Sizes{CI: 1, Nightly: 5, Release: 20}, func(t *testing.T, r *campaign.Round) {
		load.renew(t, server.DSN())
		stop := load.start(t.Context(), r.Rand, 16)
		load.recovers(t, r, time.Now())
		pause(t.Context(), r, 200*time.Millisecond)
		disk.Fill()
		fillTables(t, server.DSN())
		lim := load.limiters[0][0]
		load.untilFails(t, lim, waitLimit, func(n int) string { return fmt.Sprintf("%d/new/%d", load.epoch, n) }, func(err error) bool {
			return sqlState(err) == noRoom
		})
		var granted int64
		for range 20 {
			if class, _ := load.take(t.Context(), lim, "recovery", 1); class == outcome.Carried {
				granted++
			}
		}
		testenv.Equal(t, granted > 0, true, "on a full disk, takes of a key that exists are granted")
		r.Count("granted on a full disk", granted)
		disk.Free()
		began := time.Now()
		load.recovers(t, r, began)
		load.grants(t, r, lim, fmt.Sprintf("%d/another", load.epoch), began)
		stop()
		load.exact(t, r, server.DSN())
	})
}

// fillTables uses up the room that the tables have, with rows of which none is charged.
func fillTables(t *testing.T, dsn string) {
	conn := connection(t, dsn)
	defer conn.Close(context.Background())
	for n := 0; ; n++ {
		_, err := conn.Exec(t.Context(), `INSERT INTO limiter_token_buckets (full_at, at, step, capacity, granted, limiter, key)
			SELECT 0, 0, 1, 1, 0, 'filler', int4send($1 * 100 + i) FROM generate_series(1, 100) AS i`, n)
		if sqlState(err) == noRoom {
			return
		}
		if err != nil || n > 1000 {
			t.Fatalf("after %d rows of a table on a full disk: %v", n*100, err)
		}
	}
}

// fillLog writes to the log of changes until the server ends over it.
func fillLog(t *testing.T, dsn string) {
	conn := connection(t, dsn)
	defer conn.Close(context.Background())
	for range 1000 {
		if _, err := conn.Exec(t.Context(), `SELECT pg_logical_emit_message(true, 'x', repeat('x', 100000))`); err != nil {
			return
		}
	}
	t.Error("a full disk has room for 100 MB")
}

// Under stricter isolation a take that meets another one fails once. Then the store asks for READ COMMITTED.
func TestStricterIsolation(t *testing.T) {
	server := newServer(t)
	execute(t, server.DSN(), "CREATE ROLE application LOGIN", "GRANT SELECT, INSERT, UPDATE ON "+tables.Names+" TO application")
	proof.Rounds(t, "stricter isolation", campaign.Sizes{CI: 2, Nightly: 20, Release: 40}, func(t *testing.T, r *campaign.Round) {
		level := []string{"serializable", "repeatable read"}[r.Number%2]
		execute(t, server.DSN(), fmt.Sprintf("ALTER ROLE application SET default_transaction_isolation = '%s'", level), "TRUNCATE "+tables.Names)
		load := newLoad(t, stores(t, 2, asRole(server)+"&pool_max_conns=8")) // these stores know of nothing yet
		failures := func() int { return strings.Count(server.Log(), "could not serialize access") }
		before := failures()
		stop := load.start(t.Context(), r.Rand, 32)
		// On a busy machine it takes a while until two takes meet.
		await(t, waitLimit, func() bool { return failures() > before })
		wait(t.Context(), 300*time.Millisecond)
		stop()
		n := failures() - before
		if most := 2 * 8; n == 0 || n > most { // each connection may meet one
			t.Errorf("under %s there were %d serialization failures, want 1 to %d", level, n, most)
		}
		r.Count("serialization failures", int64(n))
		load.exact(t, r, server.DSN())
	})
}
