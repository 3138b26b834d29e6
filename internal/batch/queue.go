// Package batch queues the operations of a SQL store and sends them together. In one process a key
// has at most one statement in flight that writes, and one that reads. Operations that arrive
// meanwhile wait in the key's queue. Operations of different keys share statements where the store
// can merge them. The outcome is as if one operation had followed another.
//
// Packages postgres and sqlite call [Queue.Enter] for each operation. It returns when the operation was
// decided, or when its caller has to send it. See DESIGN.md, "One queue per key" and "Takes of many keys
// share a statement".
package batch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// Config says how much a [Queue] sends at a time.
type Config struct {
	// Send sends a Statement whose calls waited: it waits for a connection until ctx ends, calls
	// [Statement.Begin] and carries out the Groups. If it fails before Begin, nothing was sent. If it fails
	// later, the calls count as undecided: nothing was carried out, unless the error matches
	// [limiter.ErrOutcomeUnknown]. Send must not panic: see [Statement.Recover].
	Send func(ctx context.Context, st *Statement) error
	// Keys is the most keys that share a statement.
	Keys int
	// Shared is the most statements in flight that several keys can share. Single is the most
	// statements in flight that belong to one key each.
	Shared, Single int
	// HotKey is how many calls wait for a key before it gets statements of its own. Other
	// processes also wait for the row of such a key, so it must not hold up keys that share a
	// statement.
	HotKey int
	// GiveBacks is the most refunds, cancels and resets of one key that share a statement. They
	// share it with no other key. 0 means 1.
	GiveBacks int
	// LockWait and SharedLockWait are how long a statement of one key and one of several keys may
	// wait for row locks: see slow.go. 0 means that only the time limit ends the wait.
	LockWait, SharedLockWait time.Duration
	// Locked reports whether a statement failed because it waited too long for a row lock. nil
	// means that none does.
	Locked func(error) bool
	// Slots are for statements that may wait longer. Queues of one store share them. They may be
	// nil if Locked is.
	Slots *Slots
	// Merges reports whether equal operations of a key can be units of one row, and share a
	// statement with other keys. Other operations get statements of one key. nil means that
	// any operations can share a statement.
	Merges func(op *limiter.Op) bool
	// Deadlines keeps the time limits of the store's operations.
	Deadlines *opcontext.Deadlines
	// Counters counts what the queue does. It must not be nil. Queues of one store may share it.
	Counters *Counters
}

func (config *Config) merges(op *limiter.Op) bool { return config.Merges == nil || config.Merges(op) }

// Queue has the queues of the keys of one table (in SQLite, of all tables) and sends their calls. It is safe
// for concurrent use; the zero Queue is not valid.
type Queue struct {
	config Config

	mu     sync.Mutex
	keys   map[keyID]*keyQueue
	spare  []*keyQueue // for reuse
	shared line
	single line
	slow   line

	remembered []*keyQueue  // the slow keys
	statements []*Statement // those in flight
	answered   atomic.Int64 // when the store last answered a statement, after the epoch
	failed     atomic.Int64 // when the store last failed a statement that was sent
	relieving  bool         // a timer will call relieveLater
}

// New returns a Queue. It does no I/O and starts nothing.
func New(config Config) *Queue {
	q := &Queue{config: config, keys: map[keyID]*keyQueue{}}
	if config.Slots != nil {
		config.Slots.add(q)
	}
	return q
}

// errKeyBusy is the error of a call that timed out behind a sent statement or a locked row, or while the store
// answered others: the store is not at fault.
var errKeyBusy = fmt.Errorf("%w: %w: too many operations wait in this process", limiter.ErrNotApplied, limiter.ErrKeyBusy)

// Unsent returns the error of an operation whose ctx has ended before it was sent. busy reports that
// the store is not at fault.
func Unsent(ctx context.Context, busy bool) error {
	class := limiter.ErrNotApplied
	if busy {
		class = errKeyBusy
	}
	return opcontext.Interrupted(ctx, class, nil)
}

// Enter returns a Statement if the caller must send op itself and then call [Statement.End]. That is so if
// the key has nothing in flight and its row is not known to be locked, the line has a free slot, and op's
// time limit is at least [opcontext.Grace]. Otherwise Enter waits until op was carried out, and returns its state.
//
// If ctx ends before op was sent, op is not carried out. After that, its outcome is unknown. The ctx is one
// that [opcontext.Deadlines.WithTimeout] returned.
func (q *Queue) Enter(ctx context.Context, op *limiter.Op) (*Statement, limiter.State, error) {
	q.mu.Lock()
	k := q.key(idOf(op))
	if err := k.failedFast(); err != nil && op.Kind != limiter.OpRelease { // a place must not stay taken
		q.mu.Unlock()
		return nil, limiter.State{}, err
	}
	c := newCall(ctx, op)
	from := q.lineFor(k, &c.Op)
	if op.Timeout < opcontext.Grace || from == &q.slow || k.inFlight || k.line != nil || len(from.keys) > 0 || !q.takeSlot(from) {
		k.push(c, q.config.Merges)
		state, err := q.wait(c, k)
		return nil, state, err
	}
	st := q.newStatement(from)
	st.own, st.bounding = c, c
	k.inFlight, k.unsent = true, &st.unsent
	q.mu.Unlock()
	q.config.Counters.Queued.Add(1)
	g := st.group()
	g.Calls, g.Equal, g.key = append(g.Calls[:0], c), q.config.merges(&c.Op), k
	return st, limiter.State{}, nil
}

// wait waits for the outcome of c, which the caller has put into the queue k. The caller has locked mu.
func (q *Queue) wait(c *Call, k *keyQueue) (state limiter.State, err error) {
	c.answered = make(chan bool, 2)
	q.config.Counters.Queued.Add(1)
	start := q.enqueue(k)
	q.mu.Unlock()
	if start != nil {
		go q.lead(start)
	}
	if err = q.await(c, k); err == nil {
		state = c.state
	}
	if !c.left {
		c.recycle()
	}
	return state, err
}

// await waits for the outcome of c, a call in the queue k, and returns its error. If ctx ends before,
// the caller leaves.
func (q *Queue) await(c *Call, k *keyQueue) error {
	if !opcontext.Await(c.ctx, c.answered) {
		return c.err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.finished { // in the same instant as ctx
		return c.err
	}
	if !c.left {
		q.leave(c, k)
	}
	if c.sent && !c.LocksOnly {
		class := limiter.ErrOutcomeUnknown
		if c.Op.Kind == limiter.OpLook { // it changes nothing
			class = limiter.ErrNotApplied
		}
		return opcontext.Interrupted(c.ctx, class, nil)
	}
	return Unsent(c.ctx, c.busy)
}

// othersAnswered reports whether the store has answered others since an operation came, while it waited in the queues
// or for a connection. Then the store is not at fault if the time of the operation, ctx, ends. While a connection
// is being made, ctx may last longer than the time limit: then only its last part counts, as long as the limit.
// If statements of a queue have only failed, its table may be locked, and answers elsewhere do not count.
func othersAnswered(ctx context.Context, came int64, queues ...*Queue) bool {
	came = max(came, int64(opcontext.Began(ctx).Sub(epoch)))
	for _, q := range queues {
		if q.failed.Load() >= came && q.answered.Load() < came {
			return false
		}
	}
	return queues[0].config.Counters.answered.Load() >= came
}

// othersAnswered is othersAnswered for a call in the queue.
func (q *Queue) othersAnswered(c *Call) bool {
	if c.hold != nil {
		return othersAnswered(c.ctx, c.came, c.hold.queues...)
	}
	return othersAnswered(c.ctx, c.came, q)
}

// waits reports whether the caller of a call in the queue k still waits. If the time of the call is
// over, waits marks it as left, because the outcome would be unknown if it were sent.
func (q *Queue) waits(c *Call, k *keyQueue) bool {
	if !c.left && c.ctx.Err() != nil {
		q.leave(c, k)
	}
	return !c.left
}

// leave marks a call in the queue k whose caller does not wait any longer. The call is busy if another statement of
// its key was sent, or a Hold of it waits for other keys. It is also busy if a statement found its row locked in the time
// of the call, or if the store answered others.
func (q *Queue) leave(c *Call, k *keyQueue) {
	sent := !c.sent && k.inFlight && (k.unsent == nil || !k.unsent.Load())
	locked := !k.asked.Before(opcontext.Began(c.ctx))
	c.left, c.busy = true, sent || locked || q.othersAnswered(c)
	if !c.sent && c.hold == nil {
		q.config.Counters.Queued.Add(-1)
	}
}
