package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// allDecision is a decision over several limits: takes of several rows, all or none.
type allDecision struct {
	*Store
	ops    []limiter.Op
	tables []*table // of ops
	queues []*batch.Queue

	first    int             // the row to lock first, for whose lock the statement may wait, or noRow
	queued   []int           // the rows whose keys' advisory locks it takes before that, in order
	passed   bool            // it has taken the last of these locks, or there are none
	lockable []int           // the rows that were the first and could be locked, in order
	states   []limiter.State // what was decided; nil if nothing was
	locked   int             // the row that another session has locked, or noRow
}

// noRow is the index of the first row if the statement waits for none, and of the row that another session has
// locked if there is none.
const noRow = -1

// DoAll implements [limiter.AllStore]. Usually one statement decides, or two if rows are missing. See
// DESIGN.md, "AllowAll waits for a lock only while it holds none".
func (s *Store) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	d, err := s.newAll(ops)
	if err == nil {
		err = d.do(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return d.states, nil
}

// newAll returns a decision over ops, or the error of [limiter.CheckOps].
func (s *Store) newAll(ops []limiter.Op) (*allDecision, error) {
	if err := limiter.CheckOps(ops); err != nil {
		return nil, err
	}
	d := &allDecision{Store: s, ops: ops, locked: noRow}
	calendar := false
	for i := range ops {
		t := s.tableOf(ops[i].Policy)
		d.tables, d.queues = append(d.tables, t), append(d.queues, t.queue)
		calendar = calendar || t.calendar
	}
	for i, t := range d.tables { // a statement has one UPDATE for each table
		if calendar && t.Kind == s.calendars().Kind {
			d.tables[i] = s.calendars()
		}
	}
	return d, nil
}

// do is [Store.do] of several takes.
func (d *allDecision) do(ctx context.Context) error {
	if d.db != nil {
		return d.doNow(ctx)
	}
	ops := make([]*limiter.Op, len(d.ops))
	for i := range d.ops {
		ops[i] = &d.ops[i]
	}
	_, err := guard(ctx, d.Store, func(ctx context.Context) (struct{}, error) {
		if d.ops[0].Timeout <= 0 { // as in Store.do
			return struct{}{}, d.doNow(ctx)
		}
		return struct{}{}, d.doQueued(ctx)
	}, ops...)
	return err
}

// doNow carries out the takes without a queue.
func (d *allDecision) doNow(ctx context.Context) error {
	for d.first = 0; ; d.first = d.locked { // the statement waits for its first row
		if err := d.run(ctx, write, func(db DB) error { return d.carryOut(ctx, db) }); err != nil || d.locked == noRow {
			return err
		}
	}
}

// longLock is the shortest wait, for a row or for the answer to a later try, that counts as a failure of the
// store.
const longLock = 100 * time.Millisecond

// tooLate reports whether ctx leaves less than 50 ms for another try. If the time limit ended its statement, the
// outcome would be unknown. On an overloaded row a statement may take longer than 25 ms.
func tooLate(ctx context.Context) bool {
	return opcontext.LongestLockWait(ctx) < lockWait
}

var errRowsBusy = fmt.Errorf("%w: %w: other processes kept locking the rows", limiter.ErrNotApplied, limiter.ErrKeyBusy)

// rowsBusy is errRowsBusy, or [limiter.ErrCanceled] if the caller's deadline left less than the time limit.
func rowsBusy(ctx context.Context) error { return cmp.Or(opcontext.ShortDeadline(ctx), errRowsBusy) }

// doQueued carries out the takes in the caller's goroutine when no other operation of this process on
// one of their keys is in flight. If another session has locked a row, the next try takes the advisory lock
// of that row's key, and then waits for the row. If the row stays locked, doQueued releases the keys, waits for
// that row alone, and begins anew. If many short locks use up its time, the store is not at fault, and the
// error matches [limiter.ErrKeyBusy].
func (d *allDecision) doQueued(ctx context.Context) error {
	d.first, d.queued, d.lockable = 0, nil, nil
	if d.boundsWaits {
		d.first = noRow // the first try waits for no row
	}
	busy, awaited := false, noRow
	for again := false; ; again = true {
		sent, waited, err := d.try(ctx, !again)
		if err != nil || d.locked == noRow {
			return err
		}
		busy = busy || waited || len(d.lockable) > 0 // others were answered, or their locks were short
		if sent && d.locked != d.first && !slices.Contains(d.queued, d.locked) {
			d.join()
			awaited = noRow
			continue
		}
		if d.locked == awaited { // Lock found it free, so another session may be adding the next row
			d.locked = (awaited + 1) % len(d.ops)
		}
		began := time.Now()
		awaited = d.locked
		err = d.queues[d.locked].Lock(ctx, &d.ops[d.locked])
		switch {
		case isLocked(err) && busy && time.Since(began) < longLock:
			return errRowsBusy
		case err != nil:
			return err
		}
		d.first, d.queued, busy = d.locked, []int{d.locked}, true
	}
}

// join makes the next try take the advisory lock of the skipped row's key. It takes several such locks only for
// rows that it could lock before. So no statement holds the lock of one key while it waits for a row that another
// session keeps locked.
func (d *allDecision) join() {
	if d.first != noRow && !slices.Contains(d.lockable, d.first) {
		d.lockable = append(d.lockable, d.first)
		slices.Sort(d.lockable)
	}
	if slices.Contains(d.lockable, d.locked) {
		d.queued = d.lockable
	} else {
		d.first, d.queued = d.locked, []int{d.locked}
	}
}

// keyLocks returns the statements that take the advisory locks. After them, passed reports whether the last one
// was taken. With a query mode of its own, a Store sends each statement in its own transaction, and takes none.
func (d *allDecision) keyLocks(ctx context.Context) (sts []statement) {
	if d.boundsWaits && d.mode == nil {
		for _, i := range d.queued {
			sts = append(sts, d.keyLock(ctx, d.tables[i], &d.ops[i], len(d.queued)))
		}
	}
	if d.passed = len(sts) == 0; !d.passed {
		sts[len(sts)-1].found = &d.passed
	}
	return sts
}

// try holds the keys and sends the statement; sent reports whether it did. waited is [batch.Hold.Waited].
// With renew, the operation gets its full time again if the store answered others while it waited. Without it,
// this is a later try. If less than longLock is left and the time limit cuts off its statement, the error matches
// ErrKeyBusy: others used up the time.
func (d *allDecision) try(ctx context.Context, renew bool) (sent, waited bool, err error) {
	d.locked = noRow
	ended := limiter.ErrNotApplied
	h, err := batch.HoldAll(ctx, d.queues, d.ops, renew)
	defer func() { h.End(ended) }()
	if errors.Is(err, batch.ErrRowLocked) {
		d.locked = h.Held
		return false, h.Waited(), nil
	}
	var conn *pgxpool.Conn
	if err == nil {
		conn, err = d.acquire(ctx)
	}
	if err == nil {
		defer d.release(conn)
		if !renew && tooLate(ctx) {
			err = rowsBusy(ctx)
		} else {
			err = h.Begin(ctx, fresh(conn), lockWait)
		}
	}
	if err != nil {
		if h.Busy() && ctx.Err() != nil {
			err = batch.Unsent(ctx, true)
		}
		return false, h.Waited(), err
	}
	longest := opcontext.LongestLockWait(ctx)
	late := !renew && longest < longLock/5*2 // less than longLock is left
	err = d.runOn(ctx, conn, write, func(db DB) error { return d.carryOut(ctx, db) })
	if late && ctx.Err() != nil && limiter.StoreFailed(err) {
		err = fmt.Errorf("%w: other processes kept locking the rows: %w", limiter.ErrKeyBusy, err)
	}
	ended = err
	switch {
	// If time is left, the clock of the server was stepped, which ends waits early, or the time was shared by
	// several locks.
	case isLocked(err) && (d.passed || opcontext.LongestLockWait(ctx) > longest/2):
		d.locked, err = max(0, d.first), nil // if there is no first row, an insert waited
	case isLocked(err): // others used up the time
		err = rowsBusy(ctx)
		ended = err
	}
	return true, h.Waited(), err
}

// carryOut carries out the takes on db by one statement, which is sent twice if rows are missing. settle
// decides what the statement does not. On a pool, nothing is carried out if another session has locked a
// row.
func (d *allDecision) carryOut(ctx context.Context, db DB) error {
	d.states, d.locked = nil, noRow
	missing := false
	d.counters.Sent(len(d.ops), len(d.ops))
	text, one := d.allStatement(d.tables, d.first)
	for n := 0; one && n < 2; n++ {
		r, decided, err := d.byStatement(ctx, db, text)
		if err != nil || decided || d.locked != noRow {
			return err
		}
		if n == 0 {
			d.counters.SecondLooks.Add(int64(len(d.ops)))
		}
		if missing = r.missing; !r.added {
			break
		}
	}
	return d.settle(ctx, db, missing)
}
