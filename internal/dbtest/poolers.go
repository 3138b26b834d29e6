package dbtest

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/internal/testenv"
)

// PgBouncer starts the PgBouncer of this machine in front of the database of dsn, and returns the
// DSN of that database behind it. It pools transactions over four server connections and uses them
// in turn. A statement that needs what an earlier one left in its session then fails. It stops when
// the test ends.
func PgBouncer(t *testing.T, dsn string) string {
	t.Helper()
	p := NewPooler(t, dsn, "default_pool_size = 4", "server_round_robin = 1")
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := p.daemon.Await(ctx, p.answersTwice); err != nil {
		t.Fatalf("dbtest: pgbouncer: %v", err)
	}
	return p.DSN()
}

// Pooler is a PgBouncer that pools transactions, or a Pgpool-II. It is for one goroutine, but for DSN.
type Pooler struct {
	t      testing.TB
	daemon *daemon.Pooler
}

// NewPooler starts a PgBouncer in front of the database of dsn. Settings are those of pgbouncer.ini:
// "default_pool_size = 2". It stops when the test ends.
func NewPooler(t testing.TB, dsn string, settings ...string) *Pooler {
	t.Helper()
	return startPooler(t, "pgbouncer", func(program string) (*daemon.Pooler, error) {
		return daemon.NewPgBouncer(program, dsn, settings...)
	})
}

// startPooler starts what newPooler makes of a program of this machine. It stops when the test ends.
func startPooler(t testing.TB, name string, newPooler func(program string) (*daemon.Pooler, error)) *Pooler {
	t.Helper()
	program, err := daemon.FindPooler(name)
	if err != nil {
		testenv.Unavailable(t, name, err)
	}
	server, err := newPooler(program)
	if err != nil {
		t.Fatalf("dbtest: %s: %v", name, err)
	}
	t.Cleanup(func() {
		if output, _ := server.Log(); t.Failed() {
			t.Logf("at the end of the log of %s:\n%s", name, output[max(0, len(output)-4000):])
		}
		testenv.Equal(t, server.Stop(), nil, "dbtest: stop", name)
	})
	p := &Pooler{t, server}
	p.Start()
	return p
}

// DSN returns that of the database behind the pooler.
func (p *Pooler) DSN() string { return p.daemon.DSN }

// Start starts the pooler and waits until it answers. It fails the test if the pooler has exited by itself,
// unless by a known defect (canceledExit).
func (p *Pooler) Start() {
	p.t.Helper()
	if output, _ := p.daemon.Log(); p.daemon.Process() != nil && !canceledExit.Match(output) {
		p.t.Fatal("dbtest: the pooler has exited by itself") // the end of its log follows
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := p.daemon.Start(ctx); err != nil {
		p.t.Fatalf("dbtest: %v", err)
	}
}

// canceledExit matches the log of a PgBouncer 1.18 to 1.20 that has exited because a cancel request left a connection in
// a state that it did not expect. Pull requests 815, 846, 849, 927 and 928 of https://github.com/pgbouncer/pgbouncer fix it.
var canceledExit = regexp.MustCompile(`(server in bad state: 1[14]|bad server state: 11|bad client state: [067])\n$`)

// Await waits until a query passes, for at most 30 s: PgBouncer refuses the first client after a failed login. If PgBouncer
// has exited by a known defect, Await starts it again. It returns how often it did.
func (p *Pooler) Await() (restarts int64) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for ; ; restarts++ {
		err := p.daemon.Await(ctx, func(ctx context.Context) error { return daemon.Answers(ctx, p.DSN()) })
		if err == nil {
			return restarts
		} else if !errors.Is(err, daemon.ErrExited) {
			p.t.Fatalf("dbtest: no query passes the pooler: %v", err)
		}
		p.Start()
	}
}

// Kill ends the pooler by SIGKILL. If the pooler has exited by itself, Kill calls Start first.
func (p *Pooler) Kill() {
	select {
	case <-p.daemon.Exited():
		p.Start()
	default:
	}
	p.daemon.Kill()
}

// answersTwice sends a query within an open transaction. So PgBouncer has two server connections
// from the start, and even a lone client meets both.
func (p *Pooler) answersTwice(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.DSN())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return pgx.BeginFunc(ctx, conn, func(pgx.Tx) error { return daemon.Answers(ctx, p.DSN()) })
}

// Pgpool starts the Pgpool-II of this machine in front of the database of dsn, and returns the DSN of
// that database behind it. It pools sessions: a client that connects gets a server connection that
// another client has left. It stops when the test ends.
func Pgpool(t testing.TB, dsn string) string {
	t.Helper()
	return startPooler(t, "pgpool", func(program string) (*daemon.Pooler, error) { return daemon.NewPgpool(program, dsn) }).DSN()
}
