package prove_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// A DSN may name all servers, of which it wants the one that takes writes: then nothing has
// to be told where that is. With remote_apply nothing is lost either.
func TestFailoverWithinDSN(t *testing.T) {
	for _, c := range []struct {
		name string
		// end ends the rule of the primary.
		end func(t *testing.T, primary *cluster.Cluster)
	}{
		{"the primary is killed", func(_ *testing.T, primary *cluster.Cluster) { primary.Kill() }},
		{"the primary only reads", func(t *testing.T, primary *cluster.Cluster) {
			setting("default_transaction_read_only", "on")(t, &target{server: primary})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			primary := cluster.New(t, append(durable, "synchronous_commit=remote_apply")...)
			migrate(t, primary.DSN())
			proof.Rounds(t, "failovers within a DSN: "+c.name, campaign.Sizes{CI: 1, Nightly: 10, Release: 30}, func(t *testing.T, r *campaign.Round) {
				standby := primary.Standby(primary.Port())
				awaitSync(t, primary)
				load := newLoad(t, stores(t, 2, fmt.Sprintf("postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable"+
					"&target_session_attrs=read-write&pool_max_conns=8", primary.Port(), standby.Port())))
				load.renew(t, primary.DSN())
				stop := load.start(t.Context(), r.Rand, 64)
				load.recovers(t, r, time.Now())
				pause(t.Context(), r, 300*time.Millisecond)
				c.end(t, primary)
				for _, of := range load.limiters {
					load.untilNobodyWrites(t, of[0])
				}
				standby.Promote()
				load.recovers(t, r, time.Now())
				stop()
				load.exact(t, r, standby.DSN())
				r.Count(campaign.Failovers, 1)

				primary.Discard()
				primary = standby
			})
		})
	}
}

// untilNobodyWrites takes until the store finds no server that takes writes, which it does
// when it makes a connection.
func (l *load) untilNobodyWrites(t *testing.T, lim *limiter.Limiter) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); ; wait(t.Context(), interval) {
		class, err := l.take(t.Context(), lim, "recovery", 1)
		if _, refused := errors.AsType[*pgconn.ConnectError](err); refused {
			if class != outcome.NotApplied {
				t.Errorf("a take without a server that takes writes is %s: %v", class, err)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a store does not look for another server: %s, %v", class, err)
		}
	}
}
