package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// statement is one of several statements of a transaction. Without dest it returns no row.
type statement struct {
	sql   string
	args  []any
	dest  []any
	found *bool // set to whether it returned a row or, without dest, changed one; may be nil
}

func (p *statement) scan(row pgx.Row) error {
	found, err := scanned(row.Scan(p.dest...))
	if p.found != nil {
		*p.found = found
	}
	return err
}

func (p *statement) executed(tag pgconn.CommandTag) error {
	if p.found != nil {
		*p.found = tag.RowsAffected() > 0
	}
	return nil
}

// sendPipelined sends statements in one round trip, or one after another if db cannot or if they need a
// query mode of their own: pgx sends a batch in the query mode of the connection. On a pool, outside of a
// transaction, the server carries out a batch in one transaction.
func (s *Store) sendPipelined(ctx context.Context, db DB, sts []statement) error {
	conn, ok := db.(interface {
		SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
	})
	if !ok || s.mode != nil || len(sts) == 1 {
		for i := range sts {
			p := &sts[i]
			var err error
			if p.dest == nil {
				var tag pgconn.CommandTag
				if tag, err = db.Exec(ctx, p.sql, s.args(p.args)...); err == nil {
					err = p.executed(tag)
				}
			} else {
				err = p.scan(db.QueryRow(ctx, p.sql, s.args(p.args)...))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	var statements pgx.Batch
	for i := range sts {
		p := &sts[i]
		queued := statements.Queue(p.sql, p.args...)
		if p.dest == nil {
			queued.Exec(p.executed)
		} else {
			queued.QueryRow(p.scan)
		}
	}
	return conn.SendBatch(ctx, &statements).Close()
}

// sendTogether sends statements by sendPipelined that the server commits at their end.
func (s *Store) sendTogether(ctx context.Context, db DB, sts []statement) error {
	err := s.sendPipelined(ctx, db, sts)
	if err != nil && len(sts) > 1 {
		err = commitError{err}
	}
	return err
}

// pipelined is a transaction whose BEGIN goes with other statements.
type pipelined struct {
	*pgxpool.Conn
}

// beginWith begins a transaction, as [begin] does, and sends its first statements. If they fail, the
// transaction is rolled back.
func (s *Store) beginWith(ctx context.Context, db DB, sts []statement) (tx transaction, err error) {
	if conn, ok := db.(*pgxpool.Conn); ok && s.mode == nil && conn.Conn().PgConn().TxStatus() == 'I' {
		tx = pipelined{conn}
		err = s.sendPipelined(ctx, conn, append([]statement{{sql: "BEGIN ISOLATION LEVEL READ COMMITTED"}}, sts...))
	} else if tx, err = begin(ctx, db); err == nil {
		err = s.sendPipelined(ctx, tx, sts)
	} else {
		return nil, err
	}
	if err != nil {
		_ = tx.Rollback(ctx)
		return nil, err
	}
	return tx, nil
}

// Commit implements [transaction].
func (p pipelined) Commit(ctx context.Context) error {
	_, err := p.Exec(ctx, "COMMIT")
	return err
}

// Rollback implements [transaction]. After a commit it does nothing. If ROLLBACK fails, it closes the
// connection, as pgx's transactions do. Otherwise the transaction would stay open, and what later operations
// take would never be committed.
func (p pipelined) Rollback(ctx context.Context) error {
	conn := p.Conn.Conn()
	if pg := conn.PgConn(); pg.IsClosed() || pg.TxStatus() == 'I' {
		return nil
	}
	_, err := p.Exec(ctx, "ROLLBACK")
	if err != nil {
		_ = conn.Close(ctx)
	}
	return err
}

// inTransaction reports whether db is, or may be, in a transaction of the caller.
func inTransaction(db DB) bool {
	if _, ok := db.(pgx.Tx); ok {
		return true
	}
	c := connOf(db)
	return c == nil || c.PgConn().TxStatus() != 'I'
}
