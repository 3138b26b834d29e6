package prove_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

// takesARound is how many takes a round has that are to be in each other's way.
const takesARound = 10_000

// Statements that each take from several keys would end in a deadlock if two of them
// locked their rows in opposite orders.
func TestMergedTakesNeverDeadlock(t *testing.T) {
	server := cluster.New(t, durable...)
	migrate(t, server.DSN())
	load := newLoad(t, stores(t, 3, server.DSN()+"&pool_max_conns=8"))
	proof.Rounds(t, "takes in each other's way", campaign.Sizes{CI: 1, Nightly: 20, Release: 40}, func(t *testing.T, r *campaign.Round) {
		if r.Number%epoch == 0 {
			load.renew(t, server.DSN())
		}
		load.few(t.Context(), r.Rand, 96, takesARound)
		load.exact(t, r, server.DSN())
		r.None("deadlocks", query[int64](t, server.DSN(), "SELECT sum(deadlocks)::bigint FROM pg_stat_database")+
			int64(strings.Count(server.Log(), "deadlock detected")))
	})
}

// few has so many callers take n times in all from so few keys that most statements have
// several of the same.
func (l *load) few(ctx context.Context, r *rand.Rand, callers, n int) {
	var begun atomic.Int64
	var wait sync.WaitGroup
	for i := range callers {
		own := rand.New(rand.NewPCG(r.Uint64(), uint64(i)))
		wait.Go(func() {
			of := l.limiters[i%len(l.limiters)]
			for begun.Add(1) <= int64(n) {
				q := draw(own)
				if i%2 == 0 {
					q = q[len(q)-1:] // decisions over several limits share no statement, and take long
				}
				for i := range q {
					if i > 0 || len(q) == 1 {
						q[i].key, q[i].cost = fmt.Sprintf("few/%d", own.IntN(12)), 1
					}
				}
				_ = l.ask(ctx, of, q) // it is recorded
			}
		})
	}
	wait.Wait()
}

// Under REPEATABLE READ and SERIALIZABLE a take that meets another fails with 40001, which
// the store avoids by asking for READ COMMITTED from then on.
func TestStricterIsolation(t *testing.T) {
	server := cluster.New(t, durable...)
	migrate(t, server.DSN())
	execute(t, server.DSN(), "CREATE ROLE application LOGIN",
		"GRANT SELECT, INSERT, UPDATE ON "+tables.Names+" TO application")
	proof.Rounds(t, "stricter isolation", campaign.Sizes{CI: 2, Nightly: 20, Release: 40}, func(t *testing.T, r *campaign.Round) {
		level := []string{"serializable", "repeatable read"}[r.Number%2]
		execute(t, server.DSN(), fmt.Sprintf("ALTER ROLE application SET default_transaction_isolation = '%s'", level),
			"TRUNCATE "+tables.Names)
		load := newLoad(t, stores(t, 2, asRole(server)+"&pool_max_conns=8")) // they know of nothing yet
		met := strings.Count(server.Log(), "could not serialize access")
		stop := load.start(t.Context(), r.Rand, 32)
		wait(t.Context(), 300*time.Millisecond)
		stop()
		if n := strings.Count(server.Log(), "could not serialize access") - met; n == 0 {
			t.Errorf("under %s no take met another", level)
		} else if n > 2*8 { // one for each connection: the store asks for READ COMMITTED from the first on
			t.Errorf("under %s %d takes met another", level, n)
		} else {
			r.Count("serialization failures", int64(n))
		}
		load.exact(t, r, server.DSN())
	})
}

func TestReadOnlyUnderLoad(t *testing.T) {
	server := cluster.New(t, durable...)
	migrate(t, server.DSN())
	load := newLoad(t, stores(t, 2, server.DSN()+"&pool_max_conns=8"))
	proof.Rounds(t, "read-only for a while", campaign.Sizes{CI: 2, Nightly: 30, Release: 100}, func(t *testing.T, r *campaign.Round) {
		stop := load.begin(t, r, server.DSN())
		load.recovers(t, r, time.Now())
		pause(t.Context(), r, 100*time.Millisecond)
		end := setting("default_transaction_read_only", "on")(t, &target{server: server})
		load.untilReadOnly(t, load.limiters[0][0])
		pause(t.Context(), r, 200*time.Millisecond)
		end()
		load.recovers(t, r, time.Now())
		stop()
		load.exact(t, r, server.DSN())
	})
}

// untilReadOnly takes until the server says that it is.
func (l *load) untilReadOnly(t *testing.T, lim *limiter.Limiter) {
	t.Helper()
	for began := time.Now(); ; wait(t.Context(), interval) {
		class, err := l.take(t.Context(), lim, "read-only", 1)
		if sqlState(err) == "25006" {
			if class != outcome.NotApplied {
				t.Errorf("a take on a server that only reads is %s: %v", class, err)
			}
			return
		}
		if time.Since(began) > recovery {
			t.Fatalf("a server that only reads answers %s, %v", class, err)
		}
	}
}
