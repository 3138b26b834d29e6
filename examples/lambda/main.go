// Command lambda is one HTTP service with several limits, as a server and as an
// AWS Lambda function. Run it and ask it twenty times:
//
//	go run ./examples/lambda
//	for i in $(seq 20); do curl -si localhost:8080 | head -1; done
//
// Where Lambda has started it, it serves events; with the argument "sweep" it
// removes rows that nobody needs any more, and ends; else it listens on $PORT
// (8080). State is in PostgreSQL if DATABASE_URL is set, in tables that were made
// before; else in an SQLite file, which it creates: $LIMITER_SQLITE, or
// limiter-example.db in the directory for temporary files. See README.md.
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

// program is what the process is made of; tests make others.
type program struct {
	getenv   func(string) string
	args     []string
	policies map[string]limiter.Policy
	// listening is told the address of the server. It may be nil.
	listening func(net.Addr)
}

// run does what the environment and the arguments ask for, until that is done or ctx
// ends.
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
		return fmt.Errorf("the arguments are %q; the only one there is is sweep", p.args)
	}
	if s.databaseURL == "" {
		slog.Warn("without DATABASE_URL the limits are this instance's own", "sqlite", s.sqlite)
	}
	handler, err := routes(store, s.client(), p.policies)
	if err != nil {
		return err
	}
	if s.inLambda {
		serveEvents(handler, store) // and never returns
	}
	if err := checkAtStart(ctx, store); err != nil {
		return err
	}
	return serve(ctx, s.port, handler, p.listening)
}
