package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// access says whether a statement can change anything: of one that cannot, the
// outcome is never unknown.
type access bool

const (
	read  access = false
	write access = true
)

// queryRow runs a statement that answers at most one row and reports whether it
// did.
func (s *Store) queryRow(ctx context.Context, a access, sql string, args []any, dest ...any) (found bool, err error) {
	err = s.run(ctx, a, func(db DB) (err error) {
		found, err = s.scanRow(ctx, db, sql, args, dest...)
		return err
	})
	return found && err == nil, err
}

// scanRow is queryRow on db. pgx's Scan returns the statement's own error, too,
// which may come after the row: only then is there an answer.
func (s *Store) scanRow(ctx context.Context, db DB, sql string, args []any, dest ...any) (bool, error) {
	err := db.QueryRow(ctx, sql, s.args(args)...).Scan(dest...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// exec runs a statement that changes at most one row and reports whether it did.
func (s *Store) exec(ctx context.Context, sql string, args ...any) (bool, error) {
	changed := false
	err := s.run(ctx, write, func(db DB) error {
		tag, err := db.Exec(ctx, sql, s.args(args)...)
		changed = err == nil && tag.RowsAffected() > 0
		return err
	})
	return changed, err
}

// hold calls f with a Store on a transaction that has locked the row. The lock is
// a statement of its own: one that waits for it would have read the clock before.
func (s *Store) hold(ctx context.Context, lock string, op limiter.Op, f func(held *Store) error) error {
	return s.run(ctx, write, func(db DB) error {
		tx, err := begin(ctx, db)
		if err != nil {
			return err
		}
		return commit(ctx, tx, func(tx DB) error {
			held := &Store{options: s.options, sql: s.sql, db: tx, turn: make(chan struct{}, 1)}
			if _, err := held.exec(ctx, lock, op.Name, []byte(op.Key)); err != nil {
				return err
			}
			return f(held)
		})
	})
}

// args puts the query mode before the arguments, which is where pgx looks for it.
func (s *Store) args(args []any) []any {
	if s.mode == nil {
		return args
	}
	return append([]any{*s.mode}, args...)
}

// run calls f with a connection: the exclusive one in turn, or one of the pool.
func (s *Store) run(ctx context.Context, a access, f func(DB) error) error {
	if s.db != nil {
		select {
		case s.turn <- struct{}{}:
		case <-ctx.Done():
			return sqlstore.Interrupted(ctx, limiter.ErrNotApplied, nil)
		}
		defer func() { <-s.turn }()
		return s.interpretError(ctx, a, f(s.db))
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer release(conn)
	if fresh(conn) {
		sqlstore.Connected(ctx)
	}
	return s.runOn(ctx, conn, a, f)
}

// acquire returns a connection of the pool. An error is one before anything was
// sent.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	pool, err := s.openPool(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, s.interpretError(ctx, read, err)
	}
	return conn, nil
}

// met is where a connection keeps that this package has had it before.
const met = "github.com/sqlimit/limiter/postgres: met"

// fresh reports whether conn is used for the first time: then the wait for it was
// that for its making.
func fresh(conn *pgxpool.Conn) bool {
	data := conn.Conn().PgConn().CustomData()
	_, known := data[met]
	if !known {
		data[met] = true
	}
	return !known
}

// runOn calls f with a connection of the pool.
func (s *Store) runOn(ctx context.Context, conn *pgxpool.Conn, a access, f func(DB) error) error {
	var err error
	if s.strict.Load() {
		err = committed(ctx, conn, f)
	} else if err = f(conn); sqlState(err) == serializationFailure {
		// The pool's transactions are stricter than READ COMMITTED by default. Nothing
		// was applied, and from now on the store asks for what it needs. Others may be
		// here at the same time: each runs its own call once more.
		s.strict.Store(true)
		err = committed(ctx, conn, f)
	}
	if spoiled(err) {
		// The pool throws a closed connection away when it gets it back.
		_ = conn.Conn().Close(ctx)
	}
	return s.interpretError(ctx, a, err)
}

// readError gives the error of a read within a write its class, unless it makes the
// whole be done once more, or closes the connection.
func (s *Store) readError(ctx context.Context, err error) error {
	if sqlState(err) == serializationFailure || spoiled(err) {
		return err
	}
	return s.interpretError(ctx, read, err)
}

// committed calls f in a READ COMMITTED transaction.
func committed(ctx context.Context, conn *pgxpool.Conn, f func(DB) error) error {
	tx, err := begin(ctx, conn)
	if err != nil {
		return err
	}
	return commit(ctx, tx, f)
}

// openPool returns the pool, which it makes at the first call after [Open].
func (s *Store) openPool(ctx context.Context) (*pgxpool.Pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("%w: the store is closed", limiter.ErrNotApplied)
	}
	if s.pool == nil {
		pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), s.config)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", limiter.ErrMisconfigured, err)
		}
		s.pool = pool
	}
	return s.pool, nil
}

// dialing reports whether a connection of the pool is being made.
func (s *Store) dialing() bool {
	s.mu.Lock()
	pool := s.pool
	s.mu.Unlock()
	return pool != nil && pool.Stat().ConstructingConns() > 0
}
