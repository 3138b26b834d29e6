// Command lambda is an example of an HTTP service with several limits. It runs as a server and as
// an AWS Lambda function. Copy it to start a service of your own. To try it, run it and send twenty
// requests:
//
//	go run ./examples/lambda
//	for i in $(seq 20); do curl -si localhost:8080 | head -1; done
//
// In Lambda the program serves events. With the argument "sweep" it deletes expired rows and exits.
// Otherwise it listens on $PORT, 8080 by default.
//
// If DATABASE_URL is set, the program stores the limits in PostgreSQL, in tables that must exist.
// Otherwise it creates a SQLite file: $LIMITER_SQLITE, or limiter-example.db in the directory for
// temporary files. See README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/sqlimit/limiter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	p := program{getenv: os.Getenv, args: os.Args[1:], policies: policies}
	err := p.run(ctx)
	stop()
	if err != nil {
		slog.Error("stopped", "error", err)
		os.Exit(1)
	}
}

// program holds what the process depends on. Tests replace it.
type program struct {
	getenv   func(string) string
	args     []string
	policies map[string]limiter.Policy
	// listening is called with the address of the server. It may be nil.
	listening func(net.Addr)
}

// run sweeps, serves events or serves HTTP, as the environment and the arguments say. It
// returns when it has finished or ctx ends.
func (p program) run(ctx context.Context) error {
	s, err := readSettings(p.getenv)
	if err != nil {
		return err
	}
	store, err := openStore(ctx, s)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()

	switch {
	case len(p.args) == 1 && p.args[0] == "sweep":
		done, err := sweep(ctx, store)
		return errors.Join(json.NewEncoder(os.Stdout).Encode(done), err)
	case len(p.args) > 0:
		return fmt.Errorf("unknown arguments %q; pass sweep or none", p.args)
	}
	if s.databaseURL == "" {
		slog.Warn("DATABASE_URL is not set: this instance does not share its limits", "sqlite", s.sqlite)
	}
	handler, err := routes(store, s.client(), p.policies)
	if err != nil {
		return err
	}
	if s.inLambda {
		serveEvents(handler, store) // does not return
	}
	if err := checkAtStart(ctx, store); err != nil {
		return err
	}
	return serve(ctx, s.port, handler, p.listening)
}
