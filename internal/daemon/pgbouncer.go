package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/testenv"
)

// PgBouncer is the PgBouncer of this machine in front of a database. It pools transactions.
type PgBouncer struct {
	*Daemon
	// DSN is a URL of the database behind it.
	DSN string

	program, ini string
}

// NewPgBouncer makes a PgBouncer that does not run yet in front of the database of dsn. Settings are
// those of pgbouncer.ini: "default_pool_size = 2". A setting replaces the default of the same
// name.
func NewPgBouncer(program, dsn string, settings ...string) (*PgBouncer, error) {
	target, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	port, err := testenv.FreePort()
	if err != nil {
		return nil, err
	}
	// PgBouncer has nothing to save, so SIGKILL stops it.
	server, err := New("", "pgbouncer", syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	p := &PgBouncer{Daemon: server, DSN: URL("127.0.0.1", port, target.User, target.Password, target.Database), program: program}
	if p.ini, err = p.Write("pgbouncer.ini", pgBouncerConfig(target, port, settings)); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// FindPgBouncer returns the path of the program.
func FindPgBouncer() (string, error) { return findPooler("pgbouncer") }

// findPooler returns the path of a program.
func findPooler(name string) (string, error) {
	program, err := exec.LookPath(name)
	if err == nil {
		return program, nil
	}
	// Debian installs poolers where not every user's PATH leads.
	debian := "/usr/sbin/" + name
	if _, missing := os.Stat(debian); missing != nil {
		return "", err
	}
	return debian, nil
}

// Start starts the pooler and waits until it answers.
func (p *PgBouncer) Start(ctx context.Context) error {
	err := p.Launch(p.program, "--quiet", p.ini)
	if err == nil {
		err = p.Await(ctx, p.answers)
	}
	if err != nil {
		output, _ := p.Log() // What there is of it explains the error.
		return fmt.Errorf("pgbouncer: %w\n%s", err, output)
	}
	return nil
}

// answers connects to the pooler's own database, which needs no server.
func (p *PgBouncer) answers(ctx context.Context) error {
	config, err := pgx.ParseConfig(p.DSN)
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

// pgBouncerConfig accepts every client on the loopback interface as the user of target. This works with
// any authentication that the server asks for, without a list of users.
func pgBouncerConfig(target *pgx.ConnConfig, port uint16, settings []string) string {
	quote := func(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }
	password := ""
	if target.Password != "" { // PgBouncer rejects an empty one
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
