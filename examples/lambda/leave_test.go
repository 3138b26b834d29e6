package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
)

// A client that goes away can do so ten thousand times a second, and must not fill the log.
func TestClientsThatLeaveAreNotLogged(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })

	leave := func(t *testing.T, env map[string]string) {
		t.Helper()
		s, err := readSettings(lookup(env))
		if err != nil {
			t.Fatal(err)
		}
		store, err := openStore(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		plenty := maps.Clone(policies)
		plenty["limits"] = limiter.PerSecond(100_000) // so that each request asks for six decisions
		h, err := routes(store, s.client(), plenty)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(h)
		left := 0
		var mu sync.Mutex
		var wait sync.WaitGroup
		for range 16 {
			wait.Go(func() {
				for range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
					req, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/limits", http.NoBody)
					if err != nil {
						t.Error(err)
					}
					resp, err := server.Client().Do(req)
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
					}
					cancel()
					if err != nil {
						mu.Lock()
						left++
						mu.Unlock()
					}
				}
			})
		}
		wait.Wait()
		server.Close()
		if lines := strings.Count(log.String(), "ERROR"); lines > 0 || left == 0 {
			t.Errorf("%d of 800 clients left, and %d are in the log: %.300s", left, lines, log.String())
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		leave(t, map[string]string{"LIMITER_SQLITE": filepath.Join(t.TempDir(), "limiter.db")})
	})
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		dsn, _ := migrated(t, server)
		leave(t, map[string]string{"DATABASE_URL": dsn})
	})
}
