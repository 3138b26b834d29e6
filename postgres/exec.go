package postgres

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// longestTimeout is the longest lock_timeout that PostgreSQL accepts.
const longestTimeout = math.MaxInt32 * time.Millisecond

// access says whether a statement can change anything. If it cannot, its outcome is never
// unknown.
type access bool

const (
	read  access = false
	write access = true
)

// queryRow runs a statement that returns at most one row. Without a row it leaves dest as it is.
func (s *Store) queryRow(ctx context.Context, a access, sql string, args []any, dest ...any) error {
	return s.run(ctx, a, func(db DB) error {
		_, err := s.scanRow(ctx, db, sql, args, dest...)
		return err
	})
}

// scanRow runs a statement on db that returns at most one row, and reports whether it did. pgx's
// Scan also returns an error that the server reports after the row. Then there is no answer.
func (s *Store) scanRow(ctx context.Context, db DB, sql string, args []any, dest ...any) (bool, error) {
	if err := db.QueryRow(ctx, sql, s.args(args)...).Scan(dest...); err != nil {
		return scanned(err)
	}
	return true, nil
}

// scanned interprets the error of a Scan: it reports whether there was a row.
func scanned(err error) (found bool, _ error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// exec runs a statement on db that changes at most one row and reports whether it did.
func (s *Store) exec(ctx context.Context, db DB, sql string, args ...any) (bool, error) {
	tag, err := db.Exec(ctx, sql, s.args(args)...)
	return err == nil && tag.RowsAffected() > 0, err
}

// withRowLocked calls f in a transaction that has taken the key's advisory lock and then locked op's row. The lock
// is a statement of its own, because a statement that waits for the lock has read its clock before.
func (s *Store) withRowLocked(ctx context.Context, db DB, t *table, op *limiter.Op, f func(tx DB) error) error {
	tx, err := begin(ctx, db)
	if err != nil {
		return s.readError(ctx, err)
	}
	return commit(ctx, tx, func(tx DB) error {
		var sts []statement
		if s.boundsWaits {
			sts = append(sts, s.keyLock(ctx, t, op, 1))
		}
		sts = append(sts, statement{sql: t.sql.lock, args: s.bounded(ctx, []any{op.Name, []byte(op.Key)}, 0)})
		if err := s.sendPipelined(ctx, tx, sts); err != nil {
			return s.readError(ctx, err)
		}
		return f(tx)
	})
}

// keyLock returns the statement that takes the advisory lock of op's key, as one of locks in its transaction.
func (s *Store) keyLock(ctx context.Context, t *table, op *limiter.Op, locks int) statement {
	return statement{sql: t.sql.keyLock, args: s.bounded(ctx, []any{op.Name, []byte(op.Key)}, locks)}
}

// lock locks op's row until the transaction ends, and reports whether there is one.
func (s *Store) lock(ctx context.Context, db DB, t *table, op *limiter.Op) (found bool, err error) {
	return s.exec(ctx, db, t.sql.lock, s.bounded(ctx, []any{op.Name, []byte(op.Key)}, 0)...)
}

// bounded appends the arguments of statements that set lock_timeout: see [options.boundLockWait].
//
// With locks, it also appends how long the statement may wait for the advisory lock of its key, or NULL for
// no such lock. If its transaction takes several, they share the time. The statements of all processes that
// take from one key wait for that lock before they wait for the row. Otherwise each would follow every version
// of the row that others write.
func (s *Store) bounded(ctx context.Context, args []any, locks int) []any {
	if !s.boundsWaits {
		return args
	}
	row, wait, ok := opcontext.LockWait(ctx)
	timeout := textArg(strconv.FormatInt(max(1, min(row, longestTimeout).Milliseconds()), 10)) // 0 would be no limit
	if args = append(args, nil); ok {
		args[len(args)-1] = &timeout
	}
	if locks == 0 {
		return args
	}
	inQueue := int8Arg(min(wait, longestTimeout).Milliseconds() / int64(locks))
	if args = append(args, nil); inQueue > 0 {
		args[len(args)-1] = &inQueue
	}
	return args
}

// args puts the query mode before the arguments, which is where pgx looks for it.
func (s *Store) args(args []any) []any {
	if s.mode == nil {
		return args
	}
	return append([]any{*s.mode}, args...)
}

// run calls f with a connection: the exclusive one when it is free, or one of the pool.
func (s *Store) run(ctx context.Context, a access, f func(DB) error) error {
	if s.db != nil {
		select {
		case s.inUse <- struct{}{}:
		case <-ctx.Done():
			return opcontext.Interrupted(ctx, limiter.ErrNotApplied, nil)
		}
		defer func() { <-s.inUse }()
		return s.interpretError(ctx, a, f(s.db))
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer s.release(conn)
	return s.runOn(ctx, conn, a, f)
}

// runOn calls f with a connection of the pool.
func (s *Store) runOn(ctx context.Context, conn *pgxpool.Conn, a access, f func(DB) error) error {
	var err error
	if s.strict.Load() {
		err = committed(ctx, conn, f)
	} else if err = f(conn); err != nil && sqlState(err) == serializationFailure {
		// The pool's transactions are stricter than READ COMMITTED by default. Nothing was
		// applied, and from now on the store asks for READ COMMITTED. Several goroutines can
		// be here at the same time; each retries its own call.
		s.strict.Store(true)
		err = committed(ctx, conn, f)
	}
	switch {
	case err == nil:
		return nil
	case unusable(err):
		// The pool throws a closed connection away when it gets it back.
		_ = conn.Conn().Close(ctx)
	case ended(err):
		s.closeIdle(ctx)
	}
	return s.interpretError(ctx, a, err)
}

// readError gives the error of a read within a write its class. It returns an error as it is if
// [Store.runOn] has to retry the whole operation or close the connection.
func (s *Store) readError(ctx context.Context, err error) error {
	if sqlState(err) == serializationFailure || unusable(err) {
		return err
	}
	return s.interpretError(ctx, read, err)
}

// committed calls f in a READ COMMITTED transaction, or in a savepoint of the one that db is in.
func committed(ctx context.Context, db DB, f func(DB) error) error {
	tx, err := begin(ctx, db)
	if err != nil {
		return err
	}
	return commit(ctx, tx, f)
}
