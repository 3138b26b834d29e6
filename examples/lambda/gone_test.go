package main

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
)

// closedPort returns an address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	return listener.Addr().String()
}

// People copy the example. A log that grows with the requests would fill their disks.
func TestLogWithoutDatabase(t *testing.T) { // not parallel: it replaces the default logger
	var log bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))

	store, err := openStore(t.Context(), settings{databaseURL: "postgres://user@" + closedPort(t) + "/db?sslmode=disable"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	h, err := routes(store, settings{}.client(), policies)
	if err != nil {
		t.Fatal(err)
	}
	requests := [][3]string{
		{"GET", "/"},
		{"GET", "/search"},
		{"GET", "/limits"},
		{"GET", "/health"},
		{"POST", "/export"},
		{"POST", "/login", credentials("alice", "guess")},
	}
	const callers, each = 50, 1000
	var running sync.WaitGroup
	for range callers {
		running.Go(func() {
			for i := range each {
				r := requests[i%len(requests)]
				if resp := send(h, "192.0.2.1:1", r[0], r[1], r[2]); resp.Code != http.StatusServiceUnavailable {
					t.Errorf("%s %s: %d, want 503", r[0], r[1], resp.Code)
					return
				}
			}
		})
	}
	running.Wait()
	if lines := bytes.Count(log.Bytes(), []byte("\n")); lines == 0 || lines > 20 {
		t.Errorf("%d requests wrote %d lines, want 1 to 20:\n%.2000s", callers*each, lines, log.Bytes())
	} else {
		t.Logf("%d requests wrote %d lines", callers*each, lines)
	}
}
