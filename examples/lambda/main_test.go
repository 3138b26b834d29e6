package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx", for the migrations

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/internal/testenv"
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
		if !errors.Is(err, limiter.ErrMisconfigured) {
			t.Errorf("run = %v, want ErrMisconfigured", err)
		}
	})
}

// People copy the example. A log that grows with the requests would fill their disks.
func TestServerWithoutItsDatabase(t *testing.T) { // not parallel: it replaces the default logger
	var log locked
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
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
