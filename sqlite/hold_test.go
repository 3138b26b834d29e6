package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore/rowtest"
	"github.com/sqlimit/limiter/sqlite"
)

// Hold is where a take ends that has lost two races. Here every take does.

// holding is a Store whose takes are all decided while the row is held.
type holding struct{ *sqlite.Store }

func (h holding) Do(ctx context.Context, op limiter.Op) (s limiter.State, err error) {
	if op.Kind != limiter.OpTake {
		return h.Store.Do(ctx, op)
	}
	err = h.Hold(ctx, op, func(take func() (limiter.State, error)) error {
		s, err = take()
		return err
	})
	return s, err
}

// eachPool runs f on Stores on one file, by pools of their own.
func eachPool(t *testing.T, f func(t *testing.T, open func() *sqlite.Store)) {
	t.Helper()
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "held.db")
		f(t, func() *sqlite.Store { return openPath(t, path) })
	})
	// Transactions begin without a lock here, and without WAL.
	t.Run("deferred transactions", func(t *testing.T) {
		t.Parallel()
		dsn := "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "held.db")) + "?_busy_timeout=0&_synchronous=OFF"
		f(t, func() *sqlite.Store {
			db, err := sql.Open("sqlite", dsn)
			if err != nil {
				t.Fatal(err)
			}
			db.SetMaxIdleConns(4)
			t.Cleanup(func() { db.Close() })
			return newStore(t, db)
		})
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		store := openPath(t, ":memory:")
		f(t, func() *sqlite.Store { return store })
	})
}

func TestHeldOperationsOnAnyRow(t *testing.T) {
	t.Parallel()
	eachPool(t, func(t *testing.T, open func() *sqlite.Store) {
		store := open()
		rowtest.Run(t, holding{store}, rows{store}, 150)
		checkTypes(t, store)
	})
}

var held = map[string]limiter.Policy{
	"bucket":  limiter.TokenBucket{Capacity: 50, Refill: 1, Interval: 24 * time.Hour},
	"window":  limiter.FixedWindow{Limit: 50, Window: 24 * time.Hour},
	"counted": limiter.FixedWindow{Limit: 50, Window: 24 * time.Hour, CountRejected: true},
}

// A take of each holder reads the row and writes it in two statements: between two of them no other
// may come, on a row that is there or not.
func TestHoldersExcludeEachOther(t *testing.T) {
	t.Parallel()
	eachPool(t, func(t *testing.T, open func() *sqlite.Store) {
		stores := []*sqlite.Store{open(), open()}
		for name, policy := range held {
			op := limiter.Op{Kind: limiter.OpTake, Name: name, Key: "key", Policy: policy, Cost: 1, At: t0.UnixNano()}
			for _, row := range []string{"absent", "present"} {
				err := stores[0].Hold(t.Context(), op, func(take func() (limiter.State, error)) error {
					// What comes now waits until its context ends, and did nothing then.
					short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					defer cancel()
					err := stores[1].Hold(short, op, func(func() (limiter.State, error)) error {
						t.Errorf("%s: two hold a row that is %s", name, row)
						return nil
					})
					if !errors.Is(err, limiter.ErrCanceled) || errors.Is(err, limiter.ErrOutcomeUnknown) {
						t.Errorf("%s: the second holder: %v, want ErrCanceled, and its outcome known", name, err)
					}
					if s, err := take(); err != nil || !s.Took {
						t.Errorf("%s: take = %+v, %v; want it granted", name, s, err)
					}
					return nil
				})
				if err != nil {
					t.Errorf("%s: Hold of a row that is %s: %v", name, row, err)
				}
			}
		}
	})
}

func TestHeldTakesAdmitExactly(t *testing.T) {
	t.Parallel()
	eachPool(t, func(t *testing.T, open func() *sqlite.Store) {
		stores := []limiter.Store{holding{open()}, open()} // holders beside the hot statement
		for name, policy := range held {
			var mu sync.Mutex
			var wg sync.WaitGroup
			admitted := 0
			for w := range 16 {
				l := newLimiter(t, stores[w%2], name, policy, at(t0))
				wg.Go(func() {
					for range 5 {
						r, err := l.Allow(t.Context(), "key")
						if err != nil {
							t.Errorf("%s: %v", name, err)
							return
						}
						if r.Allowed {
							mu.Lock()
							admitted++
							mu.Unlock()
						}
					}
				})
			}
			wg.Wait()
			if admitted != 50 {
				t.Errorf("%s: admitted %d of 80, want 50", name, admitted)
			}
		}
	})
}

// What failed while the row was held leaves it as it was, and free.
func TestAHoldThatFailsLeavesNoTrace(t *testing.T) {
	t.Parallel()
	eachPool(t, func(t *testing.T, open func() *sqlite.Store) {
		store := open()
		for name, policy := range held {
			op := limiter.Op{Kind: limiter.OpTake, Name: name, Key: "key", Policy: policy, Cost: 1, At: t0.UnixNano()}
			failed := errors.New("failed")
			err := store.Hold(t.Context(), op, func(take func() (limiter.State, error)) error {
				if s, err := take(); err != nil || !s.Took {
					t.Errorf("%s: take = %+v, %v; want it granted", name, s, err)
				}
				return failed
			})
			if !errors.Is(err, failed) {
				t.Errorf("%s: Hold: %v, want the error of what it called", name, err)
			}
			if row := read(t, store, op); row != (limiter.Row{}) {
				t.Errorf("%s: the row is %+v, want none", name, row)
			}
			if s, err := store.Do(t.Context(), op); err != nil || !s.Took {
				t.Errorf("%s: take = %+v, %v; want it granted", name, s, err)
			}
		}
	})
}
