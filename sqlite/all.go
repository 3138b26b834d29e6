package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
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
	d := allDecision{Store: s, ops: ops}
	err = d.do(ctx)
	pass.Leave(err, &ops[d.at])
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	return d.states, nil
}

// allDecision is a decision over several rows.
type allDecision struct {
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
func (d *allDecision) do(ctx context.Context) error {
	d.tables, d.rows = make([]*table, len(d.ops)), make([]limiter.Row, len(d.ops))
	for i := range d.ops {
		d.tables[i] = tableOf(d.ops[i].Policy)
	}
	reader, writer, err := d.pools()
	if err != nil {
		return err
	}
	if writer.reads() {
		done, err := d.attemptAlone(ctx, len(d.ops), func(ctx context.Context) error { return d.transact(ctx, writer, false) })
		if done {
			return err
		}
	}
	ctx = d.deadlines.WithTimeout(ctx, d.ops[0].Timeout)
	defer opcontext.Stop(ctx)
	if err := attempt(ctx, func(ctx context.Context) error { return d.peek(ctx, reader) }); err != nil || !d.writes() {
		d.counters.Sent(len(d.ops), len(d.ops))
		return err
	}
	if err := d.startWritingFor(ctx, len(d.ops)); err != nil {
		return err
	}
	defer d.stopWriting()
	d.counters.Sent(len(d.ops), len(d.ops))
	return attemptWrite(ctx, writer, func(ctx context.Context) error { return d.transact(ctx, writer, true) })
}

// writes reports whether the decision changes a row. If it does, a snapshot must not decide.
func (d *allDecision) writes() bool { return !slices.Equal(d.rows, d.next) }

// peek decides on a snapshot of all rows.
func (d *allDecision) peek(ctx context.Context, reader pool) error {
	tx, err := reader.snapshot(ctx)
	if err != nil {
		return err
	}
	defer tx.rollback()
	return d.decide(ctx, tx)
}

// transact decides in a transaction of its own, and writes the rows that changed.
func (d *allDecision) transact(ctx context.Context, writer pool, locked bool) error {
	tx, err := writer.begin(ctx, locked)
	if err != nil {
		return err
	}
	defer tx.rollback()
	if err := d.decide(ctx, tx); err != nil {
		return err
	}
	for i := range d.ops {
		if d.next[i] == d.rows[i] {
			continue
		}
		d.at = i
		if err := put(ctx, tx, d.tables[i], &d.next[i], keyArgs(&d.ops[i])); err != nil {
			return err
		}
	}
	return d.commit(ctx, tx)
}

// decide reads all rows and then the clock, for the reason that [Store.read] gives, and decides.
func (d *allDecision) decide(ctx context.Context, tx transaction) (err error) {
	for i := range d.ops {
		d.at = i
		if d.rows[i], err = readRow(ctx, tx, d.tables[i], keyArgs(&d.ops[i])); err != nil {
			return err
		}
	}
	now, err := d.ops[0].Clock(d.now)
	if err != nil {
		return err
	}
	d.next, d.states = limiter.ApplyAll(d.ops, d.rows, now)
	for i := range d.states {
		d.states[i].Tick = tick
	}
	return nil
}
