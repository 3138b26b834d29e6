package main

import (
	"context"
	"os"
	"time"

	"github.com/sqlimit/limiter/internal/daemon"
)

// dsnVariable is the variable in which the tests look for a server; see package internal/dbtest.
const dsnVariable = "LIMITER_TEST_POSTGRES_DSN"

// startTimeout is how long a server may take to be made and to start.
const startTimeout = time.Minute

// server starts a PostgreSQL of this machine in dir for all checks, unless the environment names
// one. Otherwise each check would start its own. It returns what to add to the checks' environment.
func server(ctx context.Context, dir string) (env []string, stop func() error, err error) {
	if os.Getenv(dsnVariable) != "" {
		return nil, func() error { return nil }, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, err := daemon.StartPostgres(ctx, dir, "max_connections=400", "fsync=off", "full_page_writes=off")
	if err != nil {
		return nil, nil, err
	}
	return []string{dsnVariable + "=" + p.DSN}, p.Stop, nil
}
