package coalesce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// lead sends statements for a line until nothing waits in it. They run under no
// caller's context: one who leaves would take the connection with him, and leave all
// others in doubt.
func (q *Queue) lead(from *line) {
	for head := q.head(from); head != nil; head = q.head(from) {
		ctx, stop := q.limits.Time.Limit(context.WithoutCancel(head.ctx), head.op.Timeout)
		conn, err := q.connect(ctx)
		stay := true
		// If the time was over it was the head's, who has been told. The others have theirs.
		if err == nil || ctx.Err() == nil {
			stay = q.depart(ctx, from, conn, err)
		}
		stop()
		if !stay {
			return
		}
		runtime.Gosched() // those who were just answered may want to come along
	}
}

func (q *Queue) connect(ctx context.Context) (conn Conn, err error) {
	defer recovered(limiter.ErrNotApplied, &err)
	return q.sender.Connect(ctx)
}

// depart sends one statement for those that wait in a line, or tells them why there is
// no connection for it. It reports whether there may be another one after it.
func (q *Queue) depart(ctx context.Context, from *line, conn Conn, err error) (stay bool) {
	if conn != nil {
		defer conn.Release()
	}
	f := flights.Get().(*flight)
	defer flights.Put(f)
	defer f.clear()
	rows := q.board(from, f)
	if len(rows) == 0 {
		return true
	}
	if err == nil {
		q.watch(f, from)
		err = q.send(ctx, conn, rows)
	} else {
		for _, r := range rows {
			for _, c := range r.calls {
				c.again = true // it was not the rows
			}
		}
	}
	return q.land(f, err) || q.rejoin(from)
}

// recovered makes an error of a panic. In a goroutine of ours it would end the process;
// and whose goroutine it is, is chance.
func recovered(class error, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: panic: %v", class, p)
	}
}

// send carries rows out. A panic is an error of all of them.
func (q *Queue) send(ctx context.Context, conn Conn, rows []*Row) (err error) {
	var longest time.Duration
	for _, r := range rows {
		for _, c := range r.calls {
			longest = max(longest, c.op.Timeout)
			if conn.Fresh() {
				sqlstore.Connected(c.ctx)
			}
		}
	}
	sqlstore.Restart(ctx, longest)
	defer recovered(limiter.ErrOutcomeUnknown, &err)
	return conn.Send(ctx, rows)
}

// head returns the call that has waited longest, whose time limit is that of the
// wait for a connection. If there is none the line has one statement less.
func (q *Queue) head(from *line) *call {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.first(from); l != nil {
		return l.waiting[0]
	}
	from.flying--
	return nil
}

// first returns the first lane of a line, without those that have moved or whose
// callers have left.
func (q *Queue) first(from *line) *lane {
	for len(from.lanes) > 0 {
		l := from.lanes[0]
		if l.line == from {
			l.waiting = slices.DeleteFunc(l.waiting, func(c *call) bool { return c.left })
			if len(l.waiting) > 0 {
				return l
			}
			l.line = nil
			q.dropLane(l)
		}
		from.lanes = from.lanes[1:]
	}
	from.lanes = nil
	return nil
}

// board takes the rows of the next statement out of a line: one lane of those that
// travel alone, else as many as fit.
func (q *Queue) board(from *line, f *flight) []*Row {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := 1
	if from == &q.shared {
		most = q.limits.Rows
	}
	for len(f.rows) < most {
		l := q.first(from)
		if l == nil {
			break
		}
		from.lanes = from.lanes[1:]
		l.line, l.flying = nil, true
		l.board(f.row())
	}
	slices.SortFunc(f.rows, func(a, b *Row) int {
		return cmp.Or(cmp.Compare(a.Op.Name, b.Op.Name), cmp.Compare(a.Op.Key, b.Op.Key))
	})
	return f.rows
}

// board makes a row of the calls of a lane that can be one: those at its head that are
// the same operation.
func (l *lane) board(r *Row) {
	n := 1
	op := l.waiting[0].op
	for n < len(l.waiting) && same(op, l.waiting[n].op) {
		n++
	}
	*r = Row{Op: op, Units: int64(n), calls: append(r.calls[:0], l.waiting[:n]...)}
	for _, c := range r.calls {
		c.sent = true
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
}

// same reports whether two takes of one key are units of the same row.
func same(a, b limiter.Op) bool {
	return a.Policy == b.Policy && a.Cost == b.Cost && a.At == b.At
}

// land hands the outcome of a statement to its calls, and lets their lanes wait
// again. It reports whether the statement was still counted.
func (q *Queue) land(f *flight, err error) (counted bool) {
	rows := f.rows
	// One bad row, or one that somebody has locked, must not decide for others.
	apart := err != nil && (len(rows) > 1 || rows[0].Units > 1) && !errors.Is(err, limiter.ErrOutcomeUnknown)
	var start []*line
	q.mu.Lock()
	counted = q.landed(f)
	for _, r := range rows {
		l := q.lanes[laneKey{r.Op.Name, r.Op.Key}]
		l.alone = false
		var back []*call
		for i, c := range r.calls {
			switch {
			case apart && !c.again:
				c.again, l.alone = true, true
				back = append(back, c)
			case err != nil:
				c.finish(limiter.State{}, false, err)
			case !r.Decided || r.Granted == 0:
				c.finish(r.State, r.Decided, nil)
			case int64(i) < r.Granted:
				c.finish(sqlstore.Earlier(r.Op, r.State, r.Granted-1-int64(i)), true, nil)
			default:
				// It was not granted beside the others. Whether it has to be refused
				// the next statement says: this one's clock was read before the lock.
				back = append(back, c)
			}
		}
		for _, c := range back {
			c.sent = false
		}
		if len(back) > 0 {
			back = slices.DeleteFunc(back, func(c *call) bool { return c.left })
			l.waiting = append(back, l.waiting...)
		}
		if line := q.vacate(l); line != nil {
			start = append(start, line)
		}
	}
	q.mu.Unlock()
	for _, line := range start {
		go q.lead(line)
	}
	return counted
}

func (c *call) finish(s limiter.State, decided bool, err error) {
	c.state, c.decided, c.err = s, decided, err
	close(c.done)
}
