package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

var errCall = errors.New("the call fails")

// callFailure lets one call to the driver fail. If Tx.Commit fails, the transaction has ended, as
// in the driver. A COMMIT statement that fails leaves it open.
type callFailure struct {
	callsLeft int  // calls until the one that fails; 0 or less: none fails
	commits   bool // a COMMIT that fails does its work
}

func (f *callFailure) call(do func() error) error {
	if f.callsLeft--; f.callsLeft == 0 {
		return errCall
	}
	return do()
}

type faultyConn struct {
	driver.Conn
	*callFailure
}

func (c faultyConn) Prepare(text string) (driver.Stmt, error) {
	s := faultyStmt{callFailure: c.callFailure, commit: strings.Contains(text, "COMMIT;")}
	err := c.call(func() (err error) { s.Stmt, err = c.Conn.Prepare(text); return err })
	return s, err
}

func (c faultyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	err = c.call(func() (err error) { tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts); return err })
	return faultyTx{tx, c.callFailure}, err
}

type faultyTx struct {
	driver.Tx
	*callFailure
}

func (t faultyTx) Commit() error {
	end := t.Tx.Commit
	if t.callsLeft == 1 && !t.commits {
		end = t.Rollback
	}
	err := end()
	return t.call(func() error { return err })
}

type faultyStmt struct {
	driver.Stmt
	*callFailure
	commit bool
}

func (s faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (res driver.Result, err error) {
	exec := func() (err error) { res, err = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args); return err }
	if s.callsLeft == 1 && s.commit && s.commits {
		_ = exec()
	}
	err = s.call(exec)
	return res, err
}

func (s faultyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = s.call(func() (err error) { rows, err = s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args); return err })
	return faultyRows{rows, s.callFailure}, err
}

type faultyRows struct {
	driver.Rows
	*callFailure
}

func (r faultyRows) Next(columns []driver.Value) error {
	return r.call(func() error { return r.Rows.Next(columns) })
}

type subject struct {
	*Store
	bucket, window *limiter.Limiter
}

// operation is what a caller does. The bucket and the window have 6 of 10 units left.
type operation struct {
	name   string
	queued bool // it waits for its turn to write
	do     func(ctx context.Context, s subject) (answer any, err error)
	want   any    // the answer
	after  string // what the bucket and the window have then, and whether the expired row is there
}

func remaining(r limiter.Result, err error) (any, error) { return r.Remaining, err }

func take(n int64) func(context.Context, subject) (any, error) {
	return func(ctx context.Context, s subject) (any, error) { return remaining(s.bucket.AllowN(ctx, "key", n)) }
}

var operations = []operation{
	{"a take", false, take(1), int64(5), "5 6 true"},
	{"a take that waits", true, take(1), int64(5), "5 6 true"},
	{"a refusal", false, take(7), int64(6), "6 6 true"},
	{"a take of a window", true, func(ctx context.Context, s subject) (any, error) { return remaining(s.window.Allow(ctx, "key")) }, int64(5), "6 5 true"},
	{"a charge", true, func(ctx context.Context, s subject) (any, error) { return remaining(s.bucket.Charge(ctx, "key", 3)) }, int64(3), "3 6 true"},
	{"a look", false, func(ctx context.Context, s subject) (any, error) { return remaining(s.bucket.Peek(ctx, "key")) }, int64(6), "6 6 true"},
	{"takes of both", false, func(ctx context.Context, s subject) (any, error) {
		all, err := limiter.AllowAll(ctx, limiter.Claim{Limiter: s.bucket, Key: "key"}, limiter.Claim{Limiter: s.window, Key: "key"})
		return all.Allowed, err
	}, true, "5 5 true"},
	{"a check", false, func(ctx context.Context, s subject) (any, error) { return nil, s.Check(ctx) }, nil, "6 6 true"},
	{"overrides", false, func(ctx context.Context, s subject) (any, error) {
		list, err := s.Overrides(ctx, "bucket", 9)
		return len(list), err
	}, 2, "6 6 true"},
	{"a sweep", false, func(ctx context.Context, s subject) (any, error) { return nil, testenv.ErrorOf(s.Sweep(ctx, 99)) }, nil, "6 6 false"},
}

// TestEachCallFails lets the calls to the driver fail, one at a time. The answer of an operation
// must say what is in the database then, and the next operations must succeed.
func TestEachCallFails(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]*callFailure{"a failed commit does nothing": {}, "a failed commit does its work": {commits: true}} {
		for _, by := range []string{"New", "Open"} {
			t.Run(name+", by "+by, func(t *testing.T) {
				t.Parallel()
				f := *f
				store, err := Open(filepath.Join(t.TempDir(), "app.db"))
				testenv.Must(t, err)
				defer store.Close()
				store.copying.Store(true) // so that no goroutine copies the log meanwhile
				testenv.Must(t, migrations.Up(t.Context(), migrations.SQLite, store.DB()))
				testenv.Must(t, testenv.ErrorOf(store.DB().ExecContext(t.Context(), `INSERT INTO limiter_overrides (limiter, key, kind, capacity)
					VALUES ('bucket', CAST('one' AS BLOB), 'limit', 5), ('bucket', CAST('two' AS BLOB), 'limit', 5)`)))
				var db *sql.DB
				if by == "New" {
					db = sql.OpenDB(connector(func(ctx context.Context) (driver.Conn, error) {
						conn, err := store.file.connect(ctx, sharedParams)
						return faultyConn{conn, &f}, err
					}))
					defer db.Close()
				}
				for _, o := range operations {
					t.Run(o.name, func(t *testing.T) {
						n, step := 1, map[bool]int{false: 1, true: 7}[testenv.Race] // one goroutine has no races
						for o.failsAt(t, store, db, &f, n) {
							n += step
						}
						testenv.Equal(t, n > 3, true, n, "calls are more than 3")
					})
				}
			})
		}
	}
}

// failsAt carries out o while the nth call fails, and reports whether o made n calls. It uses db,
// or the connections of store if db is nil.
func (o *operation) failsAt(t *testing.T, store *Store, db *sql.DB, f *callFailure, n int) bool {
	t.Helper()
	ctx, tested := t.Context(), store
	limitersOn := func(s *Store) subject {
		bucket, err1 := limiter.New(s, "bucket", limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: 1000 * time.Hour}, limiter.WithTimeout(time.Minute))
		window, err2 := limiter.New(s, "window", limiter.FixedWindow{Limit: 10, Window: 1000 * time.Hour}, limiter.WithTimeout(time.Minute))
		testenv.Must(t, errors.Join(err1, err2))
		return subject{s, bucket, window}
	}
	own := limitersOn(store)
	for _, l := range []*limiter.Limiter{own.bucket, own.window} {
		testenv.Must(t, errors.Join(l.Reset(ctx, "key"), testenv.ErrorOf(l.AllowN(ctx, "key", 4)), testenv.ErrorOf(l.Peek(ctx, "key"))))
	}
	testenv.Must(t, testenv.ErrorOf(store.DB().ExecContext(ctx, `INSERT INTO limiter_fixed_windows VALUES ('old', x'00', 1, 1, 1, 1, 1, 1)
		ON CONFLICT DO NOTHING`)))
	state := func() string {
		var old bool
		testenv.Must(t, store.DB().QueryRowContext(ctx, "SELECT count(*) FROM limiter_fixed_windows WHERE limiter = 'old'").Scan(&old))
		b, err1 := own.bucket.Peek(ctx, "key")
		w, err2 := own.window.Peek(ctx, "key")
		testenv.Must(t, errors.Join(err1, err2))
		return fmt.Sprint(b.Remaining, w.Remaining, old)
	}
	before := state()

	if db != nil {
		var err error
		tested, err = New(db)
		testenv.Must(t, err)
	} else {
		for _, p := range []pool{store.reader, store.writer} {
			idle := p.(*rawPool).idle
			c := idle[len(idle)-1] // the next that is used
			conn := c.conn
			c.conn, c.prepared = faultyConn{conn, f}, map[statement]driver.Stmt{}
			defer func() { c.conn = conn }()
		}
	}
	var done atomic.Bool
	if o.queued {
		testenv.Equal(t, tested.tryStartWriting(), true, "it may write")
		go func() {
			for tested.waiting.Load() == 0 && !done.Load() {
				<-time.After(time.Microsecond)
			}
			tested.stopWriting()
		}()
	}
	f.callsLeft = n
	answer, err := o.do(ctx, limitersOn(tested))
	failed := f.callsLeft <= 0
	f.callsLeft = 0
	done.Store(true)
	switch now := state(); {
	case err == nil:
		testenv.Equal(t, answer, o.want, "call", n, "the answer")
		testenv.Equal(t, now, o.after, "call", n, "what is left")
	case !failed:
		t.Errorf("after %d calls: %v, want no error", n, err)
	case errors.Is(err, limiter.ErrNotApplied) && o.name != "a sweep": // a sweep may have deleted rows before it failed
		testenv.Equal(t, now, before, "call", n, "what is left after", err)
	case !errors.Is(err, limiter.ErrOutcomeUnknown) && o.name != "a sweep" || !errors.Is(err, errCall) || now != before && now != o.after:
		t.Errorf("call %d: what is left is %s, %v; want %s or %s", n, now, err, before, o.after)
	}
	return failed
}

// Statements of a transaction on the only connection must stay prepared until it ends.
func TestCloseWaitsForTransactions(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "limiter.db"))
	testenv.Must(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	p := &sqlPool{db: db}
	tx, err := p.beginTx(t.Context(), []statement{"size"}, nil)
	testenv.Must(t, err)
	closed := make(chan error, 1)
	go func() { closed <- p.close() }()
	select {
	case err := <-closed:
		t.Fatalf("close does not wait for the transaction: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	testenv.Must(t, tx.query(t.Context(), "size", nil))
	tx.rollback()
	testenv.Must(t, <-closed)
	testenv.ErrorIs(t, testenv.ErrorOf(p.beginTx(t.Context(), nil, nil)), errClosed, "a transaction after Close")
}
