package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/migrations"
)

var errCall = errors.New("the call fails")

// faults lets one call to the driver fail.
type faults struct {
	left   int  // calls until the one that fails; 0 or less: none fails
	commit bool // a COMMIT that fails does its work
}

func (f *faults) call(do func() error) error {
	f.left--
	if f.left == 0 {
		return errCall
	}
	return do()
}

type faultyConn struct {
	driver.Conn
	*faults
}

func (c faultyConn) Prepare(text string) (driver.Stmt, error) {
	s := faultyStmt{faults: c.faults, commits: strings.Contains(text, "COMMIT;")}
	err := c.call(func() (err error) { s.Stmt, err = c.Conn.Prepare(text); return err })
	return s, err
}

func (c faultyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx := faultyTx{faults: c.faults}
	err := c.call(func() (err error) { tx.Tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts); return err })
	return tx, err
}

type faultyTx struct {
	driver.Tx
	*faults
}

// Commit ends the transaction even if it fails, as the driver does.
func (t faultyTx) Commit() error {
	end := t.Rollback
	if t.commit {
		end = t.Tx.Commit
	}
	if t.left == 1 {
		_ = end()
	}
	return t.call(t.Tx.Commit)
}

type faultyStmt struct {
	driver.Stmt
	*faults
	commits bool
}

func (s faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (res driver.Result, err error) {
	if s.left == 1 && s.commits && s.commit {
		_, _ = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	}
	err = s.call(func() (err error) { res, err = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args); return err })
	return res, err
}

func (s faultyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	r := faultyRows{faults: s.faults}
	err := s.call(func() (err error) { r.Rows, err = s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args); return err })
	return r, err
}

type faultyRows struct {
	driver.Rows
	*faults
}

func (r faultyRows) Next(columns []driver.Value) error {
	return r.call(func() error { return r.Rows.Next(columns) })
}

// An operation on a key of which a bucket and a window have 10 units each.
type operation struct {
	name   string
	queued bool  // it waits for its turn to write
	used   int64 // of the bucket, before
	do     func(ctx context.Context, s *Store, b, w *limiter.Limiter, key string) (answer any, err error)
	want   any    // the answer
	after  string // what the bucket and the window have then, and how many expired rows there are
}

func left(r limiter.Result, err error) (any, error) { return r.Remaining, err }

func allow(ctx context.Context, _ *Store, b, _ *limiter.Limiter, key string) (any, error) {
	return left(b.Allow(ctx, key))
}

var operations = []operation{
	{"a take", false, 4, allow, int64(5), "5 6 1"},
	{"a take that waits", true, 4, allow, int64(5), "5 6 1"},
	{"a refusal", false, 10, allow, int64(0), "0 6 1"},
	{"a take of a window", true, 4, func(ctx context.Context, _ *Store, _, w *limiter.Limiter, key string) (any, error) {
		return left(w.Allow(ctx, key))
	}, int64(5), "6 5 1"},
	{"a charge", true, 4, func(ctx context.Context, _ *Store, b, _ *limiter.Limiter, key string) (any, error) {
		return left(b.Charge(ctx, key, 3))
	}, int64(3), "3 6 1"},
	{"a look", false, 4, func(ctx context.Context, _ *Store, b, _ *limiter.Limiter, key string) (any, error) {
		return left(b.Peek(ctx, key))
	}, int64(6), "6 6 1"},
	{"takes of both", false, 4, func(ctx context.Context, _ *Store, b, w *limiter.Limiter, key string) (any, error) {
		all, err := limiter.AllowAll(ctx, limiter.Claim{Limiter: b, Key: key}, limiter.Claim{Limiter: w, Key: key})
		return all.Allowed, err
	}, true, "5 5 1"},
	{"a check", false, 4, func(ctx context.Context, s *Store, _, _ *limiter.Limiter, _ string) (any, error) {
		return nil, s.Check(ctx)
	}, nil, "6 6 1"},
	{"overrides", false, 4, func(ctx context.Context, s *Store, _, _ *limiter.Limiter, _ string) (any, error) {
		list, err := s.Overrides(ctx, "b", 9)
		var all string
		for _, o := range list {
			all += fmt.Sprintf("%s: %v, %q, %s; ", o.Key, o.Policy, o.Note, o.ExpiresAt.UTC().Format(time.DateOnly))
		}
		return all, err
	}, `one: 2 per 1h0m0s, burst 5, "a note", 2100-01-01; two: 3 per 1h0m0s, burst 5, "", 0001-01-01; `, "6 6 1"},
	{"a sweep", false, 4, func(ctx context.Context, s *Store, _, _ *limiter.Limiter, _ string) (any, error) {
		removed, err := s.Sweep(ctx, 99)
		return removed > 0, err // also rows of keys that were reset
	}, true, "6 6 0"},
}

// TestEachCallFails lets the calls to the driver fail, one at a time. The answer of an operation must say what is in
// the database then, and the next operations must succeed.
func TestEachCallFails(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{false, true} {
		for _, own := range []bool{false, true} {
			t.Run(fmt.Sprintf("a failed commit counts %v, in the pool of the Store %v", commit, own), func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "app.db")
				clean := open(t, path)
				testenv.Must(t, migrations.Up(t.Context(), migrations.SQLite, clean.DB()))
				testenv.Must(t, testenv.ErrorOf(clean.DB().ExecContext(t.Context(), `INSERT INTO limiter_overrides VALUES
					('b', CAST('one' AS BLOB), 'bucket', 5, 2, 3600000000000, 'a note', 4102444800000000000),
					('b', CAST('two' AS BLOB), 'bucket', 5, 3, 3600000000000, NULL, NULL)`)))
				f := &faults{commit: commit}
				store := open(t, path)
				if !own {
					db := sql.OpenDB(connector(func(ctx context.Context) (driver.Conn, error) {
						conn, err := clean.watched().connect(ctx, sharedParams)
						return faultyConn{conn, f}, err
					}))
					t.Cleanup(func() { db.Close() })
					var err error
					store, err = New(db)
					testenv.Must(t, err)
				}
				for _, o := range operations {
					t.Run(o.name, func(t *testing.T) {
						n := 1
						for o.fails(t, store, clean, f, n) {
							n++
						}
						if n < 3 {
							t.Errorf("%d calls, want more", n-1)
						}
					})
				}
			})
		}
	}
}

func open(t *testing.T, path string) *Store {
	s, err := Open(path)
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Must(t, s.Close()) })
	return s
}

// fails carries out o while the nth call fails, and reports whether there were so many.
func (o *operation) fails(t *testing.T, store, clean *Store, f *faults, n int) bool {
	t.Helper()
	bucket := limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: 1000 * time.Hour}
	window := limiter.FixedWindow{Limit: 10, Window: 1000 * time.Hour}
	on := func(s *Store, name string, p limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
		l, err := limiter.New(s, name, p, opts...)
		testenv.Must(t, err)
		return l
	}
	const key, other = "key", "other"
	for _, l := range []*limiter.Limiter{on(clean, "b", bucket), on(clean, "w", window)} {
		testenv.Must(t, errors.Join(l.Reset(t.Context(), key), l.Reset(t.Context(), other)))
	}
	testenv.Must(t, testenv.ErrorOf(on(clean, "b", bucket).AllowN(t.Context(), key, o.used)))
	testenv.Must(t, testenv.ErrorOf(on(clean, "w", window).AllowN(t.Context(), key, 4)))
	long := limiter.WithClock(func() time.Time { return time.Unix(1e9, 0) })
	testenv.Must(t, testenv.ErrorOf(on(clean, "old", window, long).Allow(t.Context(), "key")))
	state := func() string {
		var old int
		row := clean.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM limiter_fixed_windows WHERE limiter = 'old'")
		testenv.Must(t, row.Scan(&old))
		b, err := on(clean, "b", bucket).Peek(t.Context(), key)
		testenv.Must(t, err)
		w, err := on(clean, "w", window).Peek(t.Context(), key)
		testenv.Must(t, err)
		return fmt.Sprint(b.Remaining, w.Remaining, old)
	}
	before, stop := state(), make(chan struct{})

	// A connection of each pool is open then. Nothing is prepared.
	for _, l := range []*limiter.Limiter{on(store, "b", bucket), on(store, "w", window)} {
		testenv.Must(t, testenv.ErrorOf(l.Peek(t.Context(), other)))
		testenv.Must(t, testenv.ErrorOf(l.Allow(t.Context(), other)))
	}
	for _, p := range []pool{store.reader, store.writer} {
		if p, ok := p.(*rawPool); ok {
			for _, c := range p.idle {
				if faulty, ok := c.conn.(faultyConn); ok {
					c.conn = faulty.Conn
				}
				c.conn, c.prepared = faultyConn{c.conn, f}, map[statement]driver.Stmt{}
			}
		}
	}
	if store.file == nil {
		var err error
		store, err = New(store.DB())
		testenv.Must(t, err)
	}
	if o.queued {
		testenv.Equal(t, store.tryStartWriting(), true, "it can begin to write")
		go func() {
			for store.waiting.Load() == 0 {
				select {
				case <-stop:
				case <-time.After(time.Microsecond):
					continue
				}
				break
			}
			store.stopWriting()
		}()
	}
	f.left = n
	answer, err := o.do(t.Context(), store, on(store, "b", bucket), on(store, "w", window), key)
	failed := f.left <= 0
	f.left = 0
	close(stop)
	switch now := state(); {
	case err == nil:
		testenv.Equal(t, answer, o.want, "call", n, "the answer")
		testenv.Equal(t, now, o.after, "call", n, "what is left")
	case !failed:
		t.Errorf("after %d calls: %v, want no error", n, err)
	case errors.Is(err, limiter.ErrNotApplied) && o.name != "a sweep": // it tells how far it came
		testenv.Equal(t, now, before, "call", n, "what is left after", err)
	case !errors.Is(err, errCall) || now != before && now != o.after:
		t.Errorf("call %d: what is left is %s, %v; want %s or %s", n, now, err, before, o.after)
	}
	return failed
}
