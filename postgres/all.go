package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// allStatements is how many decisions over several limits are in flight at a time.
const allStatements = singleStatements

// DoAll implements [limiter.AllStore]. One statement decides, or two if rows are missing. See
// DESIGN.md, "AllowAll waits for a lock only while it holds none".
func (s *Store) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	tables, err := s.tablesOf(ops)
	var states []limiter.State
	if err == nil {
		states, err = s.doAll(ctx, tables, ops)
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return states, nil
}

// tablesOf returns the tables of takes, or the error of [limiter.CheckOps].
func (s *Store) tablesOf(ops []limiter.Op) ([]*table, error) {
	if err := limiter.CheckOps(ops); err != nil {
		return nil, err
	}
	tables := make([]*table, len(ops))
	for i := range ops {
		tables[i] = s.tableOf(ops[i].Policy)
	}
	return tables, nil
}

// doAll is [Store.do] of several takes.
func (s *Store) doAll(ctx context.Context, tables []*table, ops []limiter.Op) (states []limiter.State, err error) {
	if s.db != nil {
		return s.doAllNow(ctx, tables, ops)
	}
	all := make([]*limiter.Op, len(ops))
	for i := range ops {
		all[i] = &ops[i]
	}
	pass, err := s.breaker.Enter(ctx, all...)
	if err != nil {
		return nil, err
	}
	limited, stop := s.deadlines.WithTimeout(ctx, ops[0].Timeout)
	defer stop()
	_, err = s.retries.do(limited, func(ctx context.Context) (_ limiter.State, err error) {
		if ops[0].Timeout <= 0 { // as in do
			states, err = s.doAllNow(ctx, tables, ops)
		} else {
			states, err = s.doAllInTurn(ctx, tables, ops)
		}
		return limiter.State{}, err
	})
	if !batch.NotAsked(err) {
		pass.Leave(err, all...)
	}
	return states, err
}

// doAllNow carries out ops without a queue.
func (s *Store) doAllNow(ctx context.Context, tables []*table, ops []limiter.Op) (states []limiter.State, err error) {
	for first := 0; ; {
		locked := noneLocked
		err = s.run(ctx, write, func(db DB) error {
			states, locked, err = s.carryOutAll(ctx, db, tables, ops, first)
			return err
		})
		if err != nil || locked == noneLocked {
			return states, err
		}
		first = locked // the statement waits for its first row
	}
}

const (
	// allTries is how often doAllInTurn begins anew because another session has locked a row.
	allTries = 20
	// leastTry is the least lock wait for which it does so.
	leastTry = 4 * time.Millisecond
	// longLock is the shortest wait for a row that counts as a failure of the store.
	longLock = 100 * time.Millisecond
)

var errRowsBusy = fmt.Errorf("%w: %w: other processes kept locking the rows", limiter.ErrNotApplied, limiter.ErrKeyBusy)

// doAllInTurn carries out ops in the caller's goroutine when no other operation of this process on
// one of their keys is in flight, and fewer than [allStatements] others like it. If another session
// has locked a row, doAllInTurn releases the keys, waits for that row alone, and begins anew. If many
// short locks use up its time, the store is not at fault, and the error is errRowsBusy.
func (s *Store) doAllInTurn(ctx context.Context, tables []*table, ops []limiter.Op) ([]limiter.State, error) {
	first, waited := 0, false
	for n := range allTries {
		if left, ok := opcontext.LockWait(ctx); n > 0 && ok && left < leastTry {
			break
		}
		states, locked, served, err := s.tryAll(ctx, tables, ops, first, n == 0)
		if locked == noneLocked || err != nil {
			return states, err
		}
		began := time.Now()
		waited = waited || served || n > 0
		if err := tables[locked].queue.Lock(ctx, &ops[locked]); isLocked(err) && waited && time.Since(began) < longLock {
			break
		} else if err != nil {
			return nil, err
		}
		first = locked
	}
	return nil, errRowsBusy
}

// tryAll holds the keys and sends the statement, which locks the row first before the others. It
// returns the row that another session has locked, if there is one. waited reports whether the store
// answered others while tryAll waited: then the store is not at fault if the time ends. With renew, the
// operation then gets its full time again.
func (s *Store) tryAll(ctx context.Context, tables []*table, ops []limiter.Op, first int, renew bool) (states []limiter.State, locked int, waited bool, err error) {
	held, leave, answered := 0, func(bool) {}, false
	defer func() {
		leave(answered)
		for i := range held {
			tables[i].queue.Release(&ops[i], answered)
		}
	}()
	s.counters.Queued.Add(int64(len(ops)))
	conn, err := func() (*pgxpool.Conn, error) {
		defer s.counters.Queued.Add(-int64(len(ops)))
		for i, t := range tables {
			served, err := t.queue.Hold(ctx, &ops[i])
			if err != nil {
				locked = i
				return nil, err
			}
			held++
			if waited = waited || served; served && s.boundsWaits {
				first = i // other processes probably wait for this row as well
			}
		}
		served, end, err := s.turns.enter(ctx)
		waited = waited || served
		if err != nil {
			return nil, err
		}
		leave = end
		conn, err := s.acquire(ctx)
		if err == nil && (ctx.Err() != nil || opcontext.EndedByCaller(ctx) != nil) {
			s.release(conn)
			err = opcontext.Interrupted(ctx, limiter.ErrNotApplied, nil)
		}
		return conn, err
	}()
	switch {
	case errors.Is(err, batch.ErrRowLocked):
		return nil, locked, waited, nil
	case err != nil && waited && ctx.Err() != nil:
		return nil, noneLocked, waited, batch.Unsent(ctx, true)
	case err != nil:
		return nil, noneLocked, waited, err
	}
	defer s.release(conn)
	opcontext.Connected(ctx, fresh(conn))
	if waited && renew {
		opcontext.Renew(ctx)
	}
	opcontext.DelayCancel(ctx)
	opcontext.BoundLockWait(ctx, lockWait)
	locked = noneLocked
	err = s.runOn(ctx, conn, write, func(db DB) error {
		states, locked, err = s.carryOutAll(ctx, db, tables, ops, first)
		return err
	})
	answered = err == nil
	if isLocked(err) {
		return nil, first, waited, nil
	}
	return states, locked, waited, err
}

// carryOutAll carries out ops on db by one statement, which is sent twice if rows are missing.
// [Store.settleAll] decides what the statement does not. On a pool, nothing is carried out if another
// session has locked a row, which carryOutAll returns.
func (s *Store) carryOutAll(ctx context.Context, db DB, tables []*table, ops []limiter.Op, first int) (states []limiter.State, locked int, err error) {
	missing := false
	s.counters.Sent(len(ops), len(ops))
	text, one := s.allStatement(tables, first)
	for n := 0; one && n < 2; n++ {
		r, states, decided, err := s.takeAll(ctx, db, text, tables, ops, first)
		if err != nil || decided || r.locked != noneLocked {
			return states, r.locked, err
		}
		if n == 0 {
			s.counters.SecondLooks.Add(int64(len(ops)))
		}
		if missing = r.missing; !r.added {
			break
		}
	}
	return s.settleAll(ctx, db, tables, ops, first, missing)
}

// turns lets a limited number of goroutines pass at a time.
type turns struct {
	free     chan struct{}
	answered atomic.Uint64
}

func newTurns(n int) *turns {
	free := make(chan struct{}, n)
	for range n {
		free <- struct{}{}
	}
	return &turns{free: free}
}

// enter waits until fewer than the limit are in flight. It reports whether the store answered others
// while it waited. The caller must call leave, with whether the store answered.
func (t *turns) enter(ctx context.Context) (served bool, leave func(answered bool), err error) {
	before := t.answered.Load()
	ended := opcontext.Await(ctx, t.free)
	served = t.answered.Load() != before
	if ended {
		return served, nil, batch.Unsent(ctx, served)
	}
	return served, func(answered bool) {
		if answered {
			t.answered.Add(1)
		}
		t.free <- struct{}{}
	}, nil
}

// changed reports whether a row has another value.
func changed(rows, next []limiter.Row) bool { return !slices.Equal(rows, next) }
