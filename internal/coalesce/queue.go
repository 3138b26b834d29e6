// Package coalesce lets takes that arrive while a statement is under way go out
// together in the next one. What is admitted, and for each key in what order, is what
// one statement for each take would admit.
package coalesce

import (
	"context"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore"
)

// Row is what a statement does to one key: of Units takes, each of which is Op, it
// grants as many as there is room for.
type Row struct {
	Op    limiter.Op
	Units int64

	// Decided reports whether the statement could decide, as that of
	// [sqlstore.Table] does. Granted is how many takes it granted, and State is the
	// key's after the last of them, or as it was found if there was none.
	Decided bool
	Granted int64
	State   limiter.State

	calls []*call
}

// Sender sends the statements of one store.
type Sender interface {
	// Connect waits for a connection. An error is one before anything was sent.
	Connect(ctx context.Context) (Conn, error)
}

// Conn is a connection for one statement.
type Conn interface {
	// Send carries out all rows, or none of them, in one statement. They stand in
	// the order of their limiters and keys, and no two are of one key.
	Send(ctx context.Context, rows []*Row) error
	// Fresh reports whether the connection had to be made.
	Fresh() bool
	// Release gives the connection back.
	Release()
}

// Limits bound what a [Queue] sends.
type Limits struct {
	// Rows is how many keys a statement may have.
	Rows int
	// Shared is how many statements for many keys may be under way at a time, and
	// Alone how many for a key of its own.
	Shared, Alone int
	// Crowd is how many takes of a key wait before it travels alone.
	Crowd int
	// Patience is how long a statement of one row counts as under way: it may wait for a
	// lock. Of takes that failed together with others it is a tenth. 0 is until it has ended.
	Patience time.Duration
	// Time is what keeps the time of the store's operations.
	Time *sqlstore.Timekeeper
}

// Queue is the takes of one store that wait. It is safe for concurrent use; the zero
// Queue is not valid.
type Queue struct {
	sender Sender
	limits Limits

	mu     sync.Mutex
	lanes  map[laneKey]*lane
	spare  []*lane // to be used again
	shared line
	alone  line

	watched []*flight // those of one row
	alarmed time.Time // when somebody will look whether one is overdue, or 0
}

// most is how many statements of a line may be under way.
func (q *Queue) most(l *line) int {
	if l == &q.shared {
		return q.limits.Shared
	}
	return q.limits.Alone
}

// line is lanes that wait for a statement of one kind, and the statements of that
// kind that are under way.
type line struct {
	lanes  []*lane
	flying int
}

// laneKey is what a row of a table is found by.
type laneKey struct{ name, key string }

// lane is the takes of one key, in order of arrival. While a statement has some of
// them the others wait: they would only wait for the row's lock, and hold the locks
// of all other rows of their statement meanwhile.
type lane struct {
	laneKey
	waiting []*call
	flying  bool
	alone   bool // must not share a statement
	line    *line
	moved   bool // it may still stand in a line that it has left
}

// call is one take.
type call struct {
	ctx     context.Context
	op      limiter.Op
	done    chan struct{}
	sent    bool // it may have been carried out
	left    bool // its caller has gone, and must not be charged from now on
	again   bool // failed together with others and is sent once more
	state   limiter.State
	decided bool
	err     error
}

// New returns a Queue. It does no I/O and starts nothing.
func New(sender Sender, limits Limits) *Queue {
	return &Queue{sender: sender, limits: limits, lanes: map[laneKey]*lane{}}
}

// Take carries op out, alone and in the caller's goroutine if hardly anything else is
// under way, and returns what the statement's [sqlstore.Table.Take] would. A caller
// whose context ends before the take was sent is taken out of the queue, uncharged;
// after that the outcome is unknown.
func (q *Queue) Take(ctx context.Context, op limiter.Op) (limiter.State, bool, error) {
	q.mu.Lock()
	l := q.lane(laneKey{op.Name, op.Key})
	if q.idle(l) {
		l.flying = true
		q.shared.flying++
		q.mu.Unlock()
		return q.takeHere(ctx, op)
	}
	c := &call{ctx: ctx, op: op, done: make(chan struct{})}
	l.waiting = append(l.waiting, c)
	start := q.wait(l)
	q.mu.Unlock()
	if start != nil {
		go q.lead(start)
	}
	if !sqlstore.Await(ctx, c.done) {
		return c.state, c.decided, c.err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-c.done: // at the same instant
		return c.state, c.decided, c.err
	default:
	}
	c.left = true
	if c.sent {
		return limiter.State{}, false, sqlstore.Interrupted(ctx, limiter.ErrOutcomeUnknown, nil)
	}
	return limiter.State{}, false, sqlstore.Interrupted(ctx, limiter.ErrNotApplied, nil)
}

// idle reports whether a take that enters a lane can go at once, by itself.
func (q *Queue) idle(l *lane) bool {
	return !l.flying && l.line == nil && q.shared.flying < q.limits.Shared
}

// spareLanes is how many lanes are kept for keys to come.
const spareLanes = 1024

// lane returns the lane of a key.
func (q *Queue) lane(id laneKey) *lane {
	l := q.lanes[id]
	if l != nil {
		return l
	}
	if n := len(q.spare); n > 0 {
		l, q.spare = q.spare[n-1], q.spare[:n-1]
	} else {
		l = new(lane)
	}
	l.laneKey = id
	q.lanes[id] = l
	return l
}

// vacate lets a lane that no statement has any more wait again, and returns what
// [Queue.wait] does.
func (q *Queue) vacate(l *lane) *line {
	l.flying = false
	if len(l.waiting) == 0 {
		q.dropLane(l)
		return nil
	}
	return q.wait(l)
}

// dropLane removes a lane in which nobody waits.
func (q *Queue) dropLane(l *lane) {
	delete(q.lanes, l.laneKey)
	if !l.moved && len(q.spare) < spareLanes {
		*l = lane{waiting: l.waiting}
		q.spare = append(q.spare, l)
	}
}

// wait puts a lane that has calls waiting into the line that it belongs to. One in
// which many wait belongs to a busy key, for whose lock other processes wait as well:
// it is not to hold up keys for which hardly anybody waits.
func (q *Queue) wait(l *lane) *line {
	if l.flying || len(l.waiting) == 0 {
		return nil
	}
	to := &q.shared
	if l.alone || len(l.waiting) >= q.limits.Crowd {
		to = &q.alone
	}
	if l.line == to {
		return nil
	}
	l.moved = l.moved || l.line != nil // where it stood before, it is passed over
	l.line = to
	to.lanes = append(to.lanes, l)
	if to.flying >= q.most(to) {
		q.alarm()
		return nil
	}
	to.flying++
	return to
}
