package cuts

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/postgres"
)

// Mode is a way in which pgx sends statements.
type Mode struct {
	Name string
	pool pgx.QueryExecMode
	opts []postgres.Option
	text bool // statements are sent as text each time
}

// Modes are all that a store can be given. The last one it replaces by exec: in the
// simple protocol pgx takes a connection that broke after a commit as one that never sent
// the statement.
func Modes() (modes []Mode) {
	for _, m := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
	} {
		modes = append(modes, Mode{
			Name: strings.ReplaceAll(m.String(), " ", "_"), pool: pgx.QueryExecModeCacheStatement,
			opts: []postgres.Option{postgres.WithQueryExecMode(m)}, text: m == pgx.QueryExecModeExec,
		})
	}
	return append(modes, Mode{Name: "simple_protocol", pool: pgx.QueryExecModeSimpleProtocol, text: true})
}

// makeStrict lets the store find out that transactions of its pool see a snapshot.
func (w *Client) makeStrict(ctx context.Context) error {
	const key = "strict"
	if _, err := w.bucket.Allow(ctx, key); err != nil {
		return err
	}
	tx, err := w.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, "UPDATE limiter_token_buckets SET granted = 1 WHERE limiter = $1 AND key = $2", w.name, []byte(key)); err != nil {
		return err
	}
	taken := make(chan error, 1)
	go func() {
		_, err := w.bucket.Allow(ctx, key)
		taken <- err
	}()
	if err := blocked(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	return <-taken
}

// blocked waits until a session waits for a lock that a transaction holds.
func blocked(ctx context.Context, tx pgx.Tx) error {
	for {
		var is bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks
			WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))`).Scan(&is); err != nil || is {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}
