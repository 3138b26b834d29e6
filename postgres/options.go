package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/pgschema"
)

// Option changes how a [Store] works. An option that is nil or out of range is
// an error of [New] and [Open].
type Option func(*options) error

type options struct {
	schema      string
	mode        *pgx.QueryExecMode // nil: the connection's own
	asyncCommit bool
}

// WithSchema tells the [Store] which schema the tables are in. It must match
// ^[a-z_][a-z0-9_]{0,47}$. The default is public; search_path is never used.
func WithSchema(name string) Option {
	return func(o *options) error {
		if err := pgschema.Check(name); err != nil {
			return fmt.Errorf("postgres: %w", err)
		}
		o.schema = name
		return nil
	}
}

// WithQueryExecMode tells the [Store] to run its statements in mode, in place of
// the connection's own. The simple protocol is refused: pgx would take a
// connection that broke after a commit as one that never sent the statement. A
// connection whose own mode is the simple protocol is used in exec mode.
func WithQueryExecMode(mode pgx.QueryExecMode) Option {
	return func(o *options) error {
		switch mode {
		case pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
			pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec:
			o.mode = &mode
			return nil
		case pgx.QueryExecModeSimpleProtocol:
			return invalid("the simple protocol cannot tell whether a statement was carried out; use pgx.QueryExecModeExec, which any pooler takes, too")
		}
		return invalid("there is no query mode %d; use one of pgx's QueryExecMode constants", mode)
	}
}

// WithAsyncCommit tells the [Store] not to wait until a take is on disk
// (synchronous_commit = off, for the takes alone). A crash of the database server
// may then forget the takes of its last fraction of a second, which lets as many
// in again; nothing else can be lost. In a transaction of the caller's it changes
// how all of that commits: it is refused on a [pgx.Tx], but a connection on which
// the caller begins one looks like any other. The default is the database's own
// durability.
func WithAsyncCommit() Option {
	return func(o *options) error {
		o.asyncCommit = true
		return nil
	}
}
