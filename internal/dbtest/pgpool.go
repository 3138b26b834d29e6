package dbtest

import (
	"context"
	"testing"

	"github.com/sqlimit/limiter/internal/daemon"
	"github.com/sqlimit/limiter/internal/testenv"
)

// Pgpool starts the Pgpool-II of this machine in front of the database of dsn, and returns the DSN of
// that database behind it. It pools sessions: a client that connects gets a server connection that
// another client has left. It stops when the test ends.
func Pgpool(t testing.TB, dsn string) string {
	t.Helper()
	program, err := daemon.FindPooler("pgpool")
	if err != nil {
		testenv.Unavailable(t, "pgpool", err)
	}
	server, err := daemon.NewPgpool(program, dsn)
	if err != nil {
		t.Fatalf("dbtest: pgpool: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("dbtest: stop pgpool: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := server.Start(ctx); err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	return server.DSN
}
