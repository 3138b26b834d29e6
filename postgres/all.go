package postgres

import (
	"context"
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
// DESIGN.md, "AllowAll locks all rows in one order".
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

// tablesOf returns the tables of takes. It returns an error for operations that DoAll does not know.
func (s *Store) tablesOf(ops []limiter.Op) ([]*table, error) {
	if len(ops) == 0 {
		return nil, fmt.Errorf("%w: no operation", limiter.ErrInvalid)
	}
	tables := make([]*table, len(ops))
	for i := range ops {
		var err error
		if tables[i], err = s.tableOf(ops[i].Policy); err != nil {
			return nil, err
		}
		if w, ok := ops[i].Policy.(limiter.FixedWindow); ops[i].Kind != limiter.OpTake || ops[i].MaxWait != 0 || ok && w.CountRejected {
			return nil, unsupported("operation %d of several", ops[i].Kind)
		}
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
	pass, err := s.breaker.Enter(all...)
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
	pass.Leave(err, all...)
	return states, err
}

// doAllNow carries out ops without a queue.
func (s *Store) doAllNow(ctx context.Context, tables []*table, ops []limiter.Op) (states []limiter.State, err error) {
	err = s.run(ctx, write, func(db DB) error {
		states, err = s.carryOutAll(ctx, db, tables, ops)
		return err
	})
	return states, err
}

// doAllInTurn carries out ops in the caller's goroutine when no other operation of this process on
// one of their keys is in flight, and fewer than [allStatements] others like it.
func (s *Store) doAllInTurn(ctx context.Context, tables []*table, ops []limiter.Op) (states []limiter.State, err error) {
	held, leave, answered := 0, func(bool) {}, false
	defer func() {
		leave(answered)
		for i := range held {
			tables[i].queue.Release(&ops[i], answered)
		}
	}()
	conn, waited, err := s.awaitTurn(ctx, tables, ops, &held, &leave)
	if err != nil {
		return nil, err
	}
	defer s.release(conn)
	states, err = s.sendAll(ctx, conn, waited, tables, ops)
	answered = err == nil
	return states, err
}

// awaitTurn waits for the keys in the order of ops, so that no two wait for each other, then for one
// of the turns, and then for a connection. It sets how many keys are held, and what ends the turn. It
// reports whether the store answered others meanwhile: if so, it is not at fault if the time ends.
func (s *Store) awaitTurn(ctx context.Context, tables []*table, ops []limiter.Op, held *int, leave *func(bool)) (conn *pgxpool.Conn, waited bool, err error) {
	s.counters.Queued.Add(int64(len(ops)))
	defer s.counters.Queued.Add(-int64(len(ops)))
	defer func() {
		if err != nil && waited && ctx.Err() != nil {
			err = batch.Unsent(ctx, true)
		}
	}()
	for i, t := range tables {
		served, err := t.queue.Hold(ctx, &ops[i])
		if err != nil {
			return nil, waited, err
		}
		*held, waited = i+1, waited || served
	}
	served, end, err := s.turns.enter(ctx)
	waited = waited || served
	if err != nil {
		return nil, waited, err
	}
	*leave = end
	conn, err = s.acquire(ctx)
	return conn, waited, err
}

// sendAll carries out ops on a connection of the pool. If their caller waited while the store
// answered others, their time starts again.
func (s *Store) sendAll(ctx context.Context, conn *pgxpool.Conn, waited bool, tables []*table, ops []limiter.Op) (states []limiter.State, err error) {
	isFresh := fresh(conn)
	if ctx.Err() != nil || opcontext.EndedByCaller(ctx) != nil {
		return nil, opcontext.Interrupted(ctx, limiter.ErrNotApplied, nil)
	}
	if waited {
		opcontext.Renew(ctx)
	} else if isFresh {
		opcontext.Connected(ctx)
	}
	opcontext.DelayCancel(ctx)
	err = s.runOn(ctx, conn, write, func(db DB) error {
		states, err = s.carryOutAll(ctx, db, tables, ops)
		return err
	})
	return states, err
}

// carryOutAll carries out ops on db by one statement, which is sent twice if rows are missing.
// [Store.settleAll] decides what the statement does not.
func (s *Store) carryOutAll(ctx context.Context, db DB, tables []*table, ops []limiter.Op) ([]limiter.State, error) {
	missing := false
	s.counters.Sent(len(ops), len(ops))
	for n := range 2 {
		if s.citus {
			break
		}
		r, states, decided, err := s.takeAll(ctx, db, tables, ops)
		if err != nil || decided {
			return states, err
		}
		if n == 0 {
			s.counters.SecondLooks.Add(int64(len(ops)))
		}
		if missing = r.missing; !r.added {
			break
		}
	}
	return s.settleAll(ctx, db, tables, ops, missing)
}

// turns lets a limited number of goroutines pass at a time. One that takes longer than [lockWait] may
// wait for a row lock, and does not count any more.
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
	giveBack := func() { t.free <- struct{}{} }
	var timer *time.Timer
	if len(t.free) == 0 { // a timer for each of them would wake up a thread each time
		timer = time.AfterFunc(lockWait, giveBack)
	}
	return served, func(answered bool) {
		if answered {
			t.answered.Add(1)
		}
		if timer == nil || timer.Stop() {
			giveBack()
		}
	}, nil
}

// changed reports whether a row has another value.
func changed(rows, next []limiter.Row) bool { return !slices.Equal(rows, next) }
