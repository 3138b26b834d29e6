package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
)

// transaction is the part of [pgx.Tx] that the store uses.
type transaction interface {
	DB
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// begin begins a READ COMMITTED transaction. If db is in a transaction, it makes a savepoint
// instead: there, BEGIN is only a warning, and COMMIT would end the caller's transaction.
func begin(ctx context.Context, db DB) (transaction, error) {
	switch b := db.(type) {
	case interface { // a connection
		BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
	}:
		if c := connOf(db); c != nil && c.PgConn().TxStatus() != 'I' {
			_, err := db.Exec(ctx, "SAVEPOINT limiter")
			return &savepoint{DB: db}, err
		}
		return b.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	case interface { // a pgx.Tx, which makes its savepoints itself
		Begin(context.Context) (pgx.Tx, error)
	}:
		return b.Begin(ctx)
	}
	return nil, fmt.Errorf("%w: a %T cannot begin a transaction; pass a pool, a connection or a pgx.Tx", limiter.ErrMisconfigured, db)
}

// connOf returns the connection that db runs on, or nil if db does not tell.
func connOf(db DB) *pgx.Conn {
	switch db := db.(type) {
	case *pgx.Conn:
		return db
	case interface{ Conn() *pgx.Conn }: // pgx.Tx, *pgxpool.Conn, *pgxpool.Tx
		return db.Conn()
	}
	return nil
}

// commit calls f in tx, and commits unless f fails.
func commit(ctx context.Context, tx transaction, f func(DB) error) error {
	// After a commit it does nothing, and after a failed one it would only say
	// that the connection is closed.
	defer func() { _ = tx.Rollback(ctx) }()
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return commitError{err}
	}
	return nil
}

// commitError is the error of a COMMIT, or of a batch that the server commits at its end. If the
// connection breaks during a COMMIT, which pgx sends in the simple protocol, or between the results of a
// batch in QueryExecModeExec, pgx wrongly reports that nothing was sent.
type commitError struct{ error }

func (e commitError) Unwrap() error   { return e.error }
func (commitError) SafeToRetry() bool { return false }

// savepoint is a savepoint in a transaction that the caller began on a connection.
type savepoint struct {
	DB
	released bool
}

func (p *savepoint) Commit(ctx context.Context) error {
	_, err := p.Exec(ctx, "RELEASE SAVEPOINT limiter")
	p.released = err == nil
	return err
}

func (p *savepoint) Rollback(ctx context.Context) error {
	if p.released {
		return nil
	}
	_, err := p.Exec(ctx, "ROLLBACK TO SAVEPOINT limiter; RELEASE SAVEPOINT limiter")
	return err
}
