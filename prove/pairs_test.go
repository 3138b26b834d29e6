package prove_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

// system is an application and its database, to which faults happen in pairs.
type system struct {
	server  *cluster.Cluster
	front   *cutproxy.Proxy // between one of the workers and the server
	pooler  *dbtest.Pooler
	workers []*os.Process
	turn    int // of the faults outside of the server
}

// loginLimit is a setting of its server. A crashed server waits for sessions whose clients have sent nothing yet.
const loginLimit = "authentication_timeout=1s"

// aFault is a fault. begin starts it and returns a function that ends it, or nil if it had no effect.
type aFault struct {
	name  string
	begin func(*testing.T, *system) (end func())
}

// around are faults between a working server and its clients.
var around = []aFault{
	{"connections cut", func(_ *testing.T, a *system) func() {
		a.front.Cut()
		return func() {}
	}},
	{"connections hang", func(_ *testing.T, a *system) func() {
		a.front.Stall()
		return a.front.Cut
	}},
	{"tables locked", func(t *testing.T, a *system) func() {
		conn := connection(t, a.server.DSN())
		if _, err := conn.Exec(t.Context(), `BEGIN; SET LOCAL lock_timeout = '2s'; LOCK `+tables.Names+` IN SHARE MODE`); err != nil {
			_ = conn.Close(context.Background())
			return nil // the lock did not come in time
		}
		return func() { _ = conn.Close(context.Background()) } // the server may have gone
	}},
	{"read-only", func(t *testing.T, a *system) func() {
		return setting("default_transaction_read_only", "on")(t, &target{server: a.server})
	}},
	{"sessions terminated", func(t *testing.T, a *system) func() {
		execute(t, a.server.DSN(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.5`)
		return func() {}
	}},
}

// ofClients are faults of a pooler and of a process of the application.
var ofClients = []aFault{
	{"pooler killed", func(_ *testing.T, a *system) func() {
		a.pooler.Kill()
		return a.pooler.Start
	}},
	{"client frozen", func(_ *testing.T, a *system) func() { return a.freezeClient() }},
	{"client frozen, and its connections forgotten", func(_ *testing.T, a *system) func() {
		resume := a.freezeClient()
		a.front.Strand()
		return resume
	}},
}

// freezeClient stops the worker in front of the server in the middle of its calls, as AWS Lambda does.
func (a *system) freezeClient() (resume func()) {
	_ = a.workers[0].Signal(syscall.SIGSTOP) // it may have ended
	return func() { _ = a.workers[0].Signal(syscall.SIGCONT) }
}

// inside are faults of the server itself.
var inside = []aFault{
	{"server killed", func(_ *testing.T, a *system) func() {
		a.server.Kill()
		return a.server.Start
	}},
	{"server frozen", func(_ *testing.T, a *system) func() { return a.server.Freeze() }},
	{"session killed", func(t *testing.T, a *system) func() {
		if !killBackend(t, a.server) {
			return nil // none has come back since the fault before
		}
		return a.server.Await
	}},
	{"none of the server", func(*testing.T, *system) func() { return func() {} }},
}

// pair starts and ends the next fault outside and one inside. It reports whether the application was still running.
func (a *system) pair(t *testing.T, r *campaign.Round, ended <-chan struct{}, outside []aFault) bool {
	pause(t.Context(), r, 600*time.Millisecond)
	select {
	case <-ended:
		return false
	default:
	}
	a.turn++
	first, second := outside[a.turn%len(outside)], inside[r.Rand.IntN(len(inside))]
	endFirst := first.begin(t, a)
	pause(t.Context(), r, 100*time.Millisecond)
	endSecond := second.begin(t, a)
	pause(t.Context(), r, 300*time.Millisecond)
	if endSecond != nil {
		endSecond()
	}
	pause(t.Context(), r, 100*time.Millisecond)
	if endFirst != nil {
		endFirst()
	}
	if strings.HasPrefix(first.name, "client frozen") {
		r.Count(campaign.Freezes, 1)
	}
	if endFirst != nil && endSecond != nil {
		r.Count(fmt.Sprintf("%s, and %s", first.name, second.name), 1)
		r.Count("pairs of faults", 1)
	}
	return true
}

type remains struct {
	goroutines  int
	heap        int64 // bytes
	connections int64
}

// within reports whether it is no more than at first. The heap is also that of other tests of the process.
func (u remains) within(first remains) bool {
	return u.goroutines <= first.goroutines && u.connections <= first.connections && u.heap <= 2*first.heap+8<<20
}

func TestNothingIsLeftBehind(t *testing.T) {
	server := newServer(t, loginLimit)
	a := &system{server: server, front: cutproxy.New(t, server.Port())}
	const processes, connections = 2, 8
	load := newLoad(t, stores(t, processes, fmt.Sprintf("%s&pool_max_conns=%d&application_name=%s", dsnAt(a.front.Port()), connections, application)))
	load.singles = true // the heap would grow by the ledger's entries of their own keys
	dice := rand.New(rand.NewPCG(proof.Seed, 0))
	stop := load.start(t.Context(), dice, 64)
	wait(t.Context(), time.Second)
	stop()
	first := inUse(t, server)
	// There may be more connections later, each with three goroutines, most of them the proxy's. A round adds
	// a goroutine.
	more := processes*connections - first.connections
	first.connections, first.goroutines = first.connections+more, first.goroutines+3*int(more)+1

	proof.Rounds(t, "what faults leave behind", campaign.Sizes{CI: 2, Nightly: 100, Release: 300}, func(t *testing.T, r *campaign.Round) {
		stop := load.begin(t, r, server.DSN())
		for range 3 {
			a.pair(t, r, nil, around)
		}
		load.recovers(t, r, time.Now())
		wait(t.Context(), 200*time.Millisecond)
		stop()
		load.exact(t, r, server.DSN())
		var now remains
		if !await(t, recovery, func() bool {
			now = inUse(t, server)
			return now.within(first)
		}) {
			t.Errorf("%v after faults there are %+v, without there were %+v", recovery, now, first)
		}
		t.Logf("%+v", now)
	})
}

func inUse(t *testing.T, server *cluster.Cluster) (u remains) {
	u.connections = query[int64](t, server.DSN(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", application)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.heap, u.goroutines = int64(m.HeapAlloc), runtime.NumGoroutine()
	return u
}
