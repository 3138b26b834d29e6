package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync"
	"sync/atomic"
)

// sqlPool is a pool that others also use, through database/sql, and the statements prepared on it.
// A prepared statement takes half the time of one that is not.
type sqlPool struct {
	db       *sql.DB
	own      bool        // whether close closes db
	prepared sync.Map    // statement -> *sql.Stmt
	covered  atomic.Bool // as of a rawConn

	mu     sync.RWMutex // read-locked by statements and transactions, which close waits for
	closed bool
}

// enter locks p.mu for a statement or a transaction, which ends with p.mu.RUnlock. After close it returns
// errClosed, and holds no lock.
func (p *sqlPool) enter() error {
	p.mu.RLock()
	if p.closed {
		p.mu.RUnlock()
		return errClosed
	}
	return nil
}

// prepare returns the prepared statement, which belongs to the pool. If preparing fails, because
// there are no tables yet, the next use tries again.
func (p *sqlPool) prepare(ctx context.Context, st statement) (*sql.Stmt, error) {
	if stmt, ok := p.prepared.Load(st); ok {
		return stmt.(*sql.Stmt), nil
	}
	stmt, err := p.db.PrepareContext(ctx, texts[st])
	if err != nil {
		return nil, err
	}
	if first, raced := p.prepared.LoadOrStore(st, stmt); raced {
		_ = stmt.Close()
		return first.(*sql.Stmt), nil
	}
	return stmt, nil
}

func (p *sqlPool) query(ctx context.Context, st statement, row func([]driver.Value) error, args ...any) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.mu.RUnlock()
	stmt, err := p.prepare(ctx, st)
	if err != nil {
		return err
	}
	return query(ctx, stmt, row, args)
}

func (p *sqlPool) exec(ctx context.Context, st statement, args ...any) (int64, error) {
	if err := p.enter(); err != nil {
		return 0, err
	}
	defer p.mu.RUnlock()
	stmt, err := p.prepare(ctx, st)
	if err != nil {
		return 0, err
	}
	return exec(ctx, stmt, args)
}

// reads returns false, because the pool's settings decide whether BEGIN takes the write lock.
func (p *sqlPool) reads() bool { return false }

func (p *sqlPool) restart(ctx context.Context) { _ = p.query(ctx, "checkpoint", nil) }

// grow fails, because the owner of the pool decides how the database grows.
func (p *sqlPool) grow(context.Context) error { return errNoRoom }

func (p *sqlPool) begin(ctx context.Context, locked bool) (transaction, error) {
	if !p.covered.Load() {
		_ = p.query(ctx, "checkpoint", nil)
	}
	t, err := p.beginTx(ctx, transacted, nil)
	if err != nil || !locked {
		return t, err
	}
	if _, err := t.exec(ctx, "lock"); err != nil {
		t.rollback()
		return nil, err
	}
	return t, nil
}

// snapshot asks for a transaction that only reads, because the pool's settings may say that others
// begin with the write lock.
func (p *sqlPool) snapshot(ctx context.Context) (transaction, error) {
	return p.beginTx(ctx, reading, &sql.TxOptions{ReadOnly: true})
}

// beginTx begins a transaction of statements on a connection of its own. The context ends only the wait for
// the connection. The caller ends the transaction.
func (p *sqlPool) beginTx(ctx context.Context, statements []statement, opts *sql.TxOptions) (t transaction, err error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() {
		if t == nil { // also if the driver panicked
			p.mu.RUnlock()
		}
	}()
	for _, st := range statements { // while it has the only connection, no statement can be prepared
		if _, err := p.prepare(ctx, st); err != nil {
			return nil, err
		}
	}
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), opts)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &sqlTx{pool: p, conn: conn, tx: tx}, nil
}

func (p *sqlPool) close() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.prepared.Range(func(st, stmt any) bool {
		if e := stmt.(*sql.Stmt).Close(); e != nil {
			err = e
		}
		p.prepared.Delete(st)
		return true
	})
	if p.own {
		if e := p.db.Close(); e != nil {
			err = e
		}
	}
	return err
}

// reading lists the statements of a snapshot.
var reading = func() (list []statement) {
	for _, t := range allTables {
		list = append(list, t.row)
	}
	return list
}()

// transacted lists the statements that run in transactions.
var transacted = func() []statement {
	list := []statement{"lock"}
	for _, t := range allTables {
		list = append(list, t.row, t.put)
	}
	for st := range texts {
		if strings.Contains(string(st), "_take") || strings.Contains(string(st), "_count") {
			list = append(list, st)
		}
	}
	return list
}()

// sqlTx is a transaction on its own connection, which it releases when it ends.
type sqlTx struct {
	pool  *sqlPool
	conn  *sql.Conn
	tx    *sql.Tx
	ended bool
}

func (t *sqlTx) query(ctx context.Context, st statement, row func([]driver.Value) error, args ...any) error {
	stmt, err := t.pool.prepare(ctx, st)
	if err != nil {
		return err
	}
	return query(ctx, t.tx.StmtContext(ctx, stmt), row, args)
}

func (t *sqlTx) exec(ctx context.Context, st statement, args ...any) (int64, error) {
	stmt, err := t.pool.prepare(ctx, st)
	if err != nil {
		return 0, err
	}
	return exec(ctx, t.tx.StmtContext(ctx, stmt), args)
}

func (t *sqlTx) commit(context.Context) error {
	err := t.tx.Commit()
	if err == nil {
		t.pool.covered.Store(true)
	}
	return err
}

func (t *sqlTx) rollback() {
	_ = t.tx.Rollback() // after a commit it does nothing
	_ = t.conn.Close()
	if !t.ended {
		t.ended = true
		t.pool.mu.RUnlock()
	}
}

func query(ctx context.Context, stmt *sql.Stmt, row func([]driver.Value) error, args []any) error {
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var columns []driver.Value
	var dest []any
	for row != nil && rows.Next() {
		if columns == nil {
			names, err := rows.Columns()
			if err != nil {
				return err
			}
			columns, dest = make([]driver.Value, len(names)), make([]any, len(names))
			for i := range columns {
				dest[i] = &columns[i]
			}
		}
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		if err := row(columns); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

func exec(ctx context.Context, stmt *sql.Stmt, args []any) (int64, error) {
	res, err := stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
