package main

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx", for the migrations

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/migrations"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestTwentyRequestsShowTheLimit(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "limiter.db")
		ask(t, start(t, map[string]string{"LIMITER_SQLITE": path}))
	})
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		dsn := server.Database(t)
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		if err := migrations.Up(t.Context(), migrations.Postgres, db); err != nil {
			t.Fatal(err)
		}
		ask(t, start(t, map[string]string{"DATABASE_URL": dsn}))
	})
}

// ask makes twenty requests: ten pass, then all but those that the time they
// took has paid for are refused, each with a Retry-After of a second.
func ask(t *testing.T, url string) {
	t.Helper()
	codes := map[int]int{}
	for i := range 20 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		codes[resp.StatusCode]++
		if want := http.StatusOK; i < 10 && resp.StatusCode != want {
			t.Errorf("request %d: %d %s, want %d", i+1, resp.StatusCode, body, want)
		}
		if resp.StatusCode != http.StatusTooManyRequests {
			continue
		}
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || s != 1 {
			t.Errorf("request %d: Retry-After %q, want 1", i+1, resp.Header.Get("Retry-After"))
		}
	}
	if codes[http.StatusOK]+codes[http.StatusTooManyRequests] != 20 || codes[http.StatusTooManyRequests] == 0 {
		t.Errorf("answers %v, want 20 of 200 and 429, and a 429 among them", codes)
	}
}

// start runs the program with an environment and returns its URL.
func start(t *testing.T, env map[string]string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	env["PORT"] = "0"
	address := make(chan net.Addr, 1)
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, func(name string) string { return env[name] }, func(a net.Addr) { address <- a })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case a := <-address:
		return "http://127.0.0.1:" + strconv.Itoa(a.(*net.TCPAddr).Port)
	case err := <-done:
		done <- nil
		t.Fatalf("run: %v", err)
		return ""
	}
}

func TestADatabaseWithoutTablesIsSaidAtTheStart(t *testing.T) {
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		env := map[string]string{"DATABASE_URL": server.Database(t), "PORT": "0"}
		err := run(t.Context(), func(name string) string { return env[name] }, nil)
		if !errors.Is(err, limiter.ErrMisconfigured) {
			t.Errorf("run = %v, want ErrMisconfigured", err)
		}
	})
}

func TestClientKey(t *testing.T) {
	for _, c := range []struct{ remote, want string }{
		{"192.0.2.1:1234", "192.0.2.1"},
		{"[::ffff:192.0.2.1]:1234", "192.0.2.1"},
		{"[2001:db8:1:2:3::4]:1234", "2001:db8:1:2::/64"},
		{"[fe80::1%eth0]:1234", "fe80::/64"},
		{"", ""},
		{"@", ""},
	} {
		if got, err := clientKey(c.remote); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("clientKey(%q) = %q, %v; want %q", c.remote, got, err, c.want)
		}
	}
}
