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

	"github.com/sqlimit/limiter/internal/host"
)

// PgBouncer starts the PgBouncer of this machine in front of the database of dsn, and returns the
// DSN of that database behind it. It pools transactions over four server connections and uses them
// in turn. A statement that needs what an earlier one left in its session then fails. It stops when
// the test ends.
func PgBouncer(t *testing.T, dsn string) string {
	t.Helper()
	program, err := findPgBouncer()
	if err != nil {
		host.Unavailable(t, "pgbouncer", err)
	}
	target, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("dbtest: pgbouncer: %v", err)
	}
	// It has nothing to tidy up.
	bouncer, err := newDaemon("pgbouncer", syscall.SIGKILL)
	if err != nil {
		t.Fatalf("dbtest: pgbouncer: %v", err)
	}
	t.Cleanup(func() {
		if err := bouncer.stop(); err != nil {
			t.Errorf("dbtest: stop pgbouncer: %v", err)
		}
	})

	url := func(port uint16) string {
		return dsnURL("127.0.0.1", port, target.User, target.Password, target.Database)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	port, err := bouncer.serve(ctx, program,
		func(port uint16) ([]string, error) {
			file, err := bouncer.write("pgbouncer.ini", pgBouncerConfig(target, port))
			return []string{"--quiet", file}, err
		},
		func(ctx context.Context, port uint16) error { return answersTwice(ctx, url(port)) },
	)
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	return url(port)
}

// answersTwice is answers within an open transaction. So PgBouncer has two server connections from
// the start, and even a lone client meets both.
func answersTwice(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.PgConn().Exec(ctx, "BEGIN").ReadAll(); err != nil {
		return err
	}
	if err := answers(ctx, dsn); err != nil {
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
func pgBouncerConfig(target *pgx.ConnConfig, port uint16) string {
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
default_pool_size = 4
server_round_robin = 1
max_client_conn = 500
server_tls_sslmode = prefer
`, quote(target.Host), target.Port, quote(target.User), password, port)
}
