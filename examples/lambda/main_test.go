package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx", for the migrations

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

var must = testenv.Must

func TestMain(m *testing.M) { dbtest.Main(m) }

// start runs the program as a server in this process and returns its URL.
func start(t *testing.T, env map[string]string) string {
	t.Helper()
	address, done := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		p := program{getenv: lookup(env), policies: policies, listening: func(a net.Addr) { address <- a }}
		done <- p.run(t.Context())
	}()
	t.Cleanup(func() { must(t, <-done) })
	select {
	case a := <-address:
		return fmt.Sprintf("http://127.0.0.1:%d", a.(*net.TCPAddr).Port)
	case err := <-done:
		done <- err // for the cleanup
		return ""
	}
}

func lookup(env map[string]string) func(string) string {
	return func(name string) string { return env[name] }
}

// get sends a request, reads the whole response and returns its status.
func get(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	must(t, testenv.ErrorOf(io.Copy(io.Discard, resp.Body)))
	return resp.StatusCode
}

func TestServerWithoutTables(t *testing.T) {
	t.Parallel()
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		env := map[string]string{"DATABASE_URL": server.Database(t), "PORT": "0"}
		err := program{getenv: lookup(env), policies: policies}.run(t.Context())
		testenv.ErrorIs(t, err, limiter.ErrMisconfigured, "run")
	})
}

// People copy the example. A log that grows with the requests would fill their disks.
func TestServerWithoutItsDatabase(t *testing.T) { // not parallel: it replaces the default logger
	log := testenv.Logged(t)
	port, err := testenv.FreePort()
	must(t, err)
	url := start(t, map[string]string{"PORT": "0", "DATABASE_URL": fmt.Sprintf("postgres://user@127.0.0.1:%d/db?sslmode=disable", port)})
	for range 200 {
		for _, path := range []string{"/", "/search", "/limits", "/health"} {
			if code := get(t, url+path); code != http.StatusServiceUnavailable {
				t.Fatalf("GET %s: %d, want 503", path, code)
			}
		}
	}
	if lines := strings.Count(log.String(), "level=ERROR"); lines == 0 || lines > 12 {
		t.Errorf("800 requests wrote %d lines, want 1 to 12:\n%s", lines, log.String())
	}
}

// variables returns the names of all environment variables that the program reads.
func variables(t *testing.T) (names []string) {
	t.Helper()
	must(t, testenv.ErrorOf(readSettings(func(name string) string {
		names = append(names, name)
		return ""
	})))
	slices.Sort(names)
	return slices.Compact(names)
}

func TestSettings(t *testing.T) {
	t.Parallel()
	sqlite := filepath.Join(os.TempDir(), "limiter-example.db")
	for value, want := range map[string]int{"": 0, "0": 0, "1": 1, "2": 2, "16": 16, "17": -1, "300": -1, "-1": -1, "one": -1, "1.0": -1} {
		s, err := readSettings(lookup(map[string]string{"TRUSTED_HOPS": value}))
		if want < 0 && (err == nil || !strings.Contains(err.Error(), "TRUSTED_HOPS")) || want >= 0 && err != nil {
			t.Errorf("TRUSTED_HOPS=%s: %v, want an error that names it: %v", value, err, want < 0)
		} else if err == nil {
			testenv.Equal(t, s, settings{port: "8080", trustedHops: want, sqlite: sqlite}, "TRUSTED_HOPS =", value)
		}
	}
}

func TestPoolSettings(t *testing.T) {
	t.Parallel()
	type pool struct {
		conns                           int32
		lifetime, jitter, idle, connect time.Duration
	}
	server := pool{10, 30 * time.Minute, 5 * time.Minute, 5 * time.Minute, 3 * time.Second}
	function := pool{2, 10 * time.Minute, time.Minute, 2 * time.Minute, 3 * time.Second}
	said := pool{7, time.Hour, time.Second, time.Minute, 9 * time.Second}
	for _, c := range []struct {
		dsn      string
		inLambda bool
		want     pool
	}{
		{"postgres://user@localhost/db", false, server},
		{"postgres://user@localhost/db", true, function},
		{"host=localhost user=user", true, function},
		{"postgres://user@localhost/db?pool_max_conns=7&pool_max_conn_lifetime=1h&pool_max_conn_lifetime_jitter=1s&pool_max_conn_idle_time=1m&connect_timeout=9", true, said},
		{"host=localhost pool_max_conns=7 pool_max_conn_lifetime=1h pool_max_conn_lifetime_jitter=1s pool_max_conn_idle_time=1m connect_timeout=9", false, said},
	} {
		config, err := poolConfig(settings{databaseURL: c.dsn, inLambda: c.inLambda})
		if err != nil {
			t.Errorf("%s: %v", c.dsn, err)
			continue
		}
		got := pool{config.MaxConns, config.MaxConnLifetime, config.MaxConnLifetimeJitter, config.MaxConnIdleTime, config.ConnConfig.ConnectTimeout}
		testenv.Equal(t, got, c.want, c.dsn, "in Lambda:", c.inLambda)
		if config.MinConns != 0 || config.MinIdleConns != 0 {
			t.Errorf("%s: the pool connects in the background", c.dsn)
		}
		if config.ShouldPing == nil || config.PingTimeout == 0 {
			t.Errorf("%s: the pool does not notice a freeze", c.dsn)
		}
	}
}

func TestInvalidDSNIsNotQuoted(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://user:secret/word@localhost/db", "postgres//user:secret@localhost", "secret", "host=localhost password=secret pool_max_conns=many"} {
		store, err := openStore(t.Context(), settings{databaseURL: dsn})
		if err == nil {
			_ = store.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "DATABASE_URL") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v; want an error that names DATABASE_URL and does not quote it", dsn, err)
		}
	}
}

// checked is a store that counts the calls of Check.
type checked struct {
	*memory.Store
	calls atomic.Int64
	check func(context.Context) error
}

func (c *checked) Check(ctx context.Context) error {
	c.calls.Add(1)
	return c.check(ctx)
}

func newChecked(check func(context.Context) error) *checked {
	return &checked{Store: memory.New(), check: check}
}

func getHealth(ctx context.Context, h http.Handler) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/health", http.NoBody))
	return w.Code
}

func TestHealthChecksOnceASecond(t *testing.T) {
	t.Parallel()
	var failure error
	store := newChecked(func(context.Context) error { return failure })
	now := instant{wall: time.Hour}
	h := health(store, func() instant { return now })
	broken := errors.New("broken")
	for i, s := range []struct {
		name       string
		wall, mono time.Duration // how far each clock moves before the request
		failure    error         // of a check
		checks     int64
		status     int
	}{
		{"the first request checks", 0, 0, nil, 1, 204},
		{"the next request repeats the result", 0, 0, broken, 1, 204},
		{"so does a request within a second", time.Second - 1, time.Second - 1, broken, 1, 204},
		{"after a second it checks again", 1, 1, broken, 2, 503},
		{"it repeats a failure, too", time.Second - 1, time.Second - 1, nil, 2, 503},
		{"but not for longer", 1, 1, nil, 3, 204},
		{"it notices a freeze by the wall clock", time.Hour, 0, broken, 4, 503},
		{"it notices a wall clock that was set back", -time.Minute, 0, nil, 5, 204},
		{"it notices time that a step of the wall clock hides", 0, time.Second, broken, 6, 503},
	} {
		now.wall, now.mono, failure = now.wall+s.wall, now.mono+s.mono, s.failure
		status := getHealth(t.Context(), h)
		testenv.Equal(t, []any{store.calls.Load(), status}, []any{s.checks, s.status}, "step", i, s.name)
	}
}

// A check is bounded, outlives its client, and is for all requests that wait for it.
func TestHealthRequestsShareOneCheck(t *testing.T) {
	t.Parallel()
	started, finish := make(chan struct{}, 20), make(chan struct{})
	store := newChecked(func(ctx context.Context) error {
		started <- struct{}{}
		<-finish
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > healthTimeout {
			return errors.New("the check is not bounded")
		}
		return ctx.Err()
	})
	h := health(store, func() instant { return instant{} })
	ctx, leave := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			testenv.Equal(t, getHealth(ctx, h), http.StatusNoContent, "a check that is bounded by", healthTimeout, "and not canceled")
		})
	}
	<-started
	leave()
	close(finish)
	group.Wait()
	testenv.Equal(t, store.calls.Load(), 1, "checks for 20 concurrent requests")
}
