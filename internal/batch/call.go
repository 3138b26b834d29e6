package batch

import (
	"context"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// Call is one operation and its outcome.
type Call struct {
	Op limiter.Op
	// LocksOnly is set if the statement only has to wait until it can lock the key's row. See
	// [Queue.Lock].
	LocksOnly bool
	// ReadFirst is set by the store if its statement could not decide the call. The next statement must
	// read the row first.
	ReadFirst bool

	state   limiter.State
	decided bool
	err     error

	ctx      context.Context
	answered chan bool     // gets true when the call is finished; nil if the caller itself sends the call
	finished bool          // its outcome is known
	sent     bool          // the operation may have been carried out
	left     bool          // the caller has left, and the call must not be sent any more
	busy     bool          // the store was not at fault when the caller left
	came     int64         // when, after the epoch
	retried  bool          // failed together with others, and is sent once more
	renewed  bool          // has got its full time again, when it was sent after others
	ownWait  time.Duration // how long its caller's own statement has waited in vain
	rowWait  time.Duration // how long other statements have
	hold     *Hold         // waits for the key itself; nil if the call waits for its outcome
	slot     bool          // also waits for a slot of the line
	waited   bool          // the store answered others while a Hold, or the call of a Lock, waited
}

// calls are reused. A caller who got the outcome is the last to use a call, because a leader does nothing
// with it after finish. If the caller has left, the call may still be in a queue or a statement, and is not
// reused. Nor is the channel, because one from a testing/synctest bubble cannot be used outside.
var calls = sync.Pool{New: func() any { return new(Call) }}

// newCall returns a Call that comes now.
func newCall(ctx context.Context, op *limiter.Op) *Call {
	c := calls.Get().(*Call)
	c.ctx, c.Op, c.came = ctx, *op, int64(time.Since(epoch))
	return c
}

// recycle keeps the memory of a Call for another one.
func (c *Call) recycle() {
	*c = Call{}
	calls.Put(c)
}

// NewCall returns a Call for a store that sends it without a [Queue].
func NewCall(op limiter.Op) *Call { return &Call{Op: op} }

// Decide records what the operation returns.
func (c *Call) Decide(s limiter.State) { c.state, c.decided = s, true }

// Decided reports whether Decide was called.
func (c *Call) Decided() bool { return c.decided }

// State returns what Decide recorded.
func (c *Call) State() limiter.State { return c.state }

// finish tells the caller the outcome. The caller may then use the memory of the call for another one.
func (c *Call) finish(err error) {
	c.err, c.finished = err, true
	c.answered <- true
}

// equal reports whether b can be another unit of a's operation.
func equal(a, b *limiter.Op) bool {
	return a.Kind == b.Kind && a.Policy == b.Policy && a.Cost == b.Cost && a.MaxWait == b.MaxWait && a.At == b.At
}

// Group is the calls of one key in one statement, in order of arrival. It has at least one.
type Group struct {
	Calls []*Call
	// Equal reports whether the calls are units of one operation that [Config.Merges] accepts.
	Equal bool

	key *keyQueue
}

// add sends c with the group.
func (g *Group) add(c *Call) {
	c.sent = true
	g.Calls = append(g.Calls, c)
}

// Op returns the operation of the first call.
func (g *Group) Op() *limiter.Op { return &g.Calls[0].Op }

// bounding returns the call whose time bounds the lock waits of a statement of one key. It is the one that ends
// first of those without a short deadline: if the statement outlasted it, its outcome would be unknown. Calls with a
// longer time limit may fail early for that. A caller's short deadline must not make others fail early. If all have
// one, the call with the most time bounds the waits.
func (g *Group) bounding() *Call {
	bounding := g.Calls[0]
	end, short := opcontext.Due(bounding.ctx)
	for _, c := range g.Calls[1:] {
		due, isShort := opcontext.Due(c.ctx)
		if short && due.After(end) || !isShort && due.Before(end) {
			bounding, end, short = c, due, isShort
		}
	}
	return bounding
}
