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

// drainTimeout bounds the requests in flight after SIGTERM. Cloud Run kills the process
// after 10 s.
const drainTimeout = 8 * time.Second

// serve serves HTTP until ctx ends, and then finishes the requests in flight.
func serve(ctx context.Context, port string, handler http.Handler, listening func(net.Addr)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", port))
	if err != nil {
		return fmt.Errorf("listen on $PORT: %w", err)
	}
	_, port, _ = net.SplitHostPort(listener.Addr().String()) // the port that the system chose for 0
	slog.Info("listening", "url", "http://localhost:"+port)
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
			_ = server.Close() // otherwise closing the store waits for the requests in flight
		}
		drained <- err
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-drained
}
