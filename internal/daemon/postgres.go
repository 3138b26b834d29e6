package daemon

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/testenv"
)

// Postgres is a temporary cluster of the newest PostgreSQL on this machine.
type Postgres struct {
	*Daemon
	// DSN is a URL of the superuser on the database postgres.
	DSN string
}

// StartPostgres makes a cluster in parent, as [New] does, and starts it. Settings are those of
// postgresql.conf: "fsync=off".
func StartPostgres(ctx context.Context, parent string, settings ...string) (p *Postgres, err error) {
	programs, _, err := testenv.PostgreSQL(ctx)
	if err != nil {
		return nil, err
	}
	// SIGQUIT is an immediate shutdown: there is nothing to save.
	server, err := New(parent, "postgres", syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = server.Stop()
		}
	}()
	password := rand.Text()
	passwords, err := server.Write("password", password)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(server.Dir, "data")
	initdb := server.Command(ctx, filepath.Join(programs, "initdb"), "--pgdata="+data,
		"--username=postgres", "--pwfile="+passwords, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	port, err := server.Serve(ctx, filepath.Join(programs, "postgres"),
		func(port uint16) ([]string, error) {
			args := []string{
				"-D", data, "-p", strconv.Itoa(int(port)),
				"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
			}
			for _, s := range settings {
				args = append(args, "-c", s)
			}
			return args, nil
		},
		func(ctx context.Context, port uint16) error { return Answers(ctx, superuser(port, password)) },
	)
	if err != nil {
		return nil, err
	}
	return &Postgres{server, superuser(port, password)}, nil
}

func superuser(port uint16, password string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("postgres", password), Path: "/postgres",
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))), RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Answers returns nil if a query comes back.
func Answers(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	// Without a prepared statement, which PgBouncer would not know again.
	_, err = conn.PgConn().Exec(ctx, "SELECT 1").ReadAll()
	return err
}
