// Package postgres is a limiter.Store on PostgreSQL 14 and later, by pgx v5. A
// decision is one statement in one round trip, or seldom two: it needs no function, trigger,
// extension, advisory lock or session state, so it runs behind any pooler. The
// database's clock decides.
//
// The tables come from package migrations. The role of the application needs
// SELECT, INSERT and UPDATE on them, and DELETE for [Store.Sweep]. SELECT on
// goose's own table lets [Store.Check] notice a migration that is missing:
//
//	GRANT SELECT, INSERT, UPDATE ON limiter_token_buckets, limiter_fixed_windows TO app;
//	GRANT SELECT ON limiter_goose_version TO app;
//	GRANT DELETE ON limiter_token_buckets, limiter_fixed_windows TO sweeper;
//
// # Poolers
//
// The store uses the connection's own query mode, by default cache_statement.
// Behind PgBouncer before 1.21, and other poolers in transaction mode that keep
// no prepared statements, pass [WithQueryExecMode] of [pgx.QueryExecModeExec], or
// put default_query_exec_mode=exec into the DSN. The simple protocol is never used
// for statements that decide.
//
// # Pools
//
// The store may share its pool with the application. The wait for a connection counts
// against [limiter.WithTimeout]: if the application holds all connections, decisions fail,
// although the database is well. The error then says that all connections of the pool are
// in use. Raise pool_max_conns, or give the limiter a pool of its own with [Open].
//
// # Transactions
//
// On a [pgx.Tx], or on a connection on which the caller began a transaction, a take is
// part of that transaction:
//
//   - A rollback gives the take back.
//   - The key's row stays locked until the transaction ends. All other users of the key
//     wait for it, so take as late as possible.
//   - Any error that PostgreSQL reports for a take aborts the transaction: every later
//     statement fails with SQLSTATE 25P02. The store's error is therefore always returned;
//     [limiter.FailOpen] and [limiter.FailLocal] do not answer. Roll back, and run the
//     whole transaction again if the error matches [limiter.ErrNotApplied].
//   - Take keys in the same order in all transactions, by limiter and key for example.
//     Two transactions that take the same keys in opposite order deadlock, and PostgreSQL
//     fails one of them with SQLSTATE 40P01.
//   - In REPEATABLE READ and SERIALIZABLE a take may be refused from the transaction's
//     snapshot, or fail with SQLSTATE 40001. It never lets too much in.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/pgschema"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// DB is what a [Store] runs its statements on: a [*pgxpool.Pool], a [*pgx.Conn]
// or a [pgx.Tx]. All but the pool are exclusive: the store makes one call after
// another on them. In a transaction, also one that the caller began on the
// connection, the store never commits or rolls back: where it needs a transaction
// of its own it makes a savepoint.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Store keeps state in PostgreSQL. Make one with [New] or [Open]; the zero Store
// is not valid. A Store is safe for concurrent use, whatever it runs on.
type Store struct {
	options
	db     DB            // of New, if it is not a pool
	turn   chan struct{} // held while db is in use
	config *pgxpool.Config
	sql    statements
	strict atomic.Bool // the pool's default isolation gave a 40001

	time    sqlstore.Timekeeper
	breaker sqlstore.Breaker
	retries sqlstore.Retries
	sweeper sqlstore.Sweeper

	// The queues of the two tables, nil if the Store does not run on a pool.
	bucketQueue, windowQueue *batch.Queue
	// The outcomes that single takes are expected to have, nil if the Store does not run on a pool.
	expect *expectations

	mu     sync.Mutex
	pool   *pgxpool.Pool // of New, or made from config at the first decision
	closed bool
}

// New returns a Store that runs on db, which stays the caller's. It does no I/O.
// The error matches [limiter.ErrInvalid].
func New(db DB, opts ...Option) (*Store, error) {
	if v := reflect.ValueOf(db); db == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, invalid("the database is nil (%T); pass a *pgxpool.Pool, *pgx.Conn or pgx.Tx", db)
	}
	s := &Store{db: db}
	var conn *pgx.ConnConfig
	if pool, ok := db.(*pgxpool.Pool); ok {
		s.db, s.pool = nil, pool
		conn = pool.Config().ConnConfig
	} else {
		s.turn = make(chan struct{}, 1)
		if c := connOf(db); c != nil {
			conn = c.Config()
		}
	}
	if err := s.configure(conn, opts); err != nil {
		return nil, err
	}
	if _, tx := db.(pgx.Tx); tx && s.asyncCommit {
		return nil, invalid("WithAsyncCommit on a transaction would change how all of it commits; leave it out, or pass a pool")
	}
	return s, nil
}

// Open returns a Store on a pool of its own, which connects at the first
// decision. The DSN is that of [pgxpool.ParseConfig]: a URL or keywords, with
// pool_max_conns and its siblings; what it leaves out is taken from the PG*
// variables, as by every client of PostgreSQL, but for connect_timeout, which is 3 s
// then. The error matches
// [limiter.ErrInvalid] if the DSN or an option is wrong. Call [Store.Close].
func Open(ctx context.Context, dsn string, opts ...Option) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("postgres: %w: %w", limiter.ErrCanceled, err)
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, invalid("the DSN: %s", dsnReason(err))
	}
	PingAfterFreeze(config)
	if config.ConnConfig.ConnectTimeout == 0 {
		// As long as a decision waits for it: a dial that hangs holds its place in the pool.
		config.ConnConfig.ConnectTimeout = sqlstore.DialLimit
	}
	s := &Store{config: config}
	if err := s.configure(config.ConnConfig, opts); err != nil {
		return nil, err
	}
	return s, nil
}

// configure applies the options and renders the statements.
func (s *Store) configure(conn *pgx.ConnConfig, opts []Option) error {
	s.schema = pgschema.Default
	for _, opt := range opts {
		if opt == nil {
			return invalid("an option is nil; leave it out")
		}
		if err := opt(&s.options); err != nil {
			return err
		}
	}
	if s.mode == nil && conn != nil && conn.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		exec := pgx.QueryExecModeExec
		s.mode = &exec
	}
	s.sql = render(s.schema, s.asyncCommit)
	if s.db == nil {
		s.time.Dialing, s.time.Waiting = s.dialing, s.waiting
		s.breaker.Down, s.retries.Again, s.retries.Unsent = down, again, unsent
		s.bucketQueue, s.windowQueue = s.newQueue(buckets{s}), s.newQueue(windows{s})
		s.expect = newExpectations()
	}
	return nil
}

// Do carries out op, as [limiter.Store] says.
func (s *Store) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	t, err := s.tableOf(op.Policy)
	if err == nil {
		err = checkKind(op.Kind)
	}
	var state limiter.State
	if err == nil {
		state, err = s.do(ctx, t, op)
	}
	if err != nil {
		return limiter.State{}, fmt.Errorf("postgres: %w", err)
	}
	return state, nil
}

// do carries out op. On a pool it keeps op's time limit, retries an operation that was certainly
// not applied, and sends nothing while the database does not answer. On the caller's connection
// it does none of that: a time limit that cuts a statement off would break the connection.
func (s *Store) do(ctx context.Context, t table, op limiter.Op) (state limiter.State, err error) {
	if s.db != nil {
		return s.doNow(ctx, t, op)
	}
	pass, err := s.breaker.Enter(&op)
	if err != nil {
		return limiter.State{}, err
	}
	limited, stop := s.time.Limit(ctx, op.Timeout)
	defer stop()
	send := func(ctx context.Context) (limiter.State, error) { return t.queue().Do(ctx, op) }
	if op.Timeout <= 0 { // nothing would end a statement of the queue after the caller has left
		send = func(ctx context.Context) (limiter.State, error) { return s.doNow(ctx, t, op) }
	}
	if op.Kind == limiter.OpRefund || op.Kind == limiter.OpCancel {
		state, err = send(limited) // two refunds would let too much in
	} else {
		state, err = s.retries.Do(limited, send)
	}
	pass.Leave(&op, err)
	return state, err
}

// doNow carries out op on a connection of its own, or on the exclusive one.
func (s *Store) doNow(ctx context.Context, t table, op limiter.Op) (limiter.State, error) {
	c := batch.NewCall(op)
	err := s.run(ctx, accessOf(&op), func(db DB) error {
		return s.carryOut(ctx, db, t, &batch.Group{Calls: []*batch.Call{c}})
	})
	if err != nil {
		return limiter.State{}, err
	}
	return c.State(), nil
}

// Provisional reports whether the Store runs on a connection or transaction of the
// caller's, where a rollback may undo what was decided. There [limiter.WithDenyCache] has
// no effect, and no failure policy answers: see [limiter.Provisional].
func (s *Store) Provisional() bool { return s.db != nil }

// Close closes the pool that [Open] made; it waits until its connections are
// back. What was passed to [New] stays open, and the Store on it usable.
func (s *Store) Close() error {
	if s.config == nil {
		return nil
	}
	s.mu.Lock()
	pool := s.pool
	s.pool, s.closed = nil, true
	s.mu.Unlock()
	if pool != nil {
		pool.Close()
	}
	return nil
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errors.ErrUnsupported)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("postgres: %w: %s", limiter.ErrInvalid, fmt.Sprintf(format, args...))
}
