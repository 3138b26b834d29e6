package prove_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
)

type remains struct {
	goroutines  int
	heap        int64 // bytes
	connections int64
	rowBytes    int64 // of the tables and their indexes, for each row
}

// within reports whether it is no more than at first, with an allowance. The heap is also that of other
// tests of the process, and updated rows leave dead ones until the server removes them.
func (u remains) within(first remains) bool {
	return u.goroutines <= first.goroutines && u.connections <= first.connections &&
		u.heap <= 2*first.heap+8<<20 && u.rowBytes <= 3*first.rowBytes
}

func TestNothingIsLeftBehind(t *testing.T) {
	server := cluster.New(t, systemSettings...)
	migrate(t, server.DSN())
	a := &system{server: server, front: cutproxy.New(t, server.Port())}
	const processes, connections = 2, 8
	load := newLoad(t, stores(t, processes, fmt.Sprintf("%s&pool_max_conns=%d&application_name=%s", dsnAt(a.front.Port()), connections, application)))
	load.singles = true // the heap would grow by the ledger's entries of their own keys
	dice := rand.New(rand.NewPCG(proof.Seed, 0))
	stop := load.start(t.Context(), dice, 64)
	wait(t.Context(), time.Second)
	stop()
	first := inUse(t, server)
	// There may be more connections later, each with three goroutines, most of them the proxy's.
	more := processes*connections - first.connections
	first.connections, first.goroutines = first.connections+more, first.goroutines+3*int(more)

	proof.Rounds(t, "what faults leave behind", campaign.Sizes{CI: 2, Nightly: 100, Release: 300}, func(t *testing.T, r *campaign.Round) {
		stop := load.begin(t, r, server.DSN())
		for range 3 {
			a.pair(t, r, nil, around)
		}
		load.recovers(t, r, time.Now())
		wait(t.Context(), 200*time.Millisecond)
		stop()
		load.exact(t, r, server.DSN())
		ended, now := time.Now(), inUse(t, server)
		for !now.within(first) {
			if time.Since(ended) > recovery {
				t.Errorf("%v after faults there are %+v, without there were %+v", recovery, now, first)
				break
			}
			wait(t.Context(), 50*time.Millisecond)
			now = inUse(t, server)
		}
		t.Logf("%+v", now)
	})
}

// sum returns SQL for the sum of a number of each table.
func sum(of string) string {
	var each []string
	for _, t := range tables.All {
		each = append(each, fmt.Sprintf(of, t.Name))
	}
	return strings.Join(each, " + ")
}

func inUse(t *testing.T, server *cluster.Cluster) (u remains) {
	t.Helper()
	conn := connection(t, server.DSN())
	defer conn.Close(context.Background())
	err := conn.QueryRow(t.Context(), `SELECT
		(SELECT count(*) FROM pg_stat_activity WHERE application_name = '`+application+`'),
		(`+sum("pg_total_relation_size('%s')")+`) / (`+sum("(SELECT count(*) FROM %s)")+`)`).Scan(&u.connections, &u.rowBytes)
	must(t, err)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.heap, u.goroutines = int64(m.HeapAlloc), runtime.NumGoroutine()
	return u
}
