package prove_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
)

// application are the sessions of the stores.
const application = "limiter"

// aBackend is a session of the stores, one that has something under way if there is one.
const aBackend = `SELECT pid FROM pg_stat_activity WHERE application_name = '` + application + `'
	ORDER BY state = 'active' DESC, random() LIMIT 1`

func TestTerminatedBackends(t *testing.T) {
	server := cluster.New(t, durable...)
	migrate(t, server.DSN())
	load := newLoad(t, stores(t, 2, server.DSN()+"&pool_max_conns=8&application_name="+application))
	proof.Rounds(t, "backends terminated", campaign.Sizes{CI: 2, Nightly: 30, Release: 100}, func(t *testing.T, r *campaign.Round) {
		stop := load.begin(t, r, server.DSN())
		conn := connection(t, server.DSN())
		defer conn.Close(context.Background())
		var killed int64
		for range 20 {
			wait(t.Context(), time.Duration(r.Rand.Int64N(int64(20*time.Millisecond))))
			var ended int64
			if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM (`+aBackend+`) AS s WHERE pg_terminate_backend(pid)`).Scan(&ended); err != nil {
				t.Fatal(err)
			}
			killed += ended
		}
		if killed == 0 {
			t.Error("no session was terminated")
		}
		r.Count(campaign.BackendKills, killed)
		load.recovers(t, r, time.Now())
		stop()
		load.exact(t, r, server.DSN())
	})
}

// The server ends all other sessions when one dies of itself, and recovers as from a
// crash: nobody knows what the dead one did to the memory that they share.
func TestKilledBackends(t *testing.T) {
	server := cluster.New(t, durable...)
	migrate(t, server.DSN())
	load := newLoad(t, stores(t, 2, server.DSN()+"&pool_max_conns=8&application_name="+application))
	proof.Rounds(t, "backends killed", campaign.Sizes{CI: 2, Nightly: 30, Release: 100}, func(t *testing.T, r *campaign.Round) {
		stop := load.begin(t, r, server.DSN())
		load.recovers(t, r, time.Now())
		wait(t.Context(), 20*time.Millisecond+time.Duration(r.Rand.Int64N(int64(180*time.Millisecond))))
		if !killBackend(t, server) {
			t.Fatal("nobody is connected")
		}
		r.Count(campaign.BackendKills, 1)
		server.Await()
		load.recovers(t, r, time.Now())
		stop()
		load.exact(t, r, server.DSN())
	})
}

// killBackend sends SIGKILL to a session of the stores, and waits until the server has
// ended all others for it. It reports false if there is none.
func killBackend(t *testing.T, server *cluster.Cluster) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	other := connection(t, server.DSN())
	defer other.Close(context.Background())
	for killed := false; !killed; { // one may have ended by itself in between
		var pid int
		if err := other.QueryRow(ctx, aBackend).Scan(&pid); errors.Is(err, pgx.ErrNoRows) {
			return false
		} else if err != nil {
			t.Fatal(err)
		}
		err := syscall.Kill(pid, syscall.SIGKILL)
		if killed = err == nil; !killed && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	if _, err := other.Exec(ctx, "SELECT pg_sleep(60)"); err == nil || ctx.Err() != nil {
		t.Fatalf("the server goes on without a session that was killed: %v", err)
	}
	return true
}
