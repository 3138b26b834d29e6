// Package dbtest gives a test a real PostgreSQL database, and PgBouncer or Pgpool-II in front of it. The tests
// of migrations, postgres, the examples and prove call it.
//
// It takes the first of these that it finds:
//
//   - the server of the DSN in LIMITER_TEST_POSTGRES_DSN, whose role may create databases;
//   - a container of each image in LIMITER_TEST_POSTGRES_IMAGES, separated by commas;
//   - a container of postgres:17-alpine, if Docker has that image or can pull it;
//   - a temporary cluster of the newest PostgreSQL that is installed on this machine.
//
// Without any of them the test is skipped. With -short it is skipped in any case, unless the environment names
// or requires a server; see [testenv.SkipShort]. LIMITER_TEST_REQUIRE makes such a skip a failure. It is
// a list of "postgres", "pgbouncer", "pgpool", "goose", "chromium", "tmpfs" and "cc"; any other word
// fails all tests of a package. If a server was requested by DSN or image and does not answer, the test
// fails in any case.
//
// Servers start when a test first needs them, are shared by the tests of a package, and stop in
// [Main]:
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
//	func TestStore(t *testing.T) {
//		dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
//			dsn := server.Database(t)
//			...
//		})
//	}
//
// When all servers have stopped, Main fails a package that has left goroutines behind.
package dbtest

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlimit/limiter/internal/testenv"
)

// stops holds what [Main] must call when the tests are done.
var stops struct {
	sync.Mutex
	list []func() error
}

func atExit(stop func() error) {
	stops.Lock()
	defer stops.Unlock()
	stops.list = append(stops.list, stop)
}

// pgxCloses is longer than the 15 s that pgx may take to close a broken connection in the background.
const pgxCloses = 16 * time.Second

// Main runs the tests of a package, stops all servers that they started, looks for leaked
// goroutines, and exits.
func Main(m *testing.M) {
	if err := testenv.CheckRequired(); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", err)
		os.Exit(1)
	}
	code := m.Run()
	if n := testenv.SkippedShort(); n > 0 {
		fmt.Fprintf(os.Stderr, "dbtest: -short left out %d tests that need PostgreSQL; go test -v lists them\n", n)
	}
	if err := stopAll(); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", err)
		code = max(code, 1)
	}
	if code == 0 { // a test that failed has left what it has left
		err := goleak.Find()
		for end := time.Now().Add(pgxCloses); err != nil && time.Now().Before(end); {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "dbtest:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func stopAll() error {
	stops.Lock()
	defer stops.Unlock()
	// At once, as a container takes a moment to go.
	errs := make([]error, len(stops.list))
	var wait sync.WaitGroup
	for i, stop := range stops.list {
		wait.Go(func() { errs[i] = stop() })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// EachPostgres calls run as a subtest for each server, with a name like "postgres:17". The subtests
// run one after another, unless run calls t.Parallel.
func EachPostgres(t *testing.T, run func(t *testing.T, server *Server)) {
	t.Helper()
	testenv.SkipShort(t)
	servers, err := findServers()
	if err != nil {
		testenv.Unavailable(t, "postgres", err)
	}
	for _, server := range servers {
		t.Run(server.Name(), func(t *testing.T) {
			if err := server.start(); err != nil {
				t.Fatalf("dbtest: %s does not start: %v", server.Name(), err)
			}
			run(t, server)
		})
	}
}
