package prove_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/prove/internal/audit"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
)

// The clock of the server and those of its clients are an hour apart, because a decision must not
// depend on the clients' clocks.
func TestHistoriesOnPostgreSQL(t *testing.T) {
	c, clock := cluster.NewWithClock(t)
	log := migrated(t, c)
	pooled := dbtest.PgBouncer(t, c.DSN())
	pool, err := pgxpool.New(t.Context(), c.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	sweeps, err := postgres.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	proof.Rounds(t, "histories on PostgreSQL", campaign.Sizes{CI: 1, Nightly: 20, Release: 220}, func(t *testing.T, r *campaign.Round) {
		clock.Set([]time.Duration{-time.Hour, time.Hour}[r.Number%2])
		historyRound(t, r, log, clock.Now(), sweeps, worker{DSN: c.DSN(), Options: busy}, worker{DSN: pooled, Pooled: true, Options: busyPooled})
		r.Count("rounds in which the clocks of server and clients are an hour apart", 1)
	})
}

// migrated makes the tables in a cluster, and returns the log of what happens to them.
func migrated(t *testing.T, c *cluster.Cluster) audit.Log {
	t.Helper()
	migrate(t, c.DSN())
	log, err := audit.Postgres(t.Context(), c.DSN())
	if err != nil {
		t.Fatal(err)
	}
	return log
}
