package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter/internal/sqlitecode"
)

// rawPool is a pool that only this Store uses. It bypasses database/sql, which costs half as much
// again as the statements. A connection is held only for the microseconds of a statement or
// transaction, never during a wait. So no context interrupts a statement, and its outcome is known.
// An interrupt would also cost the connection, and two goroutines per statement.
type rawPool struct {
	file   *watchedFile
	params string        // of the connections
	free   chan struct{} // holds one for each connection that may be used now
	lost   *atomic.Int64 // how many connections were closed because they are broken

	blocked time.Time // when restart last waited for readers in vain; its caller holds Store.writing

	mu     sync.Mutex
	idle   []*rawConn // the last was used last: its cache is the freshest
	closed bool
}

func newRawPool(file *watchedFile, params string, n int, lost *atomic.Int64) *rawPool {
	p := &rawPool{file: file, params: params, free: make(chan struct{}, n), lost: lost}
	for range n {
		p.free <- struct{}{}
	}
	return p
}

// acquire returns a connection if the path still leads to the Store's file. The file may have been
// removed during a wait for a lock, after which acquire is called again.
func (p *rawPool) acquire() (*rawConn, error) {
	if err := p.file.check(); err != nil {
		return nil, err
	}
	<-p.free
	p.mu.Lock()
	closed := p.closed
	var c *rawConn
	if n := len(p.idle); n > 0 {
		c, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	p.mu.Unlock()
	switch {
	case closed:
		p.free <- struct{}{}
		return nil, errClosed
	case c != nil:
		return c, nil
	}
	conn, err := p.file.connect(context.Background(), p.params)
	if err != nil {
		p.free <- struct{}{}
		return nil, err
	}
	p.file.hold()
	return &rawConn{pool: p, conn: conn, prepared: map[statement]driver.Stmt{}}, nil
}

// release returns a connection to the pool, or closes it if it is broken.
func (p *rawPool) release(c *rawConn) {
	if c.broken {
		p.lost.Add(1)
		_ = c.close()
	} else {
		p.mu.Lock()
		p.idle = append(p.idle, c)
		p.mu.Unlock()
	}
	p.free <- struct{}{}
}

// close waits until no connection is in use, and closes all. Later uses fail.
func (p *rawPool) close() error {
	for range cap(p.free) {
		<-p.free
	}
	p.mu.Lock()
	p.closed = true
	var errs []error
	for _, c := range p.idle {
		errs = append(errs, c.close())
	}
	p.idle = nil
	p.mu.Unlock()
	for range cap(p.free) {
		p.free <- struct{}{}
	}
	return errors.Join(errs...)
}

func (p *rawPool) query(ctx context.Context, st statement, row func([]driver.Value) error, args ...any) error {
	c, err := p.acquire()
	if err != nil {
		return err
	}
	defer p.release(c)
	return c.query(ctx, st, row, args...)
}

func (p *rawPool) exec(ctx context.Context, st statement, args ...any) (int64, error) {
	c, err := p.acquire()
	if err != nil {
		return 0, err
	}
	defer p.release(c)
	return c.exec(ctx, st, args...)
}

func (p *rawPool) begin(ctx context.Context, locked bool) (transaction, error) {
	c, err := p.acquire()
	if err != nil {
		return nil, err
	}
	if !c.covered {
		_ = c.copyRest(ctx) // as far as possible
	}
	c.limit(ctx)
	if locked {
		return c.begin(ctx, "begin_locked")
	}
	return c.begin(ctx, "begin")
}

func (p *rawPool) snapshot(ctx context.Context) (transaction, error) {
	c, err := p.acquire()
	if err != nil {
		return nil, err
	}
	return c.begin(ctx, "begin")
}

func (*rawPool) reads() bool { return true }

// rawConn is a connection and the statements prepared on it. If preparing fails, because there are
// no tables yet, the next use tries again.
type rawConn struct {
	pool     *rawPool
	conn     driver.Conn
	prepared map[statement]driver.Stmt
	args     []driver.NamedValue // of the statement that runs
	columns  []driver.Value      // of the row that was read last
	broken   bool
	// covered is whether a transaction was committed. Before the first one, the connection copies the
	// log to the file, because the log may hold pages that others added, such as the tables: see free_pages.go.
	covered bool
	// restarted is when the log last started from its beginning, if nothing was committed since; full
	// is when the disk last had no room; limited is when limit last ran.
	restarted, full, limited time.Time
	unlimited                bool // the database keeps no free pages, so limit does nothing
}

// begin begins a transaction by st. If it fails, it releases the connection.
func (c *rawConn) begin(ctx context.Context, st statement) (transaction, error) {
	if _, err := c.exec(ctx, st); err != nil {
		c.pool.release(c)
		return nil, err
	}
	return &rawTx{rawConn: c}, nil
}

func (c *rawConn) prepare(st statement, args []any) (driver.Stmt, error) {
	c.args = c.args[:0]
	for i, a := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	if stmt, ok := c.prepared[st]; ok {
		return stmt, nil
	}
	stmt, err := c.conn.Prepare(texts[st])
	if err != nil {
		return nil, err
	}
	c.prepared[st] = stmt
	return stmt, nil
}

func (c *rawConn) query(_ context.Context, st statement, row func([]driver.Value) error, args ...any) (err error) {
	defer func() { err = c.judge(st, err) }()
	stmt, err := c.prepare(st, args)
	if err != nil {
		return err
	}
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(context.Background(), c.args)
	if err != nil {
		return err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	for n := len(rows.Columns()); len(c.columns) < n; {
		c.columns = append(c.columns, nil)
	}
	columns := c.columns[:len(rows.Columns())]
	for {
		switch err := rows.Next(columns); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case row == nil:
			continue
		}
		if err := row(columns); err != nil {
			return err
		}
	}
}

func (c *rawConn) exec(_ context.Context, st statement, args ...any) (n int64, err error) {
	defer func() { err = c.judge(st, err) }()
	stmt, err := c.prepare(st, args)
	if err != nil {
		return 0, err
	}
	res, err := stmt.(driver.StmtExecContext).ExecContext(context.Background(), c.args)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// judge closes the connection after an error that an operator can repair, because a connection
// keeps damaged pages that it read, and the rights that it had when it was opened. If an I/O error
// comes from a file that was changed, judge returns what is wrong with the file. The outcome of a
// failed commit is unknown, so its error stays.
func (c *rawConn) judge(st statement, err error) error {
	if err != nil && sqlitecode.Advice(sqlitecode.Of(err)) != "" {
		c.broken = true
	}
	if sqlitecode.Of(err) == sqlitecode.IOErr && st != "commit" {
		if changed := c.pool.file.checkNow(); changed != nil {
			return changed
		}
	}
	return err
}

func (c *rawConn) close() error {
	c.pool.file.release()
	var errs []error
	for _, stmt := range c.prepared {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, c.conn.Close())...)
}

// rawTx is a transaction on a connection, which it releases when it ends.
type rawTx struct {
	*rawConn
	done bool
}

func (t *rawTx) commit(ctx context.Context) error {
	if _, err := t.exec(ctx, "commit"); err != nil {
		return err
	}
	t.covered, t.restarted = true, time.Time{}
	t.end()
	return nil
}

func (t *rawTx) rollback() {
	if t.done {
		return
	}
	_, err := t.exec(context.Background(), "rollback")
	if err != nil && !strings.Contains(err.Error(), "no transaction is active") { // SQLite has rolled back
		t.broken = true
	}
	t.end()
}

func (t *rawTx) end() {
	t.done = true
	t.pool.release(t.rawConn)
}
