package dbtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

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

// Pooler is a PgBouncer that pools transactions. It is for one goroutine, but for DSN.
type Pooler struct {
	t            testing.TB
	daemon       *daemon.Daemon
	program, ini string
	dsn          string
}

// NewPooler starts a PgBouncer in front of the database of dsn. Settings are those of pgbouncer.ini:
// "default_pool_size = 2". It stops when the test ends.
func NewPooler(t testing.TB, dsn string, settings ...string) *Pooler {
	t.Helper()
	program, err := findPgBouncer()
	if err != nil {
		testenv.Unavailable(t, "pgbouncer", err)
	}
	p, err := newPooler(t, program, dsn, settings)
	if err != nil {
		t.Fatalf("dbtest: pgbouncer: %v", err)
	}
	p.Start()
	return p
}

func newPooler(t testing.TB, program, dsn string, settings []string) (*Pooler, error) {
	target, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	port, err := testenv.FreePort()
	if err != nil {
		return nil, err
	}
	p := &Pooler{t: t, program: program, dsn: dsnURL("127.0.0.1", port, target.User, target.Password, target.Database)}
	// It has nothing to tidy up.
	if p.daemon, err = daemon.New("", "pgbouncer", syscall.SIGKILL); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := p.daemon.Stop(); err != nil {
			t.Errorf("dbtest: stop pgbouncer: %v", err)
		}
	})
	p.ini, err = p.daemon.Write("pgbouncer.ini", pgBouncerConfig(target, port, settings))
	return p, err
}

// DSN returns that of the database behind the pooler.
func (p *Pooler) DSN() string { return p.dsn }

// Start starts the pooler and waits until it answers.
func (p *Pooler) Start() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := p.daemon.Launch(p.program, "--quiet", p.ini)
	if err == nil {
		err = p.daemon.Await(ctx, p.answers)
	}
	if err != nil {
		output, _ := p.daemon.Log() // What there is of it explains the error.
		p.t.Fatalf("dbtest: pgbouncer: %v\n%s", err, output)
	}
}

// Kill ends the pooler by SIGKILL.
func (p *Pooler) Kill() { p.daemon.Kill() }

// answers connects to the pooler's own database, which needs no server.
func (p *Pooler) answers(ctx context.Context) error {
	config, err := pgx.ParseConfig(p.dsn)
	if err != nil {
		return err
	}
	config.Database = "pgbouncer"
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// answersTwice sends a query within an open transaction. So PgBouncer has two server connections
// from the start, and even a lone client meets both.
func (p *Pooler) answersTwice(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.PgConn().Exec(ctx, "BEGIN").ReadAll(); err != nil {
		return err
	}
	if err := daemon.Answers(ctx, p.dsn); err != nil {
		return err
	}
	_, err = conn.PgConn().Exec(ctx, "COMMIT").ReadAll()
	return err
}

func findPgBouncer() (string, error) {
	program, err := exec.LookPath("pgbouncer")
	if err == nil {
		return program, nil
	}
	// Not in the PATH of everybody who can run it.
	const debian = "/usr/sbin/pgbouncer"
	if _, missing := os.Stat(debian); missing != nil {
		return "", err
	}
	return debian, nil
}

// pgBouncerConfig lets everybody in on the loopback interface, as the user of target: that works
// with whatever authentication the server asks for, without a list of users.
func pgBouncerConfig(target *pgx.ConnConfig, port uint16, settings []string) string {
	quote := func(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }
	password := ""
	if target.Password != "" { // it takes no empty one
		password = "password=" + quote(target.Password)
	}
	return fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s %s

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
server_tls_sslmode = prefer
%s
`, quote(target.Host), target.Port, quote(target.User), password, port, strings.Join(settings, "\n"))
}
