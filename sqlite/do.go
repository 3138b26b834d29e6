package sqlite

import (
	"context"
	"fmt"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/sqlitecode"
)

// Do implements [limiter.Store].
func (s *Store) Do(ctx context.Context, op limiter.Op) (state limiter.State, err error) {
	if err = op.Check(); err == nil {
		state, err = s.guard(ctx, op)
	}
	if err != nil {
		return limiter.State{}, fmt.Errorf("sqlite: %w", err)
	}
	return state, nil
}

// guard carries out op unless the breaker is open.
func (s *Store) guard(ctx context.Context, op limiter.Op) (limiter.State, error) {
	pass, err := s.breaker.Enter(ctx, &op)
	if err != nil {
		return limiter.State{}, err
	}
	state, err := s.do(ctx, op)
	pass.Leave(err, &op)
	return state, err
}

// do carries out op in the cheapest way that is possible at the moment.
func (s *Store) do(ctx context.Context, op limiter.Op) (state limiter.State, err error) {
	t := tableOf(op.Policy)
	reader, writer, err := s.pools()
	if err != nil {
		return limiter.State{}, err
	}
	transact := func(ctx context.Context) (err error) {
		state, err = s.carryOutAlone(ctx, writer, t, op)
		return err
	}
	if op.Kind != limiter.OpLook && writer.reads() {
		if done, err := s.attemptAlone(ctx, 1, transact); done {
			return state, err
		}
	}
	ctx = s.deadlines.WithTimeout(ctx, op.Timeout)
	defer opcontext.Stop(ctx)
	if op.Kind == limiter.OpLook || refusable(&op) {
		found, writes, err := s.peek(ctx, reader, t, op)
		if err == nil && writes && op.Kind == limiter.OpLook { // it writes if that waits for nobody
			if done, err := s.attemptAlone(ctx, 1, transact); done {
				return state, err
			}
		}
		if err != nil || !writes || op.Kind == limiter.OpLook {
			s.counters.Sent(1, 1)
			return found, err
		}
	}
	if !s.tryStartWriting() {
		if op.Timeout > 0 {
			return s.doQueued(ctx, op)
		}
		if err := s.startWritingFor(ctx, 1); err != nil {
			return limiter.State{}, err
		}
	}
	defer s.stopWriting()
	s.counters.Sent(1, 1)
	err = attemptWrite(ctx, writer, transact)
	return state, err
}

// doQueued carries out op in a transaction together with others.
func (s *Store) doQueued(ctx context.Context, op limiter.Op) (limiter.State, error) {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	st, state, err := s.queue.Enter(ctx, &op)
	if st == nil {
		return state, err
	}
	return st.End(s.send(ctx, st))
}

// attemptAlone calls transact, which makes a transaction for so many rows, if nobody else writes or
// waits to write. It needs no time limit, because it waits for nothing. It needs no look first,
// because the transaction takes the write lock only if it is not refused.
func (s *Store) attemptAlone(ctx context.Context, rows int, transact func(context.Context) error) (done bool, err error) {
	if !s.tryStartWriting() {
		return false, nil
	}
	defer s.stopWriting()
	if ctx.Err() != nil {
		return true, opcontext.Interrupted(ctx, limiter.ErrNotApplied, nil)
	}
	err = transact(ctx)
	if sqlitecode.IsBusy(err) || isFull(err) {
		return false, nil
	}
	s.counters.Sent(rows, rows)
	return true, interpretError(ctx, err, false)
}

// carryOutAlone carries out op in a transaction of its own. It reads first, so that an operation that
// changes nothing, such as a refused take, needs no write lock.
func (s *Store) carryOutAlone(ctx context.Context, writer pool, t *table, op limiter.Op) (limiter.State, error) {
	tx, err := writer.begin(ctx, false)
	if err != nil {
		return limiter.State{}, err
	}
	defer tx.rollback()
	key := keyArgs(&op)
	row, now, err := s.read(ctx, tx, t, &op, key)
	if err != nil {
		return limiter.State{}, err
	}
	next, state := op.Apply(row, now)
	if next != row {
		granted, err := takeOne(ctx, tx, t, &op, now, key)
		if err == nil && !granted {
			if op.Kind == limiter.OpTake && t.take != nil {
				s.counters.SecondLooks.Add(1)
			}
			err = put(ctx, tx, t, &next, key)
		}
		if err != nil {
			return limiter.State{}, err
		}
	}
	return stateOf(op, state), s.commit(ctx, tx)
}

// refusable reports whether op is a take that is refused without the write lock.
func refusable(op *limiter.Op) bool {
	return batch.Refusable(op) && !op.CountsRefusals()
}

// peek computes on a snapshot what op would do, and reports whether it would write. If so, the
// snapshot must not decide: op is a take that would be granted, or a refusal on a row that a
// stepped-back clock or another policy left.
func (s *Store) peek(ctx context.Context, reader pool, t *table, op limiter.Op) (state limiter.State, writes bool, err error) {
	err = attempt(ctx, func(ctx context.Context) error {
		row, now, err := s.read(ctx, reader, t, &op, keyArgs(&op))
		if err != nil {
			return err
		}
		var next limiter.Row
		next, state = op.Apply(row, now)
		state.Tick, writes = tick, state.Took || next != row
		return nil
	})
	if err != nil {
		return limiter.State{}, false, err
	}
	return state, writes, nil
}
