package dbtest

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/internal/testenv"
)

// databaseTimeout bounds what is asked of a server that runs. It is generous, as on a small machine
// several packages create databases at the same time.
const databaseTimeout = time.Minute

// Server is a PostgreSQL server. It is safe for concurrent use.
type Server struct {
	name    string
	start   func() error
	booted  booted
	version int
}

// booted is a server that runs.
type booted struct {
	dsn string                                // of a role that may create databases
	log func(context.Context) ([]byte, error) // nil if it cannot be read
}

// newServer returns a server that boot starts, at most once.
func newServer(name string, boot func(ctx context.Context) (booted, error)) *Server {
	s := &Server{name: name}
	s.start = sync.OnceValue(func() error {
		// Not the context of a test: the server outlives the test that happened to be first.
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		var err error
		if s.booted, err = boot(ctx); err != nil {
			return err
		}
		return s.query(ctx, "SELECT current_setting('server_version_num')::int / 10000", &s.version)
	})
	return s
}

// startCluster starts a temporary cluster. [Main] stops it.
func startCluster(ctx context.Context) (booted, error) {
	p, err := daemon.StartPostgres(ctx, "", "max_connections=200", "fsync=off", "full_page_writes=off")
	if err != nil {
		return booted{}, err
	}
	atExit(p.Stop)
	return booted{p.DSN, func(context.Context) ([]byte, error) { return p.Log() }}, nil
}

// Name returns what tells this server from others, for example "postgres:17".
func (s *Server) Name() string { return s.name }

// Version returns the major version, for example 17.
func (s *Server) Version() int { return s.version }

// Log returns what the server has written to its log from the beginning, with all that its sessions
// were told to log there. It ends the test where the log cannot be read, which is that of a server
// given by its DSN.
func (s *Server) Log(t *testing.T) []byte {
	t.Helper()
	if s.booted.log == nil {
		testenv.Unavailable(t, "postgres", errors.New("a server whose log can be read"))
	}
	text, err := s.booted.log(t.Context())
	if err != nil {
		t.Fatalf("dbtest: read the log of %s: %v", s.name, err)
	}
	return text
}

// Database creates an empty database for this test and returns its DSN, a URL. It drops the
// database when the test ends, even if clients are still connected.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	config, err := pgx.ParseConfig(s.booted.dsn)
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	name := "limiter_test_" + strings.ToLower(rand.Text())
	// Nobody can be connected to template0, so that CREATE DATABASE never fails on account of that.
	if err := s.query(t.Context(), `CREATE DATABASE `+name+` TEMPLATE template0`); err != nil {
		t.Fatalf("dbtest: create a database on %s: %v", s.name, err)
	}
	t.Cleanup(func() {
		// The context of the test is over by now.
		err := s.query(context.WithoutCancel(t.Context()), `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`)
		testenv.Equal(t, err, nil, "dbtest: drop the database of this test on", s.name)
	})
	return daemon.URL(config.Host, config.Port, config.User, config.Password, name)
}

// query runs a statement, and reads its row if into is not empty. It has a connection of its own: a pool kept
// between tests would look like a leak to tests that search for leaked goroutines.
func (s *Server) query(ctx context.Context, sql string, into ...any) error {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.booted.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if len(into) > 0 {
		return conn.QueryRow(ctx, sql).Scan(into...)
	}
	_, err = conn.Exec(ctx, sql)
	return err
}

//go:embed traps.sql
var trapsSQL string

// TrapOperators returns a statement that creates in schema each operator that pg_catalog does not
// have. PostgreSQL searches pg_catalog first, but prefers an operator that fits the types exactly,
// anywhere in search_path, to one that needs a conversion. So a user who may create objects in a
// schema of the path can have code run by a statement such as SELECT now_in_seconds * 1000000.
// Before version 15, any user may do so in public. The operators return a type that fits nowhere,
// so a statement that would use one cannot even be prepared.
func TrapOperators(schema string) string { return strings.ReplaceAll(trapsSQL, "HOSTILE", schema) }
