package dbtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// findPrograms returns the directory with the programs of the newest PostgreSQL on this host, and its
// major version.
func findPrograms(ctx context.Context) (dir, major string, err error) {
	newest := 0
	// Debian and its relatives keep all but psql out of PATH.
	candidates, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", "", err
	}
	for _, initdb := range candidates {
		bin := filepath.Dir(initdb)
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(bin))); err == nil && n > newest {
			newest, dir = n, bin
		}
	}
	if newest > 0 {
		return dir, strconv.Itoa(newest), nil
	}

	initdb, err := exec.LookPath("initdb")
	if err != nil {
		return "", "", err
	}
	// "initdb (PostgreSQL) 17.5 (Homebrew)"
	out, err := exec.CommandContext(ctx, initdb, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("%s --version: %w", initdb, err)
	}
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return "", "", fmt.Errorf("%s --version printed %q", initdb, out)
	}
	major, _, _ = strings.Cut(fields[2], ".")
	return filepath.Dir(initdb), major, nil
}

// startCluster makes a temporary cluster on a free port of the loopback interface, starts it, and
// returns the DSN of its superuser. In [Main] it stops and goes with everything in it.
func startCluster(ctx context.Context, programs string) (dsn string, err error) {
	// SIGQUIT is an immediate shutdown: there is nothing to save.
	server, err := newDaemon("postgres", syscall.SIGQUIT)
	if err != nil {
		return "", err
	}
	atExit(server.stop)

	password := rand.Text()
	passwords, err := server.write("password", password)
	if err != nil {
		return "", err
	}
	data := filepath.Join(server.dir, "data")
	initdb := server.command(ctx, filepath.Join(programs, "initdb"), "--pgdata="+data,
		"--username=postgres", "--pwfile="+passwords, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w\n%s", err, out)
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
		return "", err
	}
	return url(port), nil
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
