package batch

import (
	"context"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
)

// Call is one operation and its outcome.
type Call struct {
	Op limiter.Op
	// Locks is set if the Conn only has to wait until it can lock the key's row. See [Queue.Lock].
	Locks bool
	// Undecided is set by a [Conn] if the statement could not decide the call. When the Conn
	// gets the call again, it must read the row first.
	Undecided bool

	state    limiter.State
	answered bool
	err      error

	ctx     context.Context
	done    chan struct{} // nil if the caller itself sends the call
	pushed  bool          // it is, or was, in a key's queue
	sent    bool          // the operation may have been carried out
	left    bool          // the caller has left, and the call must not be sent any more
	busy    bool          // the store was not at fault when the caller left
	answers uint64        // how many answers the key had when the call arrived
	retried bool          // failed together with others, and is sent once more
	renewed bool          // has got its full time again, when it was sent after others
	holds   bool          // waits for the key itself: see [Queue.Hold]
	served  bool          // the store answered others while a Hold waited
}

// NewCall returns a Call for a store that sends it without a [Queue].
func NewCall(op limiter.Op) *Call { return &Call{Op: op} }

// Answer records what the operation returns.
func (c *Call) Answer(s limiter.State) { c.state, c.answered = s, true }

// Answered reports whether Answer was called.
func (c *Call) Answered() bool { return c.answered }

// State returns what Answer recorded.
func (c *Call) State() limiter.State { return c.state }

// finish tells the caller the outcome.
func (c *Call) finish(err error) {
	c.err = err
	close(c.done)
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

	// Decided, Granted and State belong to the [Conn]. It keeps there what a statement returned
	// for the key, until it answers the calls.
	Decided bool
	Granted int64
	State   limiter.State
}

// add sends c with the group.
func (g *Group) add(c *Call) {
	c.sent = true
	g.Calls = append(g.Calls, c)
}

// Op returns the operation of the first call.
func (g *Group) Op() *limiter.Op { return &g.Calls[0].Op }

// statement is what one call of [Conn.Send] sends. Statements are reused, because groups are
// most of what an operation would allocate.
type statement struct {
	groups []*Group

	sent time.Time // zero if it was not sent, or if the queue bounds no lock waits
	own  Call      // the call, if its caller sends the statement
}

var statements = sync.Pool{New: func() any { return new(statement) }}

// group adds a group with no calls.
func (st *statement) group() *Group {
	if n := len(st.groups); n < cap(st.groups) {
		st.groups = st.groups[:n+1]
		if g := st.groups[n]; g != nil {
			return g
		}
		st.groups = st.groups[:n]
	}
	g := new(Group)
	st.groups = append(st.groups, g)
	return g
}

// recycle clears the statement, and keeps its memory for another one.
func (st *statement) recycle() {
	for _, g := range st.groups {
		clear(g.Calls)
		*g = Group{Calls: g.Calls[:0]}
	}
	*st = statement{groups: st.groups[:0]}
	statements.Put(st)
}
