package dbtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// startCluster makes a temporary cluster on a free port of the loopback interface, starts it, and
// returns the DSN of its superuser. In [Main] it stops and goes with everything in it.
func startCluster(ctx context.Context, programs string) (booted, error) {
	// SIGQUIT is an immediate shutdown: there is nothing to save.
	server, err := newDaemon("postgres", syscall.SIGQUIT)
	if err != nil {
		return booted{}, err
	}
	atExit(server.stop)

	password := rand.Text()
	passwords, err := server.write("password", password)
	if err != nil {
		return booted{}, err
	}
	data := filepath.Join(server.dir, "data")
	initdb := server.command(ctx, filepath.Join(programs, "initdb"), "--pgdata="+data,
		"--username=postgres", "--pwfile="+passwords, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return booted{}, fmt.Errorf("initdb: %w\n%s", err, out)
	}

	url := func(port uint16) string { return dsnURL("127.0.0.1", port, "postgres", password, "postgres") }
	port, err := server.serve(ctx, filepath.Join(programs, "postgres"),
		func(port uint16) ([]string, error) {
			return []string{
				"-D", data, "-p", strconv.Itoa(int(port)),
				"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=" + server.dir,
				"-c", "max_connections=200", "-c", "fsync=off", "-c", "full_page_writes=off",
			}, nil
		},
		func(ctx context.Context, port uint16) error { return answers(ctx, url(port)) },
	)
	if err != nil {
		return booted{}, err
	}
	return booted{url(port), func(context.Context) ([]byte, error) { return os.ReadFile(server.log) }}, nil
}

// answers reports whether a query comes back, as an error if not.
func answers(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	// Without a prepared statement, which PgBouncer would not know again.
	_, err = conn.PgConn().Exec(ctx, "SELECT 1").ReadAll()
	return err
}
