// Package batch queues the operations of a SQL store and sends them together. In one process a key
// has at most one statement in flight that writes, and one that reads. Operations that arrive
// meanwhile wait in the key's queue. Operations of different keys share statements where the store
// can merge them. The outcome is as if one operation had followed another.
//
// Packages postgres and sqlite call [Queue.Do] for each operation, and implement [Sender]. See
// DESIGN.md, "One queue per key" and "Takes of many keys share a statement".
package batch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// Sender makes the connections of one store.
type Sender interface {
	// Connect waits for a connection. If it fails, nothing was sent.
	Connect(ctx context.Context) (Conn, error)
}

// Conn is a connection for one statement.
type Conn interface {
	// Send carries out the groups, which are of different keys and sorted by limiter and key.
	// It calls [Call.Answer] for each call that it decides. A call that is alone in its statement
	// must be answered; the queue sends others again that are not. If Send fails, the answers do
	// not count: nothing was carried out, unless the error matches [limiter.ErrOutcomeUnknown].
	Send(ctx context.Context, groups []*Group) error
	// Fresh reports whether the connection was made for this statement.
	Fresh() bool
	// Release gives the connection back.
	Release()
}

// Config says how much a [Queue] sends at a time.
type Config struct {
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
	// LockWait is how long a statement of one key counts as in flight, because it may wait for
	// a row lock. For calls that failed together with others it is a tenth of that. 0 means
	// that a statement counts until it ends.
	LockWait time.Duration
	// Merges reports whether equal operations of a key can be units of one row, and share a
	// statement with other keys. Other operations get statements of one key. nil means that
	// any operations can share a statement.
	Merges func(op *limiter.Op) bool
	// Deadlines keeps the time limits of the store's operations.
	Deadlines *opcontext.Deadlines
	// Counters counts what the queue does. Queues of one store may share them. nil means that
	// nobody wants to know.
	Counters *Counters
}

func (config *Config) merges(op *limiter.Op) bool { return config.Merges == nil || config.Merges(op) }

// Queue holds the operations of one store that wait to be sent. It is safe for concurrent use;
// the zero Queue is not valid.
type Queue struct {
	sender Sender
	config Config

	mu     sync.Mutex
	keys   map[keyID]*keyQueue
	spare  []*keyQueue // for reuse
	shared line
	single line

	watched  []*statement // of one key
	watchEnd time.Time    // when the next watch ends, if a timer is set
}

// New returns a Queue. It does no I/O and starts nothing.
func New(sender Sender, config Config) *Queue {
	if config.Counters == nil {
		config.Counters = new(Counters)
	}
	return &Queue{sender: sender, config: config, keys: map[keyID]*keyQueue{}}
}

// line holds the key queues that wait for a statement of one kind, and counts the statements
// of that kind that are in flight.
type line struct {
	keys     []*keyQueue
	inFlight int
	answers  uint64 // how many statements the store has answered
}

// maxInFlight is how many statements of a line may be in flight.
func (q *Queue) maxInFlight(l *line) int {
	if l == &q.shared {
		return q.config.Shared
	}
	return q.config.Single
}

// errKeyBusy is the error of a call that timed out while its key was in flight, or while the store
// answered others: the store is not at fault.
var errKeyBusy = fmt.Errorf("%w: %w: too many operations wait in this process", limiter.ErrNotApplied, limiter.ErrKeyBusy)

// Do carries out op and returns its state. It does so in the caller's goroutine if the key has
// nothing in flight and the line is below its limit. If ctx ends before op was sent, op is not
// charged; after that its outcome is unknown. The ctx is one that [opcontext.Deadlines.WithTimeout]
// returned.
func (q *Queue) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	q.mu.Lock()
	k := q.key(idOf(&op))
	if to := q.lineFor(k, &op); !k.inFlight && k.line == nil && to.inFlight < q.maxInFlight(to) {
		k.inFlight = true
		to.inFlight++
		q.mu.Unlock()
		return q.sendOwn(ctx, op, to)
	}
	c := &Call{ctx: ctx, Op: op, done: make(chan struct{})}
	k.push(c, q.config.Merges)
	q.config.Counters.Queued.Add(1)
	start := q.enqueue(k)
	q.mu.Unlock()
	if start != nil {
		go q.lead(start)
	}
	if err := q.await(c, k); err != nil {
		return limiter.State{}, err
	}
	return c.state, nil
}

// await waits for the outcome of c, a call in the queue k, and returns its error. If ctx ends before,
// the caller leaves.
func (q *Queue) await(c *Call, k *keyQueue) error {
	if !opcontext.Await(c.ctx, c.done) {
		return c.err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-c.done: // in the same instant as ctx
		return c.err
	default:
	}
	c.left = true
	if !c.sent && !c.holds {
		q.config.Counters.Queued.Add(-1)
	}
	if c.sent && c.Op.Kind != limiter.OpLook { // a look has no outcome
		return opcontext.Interrupted(c.ctx, limiter.ErrOutcomeUnknown, nil)
	}
	return Unsent(c.ctx, k.inFlight || k.served())
}
