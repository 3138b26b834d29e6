package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// drainTimeout is how long requests under way may take once the service is told to
// stop: Cloud Run kills it 10 s after SIGTERM.
const drainTimeout = 8 * time.Second

// serve serves until ctx ends, and then what is under way.
func serve(ctx context.Context, port string, handler http.Handler, listening func(net.Addr)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", port))
	if err != nil {
		return fmt.Errorf("listen on $PORT: %w", err)
	}
	slog.Info("listening", "address", listener.Addr().String())
	if listening != nil {
		listening(listener.Addr())
	}

	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
	drained := make(chan error, 1)
	go func() {
		<-ctx.Done()
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		err := server.Shutdown(drain)
		if err != nil {
			_ = server.Close() // or the store would wait for what is under way
		}
		drained <- err
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-drained
}
