package prove_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/cluster"
	"github.com/sqlimit/limiter/prove/internal/pooler"
	"github.com/sqlimit/limiter/prove/internal/relay"
)

// ailing is an application and its database, between which faults come in pairs.
type ailing struct {
	server  *cluster.Cluster
	front   *relay.Relay // between one of the workers and the server
	pooler  *pooler.Pooler
	workers []*os.Process
}

// ailingServer is the settings of its server. One that is to come back after a crash waits for
// sessions that have not heard the first word of their clients yet, which may hang.
var ailingServer = slices.Concat(durable, []string{"authentication_timeout=1s"})

// aFault begins, and returns what ends it, or nil if it came to nothing.
type aFault struct {
	name  string
	begin func(*testing.T, *ailing) (end func())
}

// around are faults between a server that works and its clients, or of what clients share.
var around = []aFault{
	{"connections cut", func(_ *testing.T, a *ailing) func() {
		a.front.Cut()
		return func() {}
	}},
	{"connections hang", func(_ *testing.T, a *ailing) func() {
		a.front.Stall()
		return a.front.Cut
	}},
	{"tables locked", func(t *testing.T, a *ailing) func() {
		conn := connection(t, a.server.DSN())
		if _, err := conn.Exec(t.Context(), `BEGIN; SET LOCAL lock_timeout = '2s'; LOCK limiter_token_buckets, limiter_fixed_windows IN SHARE MODE`); err != nil {
			_ = conn.Close(context.Background())
			return nil // in the time that there was
		}
		return func() { _ = conn.Close(context.Background()) } // the server may have gone
	}},
	{"read-only", func(t *testing.T, a *ailing) func() {
		return setting("default_transaction_read_only", "on")(t, &target{server: a.server})
	}},
	{"sessions terminated", func(t *testing.T, a *ailing) func() {
		execute(t, a.server.DSN(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.5`)
		return func() {}
	}},
}

// ofClients are faults of a pooler, and of a process of the application.
var ofClients = []aFault{
	{"pooler killed", func(_ *testing.T, a *ailing) func() {
		a.pooler.Kill()
		return a.pooler.Start
	}},
	{"client frozen", func(_ *testing.T, a *ailing) func() {
		_ = a.workers[0].Signal(syscall.SIGSTOP) // it may have ended
		return func() { _ = a.workers[0].Signal(syscall.SIGCONT) }
	}},
}

// inside are faults of the server.
var inside = []aFault{
	{"server killed", func(_ *testing.T, a *ailing) func() {
		a.server.Kill()
		return a.server.Start
	}},
	{"server frozen", func(_ *testing.T, a *ailing) func() { return a.server.Freeze() }},
	{"session killed", func(t *testing.T, a *ailing) func() {
		if !killBackend(t, a.server) {
			return nil // none has come back since the fault before
		}
		return a.server.Await
	}},
	{"none of the server", func(*testing.T, *ailing) func() { return func() {} }},
}

// pair has two faults come and go, one of them outside of the server, and reports whether the
// application was at work meanwhile.
func (a *ailing) pair(t *testing.T, r *campaign.Round, ended <-chan struct{}, outside []aFault) bool {
	t.Helper()
	pause(t.Context(), r, 600*time.Millisecond)
	select {
	case <-ended:
		return false
	default:
	}
	first, second := outside[r.Rand.IntN(len(outside))], inside[r.Rand.IntN(len(inside))]
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
	if endFirst != nil && endSecond != nil {
		r.Count(fmt.Sprintf("%s, and %s", first.name, second.name), 1)
		r.Count("pairs of faults", 1)
	}
	return true
}
