package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/pgschema"
)

// Option changes how a [Store] works. [New] and [Open] reject an option that is nil or has an
// invalid value.
type Option func(*options) error

type options struct {
	schema string
	mode   *pgx.QueryExecMode // nil: the connection's own
	rendering
}

// WithSchema sets the schema of the tables. The name must match ^[a-z_][a-z0-9_]{0,47}$. The
// default is public. The store never uses search_path.
func WithSchema(name string) Option {
	return func(o *options) error {
		if err := pgschema.Check(name); err != nil {
			return fmt.Errorf("postgres: %w", err)
		}
		o.schema = name
		return nil
	}
}

// WithQueryExecMode makes the [Store] run its statements in mode, instead of the connection's
// default. It rejects the simple protocol, because there pgx cannot tell a statement that was never
// sent from one whose connection broke after the commit. If mode needs a cache of capacity 0, the error of
// [New] and [Open] matches [limiter.ErrInvalid]. Without this option, the store uses the exec mode if the
// connection's default is the simple protocol, or needs a cache of capacity 0.
func WithQueryExecMode(mode pgx.QueryExecMode) Option {
	return func(o *options) error {
		switch mode {
		case pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
			pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec:
			o.mode = &mode
			return nil
		case pgx.QueryExecModeSimpleProtocol:
			return invalid("the simple protocol cannot tell whether a statement was carried out; use pgx.QueryExecModeExec, which works behind any pooler")
		}
		return invalid("there is no query mode %d; use one of pgx's QueryExecMode constants", mode)
	}
}

// WithAsyncCommit makes takes return before they are on disk (synchronous_commit = off for these
// statements). If the database server crashes, it may forget the takes of the last fraction of a
// second and admit as many again. Nothing else can be lost. The default is the database's setting.
//
// [New] rejects it on a [pgx.Tx], because it would change how the caller's transaction commits. On
// a connection, it also affects a transaction that the caller begins there.
func WithAsyncCommit() Option {
	return func(o *options) error {
		o.asyncCommit = true
		return nil
	}
}

// WithCitus makes the [Store] work on tables that Citus distributes by key. Each decision then
// sends statements that touch one key. A take is granted by one UPSERT, by the coordinator's clock. If
// the store expects a refusal, it reads the row first. Equal takes of one key share an UPSERT; takes of
// different keys do not share statements. See docs/citus.md.
//
// Without WithCitus, such tables refuse some statements of the store, and the others are slow.
// [Store.Check] says so. The store also works with WithCitus on tables that are not distributed, but
// slower. [New] and [Open] reject it together with [WithAsyncCommit], because commits happen on the
// workers: set synchronous_commit there.
func WithCitus() Option {
	return func(o *options) error {
		o.citus = true
		return nil
	}
}
