package postgres

import (
	"context"
	"fmt"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// Do implements [limiter.Store].
func (s *Store) Do(ctx context.Context, op limiter.Op) (state limiter.State, err error) {
	if err = op.Check(); err == nil {
		state, err = s.do(ctx, s.tableOf(op.Policy), &op)
	}
	if err != nil {
		return limiter.State{}, fmt.Errorf("postgres: %w", err)
	}
	return state, nil
}

// do carries out op: on a pool through the queue of its key, on the caller's connection at once. There it keeps no
// time limit, because one that cuts off a statement breaks the connection.
func (s *Store) do(ctx context.Context, t *table, op *limiter.Op) (limiter.State, error) {
	if s.db != nil {
		return s.doNow(ctx, t, op)
	}
	return guard(ctx, s, func(ctx context.Context) (limiter.State, error) {
		if op.Timeout <= 0 { // nothing would end a statement of the queue after the caller has left
			return s.doNow(ctx, t, op)
		}
		st, state, err := t.queue.Enter(ctx, op)
		if st == nil {
			return state, err
		}
		return st.End(s.send(ctx, t, st))
	}, op)
}

// guard calls carryOut for ops, the operations of one request on a pool. It keeps their time limit, and calls
// nothing while the breaker is open. It retries by [retry], except a refund or cancel.
func guard[T any](ctx context.Context, s *Store, carryOut func(context.Context) (T, error), ops ...*limiter.Op) (out T, err error) {
	pass, err := s.breaker.Enter(ctx, ops...)
	if err != nil {
		return out, err
	}
	limited := s.deadlines.WithTimeout(ctx, ops[0].Timeout)
	defer opcontext.Stop(limited)
	out, err = carryOut(limited)
	if kind := ops[0].Kind; kind != limiter.OpRefund && kind != limiter.OpCancel { // two refunds would let too much in
		out, err = retry(limited, &s.retries, out, err, carryOut)
	}
	if err == nil || !batch.FailedFast(err) {
		pass.Leave(err, ops...)
	}
	return out, err
}

// doNow carries out op outside of the queue.
func (s *Store) doNow(ctx context.Context, t *table, op *limiter.Op) (limiter.State, error) {
	c := batch.NewCall(*op)
	g := &batch.Group{Calls: []*batch.Call{c}}
	err := s.run(ctx, op.Kind != limiter.OpLook, func(db DB) error {
		s.counters.Sent(1, 1)
		return s.carryOut(ctx, db, t, g)
	})
	if err != nil {
		return limiter.State{}, err
	}
	return c.State(), nil
}
