// Package pg starts a PostgreSQL, and keeps what a benchmark needs in a database.
package pg

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sqlimit/limiter/internal/daemon"
)

// startTimeout is how long a server may take until it answers.
const startTimeout = time.Minute

// Server returns dsn and a stop that does nothing. If dsn is empty, it starts the newest PostgreSQL of
// this machine in dir, with its defaults: commits are durable.
func Server(ctx context.Context, dsn, dir string) (used string, stop func() error, err error) {
	if dsn != "" {
		return dsn, func() error { return nil }, nil
	}
	if err := os.Chmod(dir, 0o755); err != nil { // for the account that PostgreSQL runs as
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	p, err := daemon.StartPostgres(ctx, dir)
	if err != nil {
		return "", nil, fmt.Errorf("start PostgreSQL, or pass -postgres: %w", err)
	}
	return p.DSN, p.Stop, nil
}
