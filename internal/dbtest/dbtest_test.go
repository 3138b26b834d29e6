package dbtest

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/testenv"
)

func TestMain(m *testing.M) { Main(m) }

// connect returns a connection that runs statements without preparing them, as one behind PgBouncer
// has to.
func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	testenv.Must(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(t.Context(), config)
	testenv.Must(t, err)
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func query[T any](t *testing.T, conn *pgx.Conn, sql string) T {
	t.Helper()
	var value T
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func TestServer(t *testing.T) {
	EachPostgres(t, func(t *testing.T, server *Server) {
		conn := connect(t, server.Database(t))
		names := make(map[string]bool)
		t.Run("gives each test a database of its own", func(t *testing.T) {
			for range 2 { // the connection stays open: it must not keep the database alive
				names[query[string](t, connect(t, server.Database(t)), "SELECT current_database()::text")] = true
			}
		})
		testenv.Equal(t, len(names), 2, "names of two databases:", names)
		for name := range names {
			testenv.Equal(t, query[bool](t, conn, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = '"+name+"')"), false, name, "stays after its test")
		}
	})
}

func TestPgBouncer(t *testing.T) {
	EachPostgres(t, func(t *testing.T, server *Server) {
		dsn := PgBouncer(t, server.Database(t))
		// Eight clients at once: each backend in use serves a transaction that waits for the others.
		var pids [8]int
		var wait sync.WaitGroup
		for i := range pids {
			conn := connect(t, dsn)
			wait.Go(func() {
				testenv.Equal(t, conn.QueryRow(t.Context(), "SELECT pg_backend_pid() FROM pg_sleep(0.1)").Scan(&pids[i]), nil, "the error of client", i)
			})
		}
		wait.Wait()
		slices.Sort(pids[:])
		if n := len(slices.Compact(pids[:])); n < 2 || n > 4 {
			t.Errorf("8 clients were served by %d backends, want 2 to 4", n)
		}
		conn := connect(t, dsn)
		alone := make(map[int]bool)
		for range 4 {
			alone[query[int](t, conn, "SELECT pg_backend_pid()")] = true
		}
		testenv.Equal(t, len(alone) > 1, true, "one client got more than one backend:", alone)
	})
}

// A client of Pgpool-II keeps its server connection, and the next client finds nothing of its session.
func TestPgpool(t *testing.T) {
	EachPostgres(t, func(t *testing.T, server *Server) {
		dsn := Pgpool(t, server.Database(t))
		conn := connect(t, dsn)
		pids := make(map[int]bool)
		for range 4 {
			pids[query[int](t, conn, "SELECT pg_backend_pid()")] = true
		}
		testenv.Equal(t, len(pids), 1, "backends of one client:", pids)
		query[string](t, conn, "SELECT set_config('search_path', 'left_behind', false)")
		testenv.Must(t, conn.Close(t.Context()))
		for range 4 {
			conn := connect(t, dsn)
			testenv.Equal(t, query[string](t, conn, "SHOW search_path") == "left_behind", false, "a client found what another one had set in its session")
		}
	})
}

func TestUnknownRequirement(t *testing.T) {
	for value, unknown := range map[string]string{
		"": "", "postgres,pgbouncer,goose": "", "goose, postgres": "",
		"postgress": "postgress", "postgres,Goose": "Goose", "postgres;pgbouncer": "postgres;pgbouncer", " postgres , pgbouncer , pg": "pg",
	} {
		self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		self.Env = append(os.Environ(), "LIMITER_TEST_REQUIRE="+value)
		out, err := self.CombinedOutput()
		want := `LIMITER_TEST_REQUIRE has "` + unknown + `"; it knows postgres, pgbouncer, pgpool, goose, chromium`
		if (err == nil) != (unknown == "") || unknown != "" && !strings.Contains(string(out), want) {
			t.Errorf("with LIMITER_TEST_REQUIRE=%q: %v, %s; want %q", value, err, out, want)
		}
	}
}
