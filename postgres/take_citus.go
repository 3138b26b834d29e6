package postgres

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

// takeOnCitus carries out equal takes of one key. It is not done if a refusal would write the row.
//
// A refusal by the UPSERT locks the row, and a grant needs no read. So the read comes first only if the
// store expects a refusal or an error, and in a transaction of the caller, which would keep the lock.
func (s *Store) takeOnCitus(ctx context.Context, db DB, t *table, g *batch.Group) (done bool, err error) {
	defer func() {
		if err != nil {
			s.rooms.readFirst.Store(time.Now().Add(readFirstAfterError).UnixNano())
		}
	}()
	if s.db != nil || max(s.rooms.of(g.Op()).Load(), s.rooms.readFirst.Load()) > time.Now().UnixNano() {
		if done, err = s.refuseOnCitus(ctx, db, t, g); err != nil || done {
			return done, err
		}
	}
	if done, err = s.upsertOnCitus(ctx, db, t, g); err != nil || done {
		return done, err
	}
	s.counters.SecondLooks.Add(int64(len(g.Calls)))
	return s.refuseOnCitus(ctx, db, t, g)
}

// upsertOnCitus grants as many calls of g as there is room for, by the coordinator's clock. If it
// writes nothing, it is not done.
func (s *Store) upsertOnCitus(ctx context.Context, db DB, t *table, g *batch.Group) (done bool, err error) {
	op := g.Op()
	n := s.numbers(t, op)
	_, more := t.take(&t.sql, op, n)
	args := []any{op.Name, []byte(op.Key), n.Period, n.Limit, n.Cost, at(op), more[0], int64(len(g.Calls))}
	if t.calendar {
		args = append(args, n.Start)
	}
	var row taken
	done, err = s.scanRow(ctx, db, t.sql.take, args, row.columns(nil, t)...)
	if err != nil || !done || row.granted == 0 {
		return false, err
	}
	row.complete(op, n)
	if op.At != 0 {
		row.state.Now = op.At // the statement returns the row's
	}
	s.rooms.expect(t, op, &row.state.Row, row.state.Now)
	s.decideUnits(t, g, &row, n.Cost)
	return true, nil
}

// refuseOnCitus reads the row, and refuses all calls of g if there is no room by the clock of the row's
// node, nor by the coordinator's. Otherwise it is not done.
func (s *Store) refuseOnCitus(ctx context.Context, db DB, t *table, g *batch.Group) (done bool, err error) {
	op := g.Op()
	r, err := s.readRowByNodeClock(ctx, db, t, op)
	if err != nil {
		return false, s.readError(ctx, err)
	}
	next, state := r.apply(r.row, *op)
	if next == r.row && op.At == 0 {
		if r.now, err = s.readClock(ctx, db, t); err != nil {
			return false, s.readError(ctx, err)
		}
		next, state = r.apply(r.row, *op)
	}
	if next != r.row {
		return false, nil
	}
	s.rooms.expect(t, op, &state.Row, state.Now)
	for _, c := range g.Calls {
		c.Decide(state)
	}
	return true, nil
}

// rooms is when the store expects room for a take, by key, in nanoseconds of the process's clock. Keys
// whose hashes agree share an entry, and other processes take from the same row, so it may be wrong.
type rooms struct {
	seed      maphash.Seed
	at        [1 << 14]atomic.Int64
	readFirst atomic.Int64 // until when all takes read first
}

// readFirstAfterError is how long all takes read first after an error. If a worker is down, the error of a
// read is ErrNotApplied, and that of an UPSERT is ErrOutcomeUnknown.
const readFirstAfterError = time.Second

func (r *rooms) of(op *limiter.Op) *atomic.Int64 {
	return &r.at[maphash.Comparable(r.seed, [2]string{op.Name, op.Key})%uint64(len(r.at))]
}

// expect notes when row has room for another take. A place of a lease may be free at any time.
func (r *rooms) expect(t *table, op *limiter.Op, row *limiter.Row, now int64) {
	if t.room == nil {
		return
	}
	r.of(op).Store(time.Now().UnixNano() + t.room(op, row) - now)
}
