package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/sqlimit/limiter"
)

// DoAll implements [limiter.AllStore].
func (s *Store) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	if err := limiter.CheckOps(ops); err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	all := make([]*limiter.Op, len(ops))
	for i := range ops {
		all[i] = &ops[i]
	}
	pass, err := s.breaker.Enter(ctx, all...)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	j := joint{Store: s, ops: ops}
	err = j.do(ctx)
	pass.Leave(err, &ops[j.at])
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	return j.states, nil
}

// joint is a decision over several rows.
type joint struct {
	*Store
	ops    []limiter.Op
	tables []*table // of ops
	rows   []limiter.Row
	next   []limiter.Row // the rows after the decision
	states []limiter.State
	at     int // of the operation whose statement was sent last
}

// do decides in the cheapest way that is possible at the moment, as [Store.do] does. It waits in the
// line of those who write, and shares no transaction.
func (j *joint) do(ctx context.Context) error {
	j.tables, j.rows = make([]*table, len(j.ops)), make([]limiter.Row, len(j.ops))
	for i := range j.ops {
		j.tables[i] = tableOf(j.ops[i].Policy)
	}
	reader, writer, err := j.pools()
	if err != nil {
		return err
	}
	if writer.reads() {
		done, err := j.attemptAlone(ctx, len(j.ops), func(ctx context.Context) error { return j.transact(ctx, writer, false) })
		if done {
			return err
		}
	}
	ctx, stop := j.deadlines.WithTimeout(ctx, j.ops[0].Timeout)
	defer stop()
	if err := attempt(ctx, func(ctx context.Context) error { return j.peek(ctx, reader) }); err != nil || !j.writes() {
		j.counters.Sent(len(j.ops), len(j.ops))
		return err
	}
	if err := j.startWritingFor(ctx, len(j.ops)); err != nil {
		return err
	}
	defer j.stopWriting()
	j.counters.Sent(len(j.ops), len(j.ops))
	return attemptWrite(ctx, writer, func(ctx context.Context) error { return j.transact(ctx, writer, true) })
}

// writes reports whether the decision changes a row. If it does, a snapshot must not decide.
func (j *joint) writes() bool { return !slices.Equal(j.rows, j.next) }

// peek decides on a snapshot of all rows.
func (j *joint) peek(ctx context.Context, reader pool) error {
	tx, err := reader.snapshot(ctx)
	if err != nil {
		return err
	}
	defer tx.rollback()
	return j.decide(ctx, tx)
}

// transact decides in a transaction of its own, and writes the rows that changed.
func (j *joint) transact(ctx context.Context, writer pool, locked bool) error {
	tx, err := writer.begin(ctx, locked)
	if err != nil {
		return err
	}
	defer tx.rollback()
	if err := j.decide(ctx, tx); err != nil {
		return err
	}
	for i := range j.ops {
		if j.next[i] == j.rows[i] {
			continue
		}
		j.at = i
		if err := put(ctx, tx, j.tables[i], &j.next[i], keyArgs(&j.ops[i])); err != nil {
			return err
		}
	}
	return j.commit(ctx, tx)
}

// decide reads all rows and then the clock, for the reason that [Store.read] gives, and decides.
func (j *joint) decide(ctx context.Context, tx transaction) (err error) {
	for i := range j.ops {
		j.at = i
		if j.rows[i], err = readRow(ctx, tx, j.tables[i], keyArgs(&j.ops[i])); err != nil {
			return err
		}
	}
	now, err := j.ops[0].Clock(j.now)
	if err != nil {
		return err
	}
	j.next, j.states = limiter.ApplyAll(j.ops, j.rows, now)
	for i := range j.states {
		j.states[i].Tick = tick
	}
	return nil
}
