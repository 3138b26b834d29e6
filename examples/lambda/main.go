// Command lambda is an HTTP service whose clients may each make ten requests at
// once and then one a second. Run it and ask it twenty times:
//
//	go run ./examples/lambda
//	for i in $(seq 20); do curl -si localhost:8080 | head -1; done
//
// It listens on $PORT (8080). State is in PostgreSQL if DATABASE_URL is set, in
// tables that were made before; else in an SQLite file, which it creates:
// $LIMITER_SQLITE, or limiter-example.db in the directory for temporary files.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// drainTimeout is how long requests under way may take once the service is told
// to stop: Cloud Run kills it 10 s after SIGTERM.
const drainTimeout = 8 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv, nil); err != nil {
		slog.Error("stopped", "error", err)
		stop()
		os.Exit(1)
	}
}

// run serves until ctx ends. It reports the address it listens on to listening,
// which may be nil.
func run(ctx context.Context, getenv func(string) string, listening func(net.Addr)) error {
	store, err := openStore(ctx, getenv)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	handler, err := newHandler(store)
	if err != nil {
		return err
	}

	port := getenv("PORT")
	if port == "" {
		port = "8080"
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", port))
	if err != nil {
		return fmt.Errorf("listen on $PORT: %w", err)
	}
	slog.Info("listening", "address", listener.Addr().String())
	if listening != nil {
		listening(listener.Addr())
	}

	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	drained := make(chan error, 1)
	go func() {
		<-ctx.Done()
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		drained <- server.Shutdown(drain)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-drained
}
