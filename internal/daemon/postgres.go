package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/testenv"
)

// Postgres is a temporary cluster of the newest PostgreSQL on this machine.
type Postgres struct {
	*Daemon
	// Data is the data directory. Change it only before Init or Start.
	Data string
	// DSN is a URL of the superuser on the database postgres. [Postgres.Start] sets it.
	DSN string

	programs string
}

// StartPostgres makes a cluster in parent, as [New] does, and starts it. Settings are those of
// postgresql.conf: "fsync=off".
func StartPostgres(ctx context.Context, parent string, settings ...string) (*Postgres, error) {
	p, err := NewPostgres(ctx, parent)
	if err != nil {
		return nil, err
	}
	if err := p.Start(ctx, settings...); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// NewPostgres makes the directory of a cluster in parent, as [New] does. It does not run initdb.
func NewPostgres(ctx context.Context, parent string) (*Postgres, error) {
	programs, _, err := testenv.PostgreSQL(ctx)
	if err != nil {
		return nil, err
	}
	// SIGQUIT is an immediate shutdown: there is nothing to save.
	server, err := New(parent, "postgres", syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	return &Postgres{Daemon: server, Data: filepath.Join(server.Dir, "data"), programs: programs}, nil
}

// Start runs initdb with a random superuser password and starts the server on a free port. Call it
// once.
func (p *Postgres) Start(ctx context.Context, settings ...string) error {
	password := rand.Text()
	passwords, err := p.Write("password", password)
	if err != nil {
		return err
	}
	if err := p.Init(ctx, "--pwfile="+passwords, "--auth=scram-sha-256"); err != nil {
		return err
	}
	superuser := func(port uint16) string { return URL("127.0.0.1", port, "postgres", password, "postgres") }
	port, err := p.Serve(ctx, p.program("postgres"),
		func(port uint16) []string { return p.arguments(port, settings) },
		func(ctx context.Context, port uint16) error { return Answers(ctx, superuser(port)) },
	)
	if err != nil {
		return err
	}
	p.DSN = superuser(port)
	return nil
}

// Init runs initdb with these options added.
func (p *Postgres) Init(ctx context.Context, options ...string) error {
	return p.Run(ctx, "initdb", append([]string{
		"--pgdata=" + p.Data, "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync",
	}, options...)...)
}

// Run runs a program of PostgreSQL to its end.
func (p *Postgres) Run(ctx context.Context, program string, args ...string) error {
	if out, err := p.Command(ctx, p.program(program), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

// LaunchOn starts the server on a port. It does not wait.
func (p *Postgres) LaunchOn(port uint16, settings ...string) error {
	return p.Launch(p.program("postgres"), p.arguments(port, settings)...)
}

func (p *Postgres) program(name string) string { return filepath.Join(p.programs, name) }

// arguments are those of the server.
func (p *Postgres) arguments(port uint16, settings []string) []string {
	args := []string{"-D", p.Data, "-p", strconv.Itoa(int(port)), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return args
}

// URL returns a DSN without TLS. The host may be the directory of a Unix socket.
func URL(host string, port uint16, user, password, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(user, password), Path: "/" + database}
	query := url.Values{"sslmode": {"disable"}}
	if strings.HasPrefix(host, "/") {
		// The directory of a Unix socket is no host name of a URL.
		query.Set("host", host)
		query.Set("port", strconv.Itoa(int(port)))
	} else {
		u.Host = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	u.RawQuery = query.Encode()
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
