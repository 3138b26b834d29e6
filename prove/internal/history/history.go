// Package history records the answers that callers of a store got, and checks them against the witness: the order in
// which the rows changed. The specification is [limiter.Op.Apply], one operation after another.
package history

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sqlimit/limiter"
)

// Outcome is what a caller knows of its operation.
type Outcome string

// The outcomes. An answered call has the State that the store told. One of unknown outcome was carried out or not.
const (
	Answered   Outcome = ""
	Unknown    Outcome = "unknown"
	NotApplied Outcome = "not applied"
)

// Call is one operation, and what was told of it.
type Call struct {
	Op limiter.Op
	// State is what the store said. Of refunds, cancels and resets it is Took, and perhaps the row that they left.
	State        limiter.State
	Outcome      Outcome
	Began, Ended int64 // around the operation, by the [Clock] of all processes
}

// changes reports whether the call is a refund, cancel or reset.
func (c *Call) changes() bool {
	return c.Op.Kind == limiter.OpRefund || c.Op.Kind == limiter.OpCancel || c.Op.Kind == limiter.OpReset
}

// takes reports whether the call is a take, of all or of a part of its cost.
func (c *Call) takes() bool { return c.Op.Kind == limiter.OpTake || c.Op.Kind == limiter.OpTakeUpTo }

// forced reports whether the call is a charge or a block, which no row refuses.
func (c *Call) forced() bool { return c.Op.Kind == limiter.OpCharge || c.Op.Kind == limiter.OpBlock }

// looks reports whether the call is a look. It may convert a row of another policy.
func (c *Call) looks() bool { return c.Op.Kind == limiter.OpLook }

// writes reports whether the call may write a row and tells it. A look does if its row is of its own time.
func (c *Call) writes() bool {
	return c.takes() || c.forced() || c.looks() && (c.Outcome != Answered || c.State.Row.At >= c.State.Now)
}

// mayHaveWritten reports whether nobody knows if the call wrote a row. No error tells whether a look did.
func (c *Call) mayHaveWritten() bool {
	return c.writes() && (c.Outcome == Unknown || c.looks() && c.Outcome == NotApplied)
}

// granted reports whether the call is a take whose caller was told that it passed.
func (c *Call) granted() bool { return c.takes() && c.State.Took }

// refused reports whether the call is a take whose caller was told that it did not pass.
func (c *Call) refused() bool { return c.takes() && !c.State.Took }

// Key is what has a row.
type Key struct {
	Kind      limiter.PolicyKind
	Name, Key string
}

// KeyOf is where the row of an operation is.
func KeyOf(op *limiter.Op) Key { return Key{limiter.KindOf(op.Policy), op.Name, op.Key} }

// Transition is one change of a row. The zero Row is no row.
type Transition struct {
	Key      Key
	Old, New limiter.Row
	Units    int64 // how many takes it is, if it is takes; 0 if nobody wrote that down
}

// History is all that happened to some keys.
type History struct {
	Calls        []Call
	Transitions  []Transition        // in the order of each row
	Opened, Left map[Key]limiter.Row // the rows before and after it; what is not there is no row
}

// Kind is what is wrong with a history.
type Kind string

// The kinds of faults.
const (
	Over   Kind = "over-admitted"                  // a request passed though there was no room for it
	Lost   Kind = "acknowledged take lost"         // the row does not have a granted take, a charge or a block
	Double Kind = "charged by nobody, or twice"    // no call that explains nothing else explains a charge
	Given  Kind = "given back by nobody, or twice" // no call explains a change for the better
	Swept  Kind = "removed too soon"               // a row was removed while it still counted
	Chain  Kind = "changed behind the log's back"  // a row is not as its latest change has left it
	Order  Kind = "answered out of order"          // the row has a call before another one that had ended by then
	Answer Kind = "answered wrongly"               // an answer is none of any state that there was at the time
)

// Fault is one thing that is wrong.
type Fault struct {
	Kind Kind
	Key  Key
	Text string
}

func (f Fault) Error() string { return fmt.Sprintf("%s: %+v: %s", f.Kind, f.Key, f.Text) }

// Report is what there is to say of a history.
type Report struct {
	Operations int64 // calls
	Unknown    int64 // calls of unknown outcome
	Charged    int64 // takes that were carried out
	Faults     []Fault
}

// Of returns how many faults there are of a kind.
func (r *Report) Of(kind Kind) (n int64) {
	for _, f := range r.Faults {
		if f.Kind == kind {
			n++
		}
	}
	return n
}

// Err returns the first 20 faults as an error, or nil.
func (r *Report) Err() error {
	var errs []error
	for _, f := range r.Faults[:min(len(r.Faults), 20)] {
		errs = append(errs, f)
	}
	return errors.Join(errs...)
}

// add adds what another one says of some keys.
func (r *Report) add(other *Report) {
	r.Unknown += other.Unknown
	r.Charged += other.Charged
	r.Faults = append(r.Faults, other.Faults...)
}

func (r *Report) fault(kind Kind, key Key, format string, args ...any) {
	r.Faults = append(r.Faults, Fault{kind, key, fmt.Sprintf(format, args...)})
}

// Clock reads a clock that all processes of the host share and that nobody sets.
func Clock() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // Linux has it
	}
	return t.Nano()
}

// Recorder is a store that records what another one does. It is safe for concurrent use.
type Recorder struct {
	limiter.Store

	mu    sync.Mutex
	calls []Call
}

// Do has the store carry out op, and records it.
func (r *Recorder) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	c := Call{Op: op, Began: Clock()}
	c.Op.Timeout = 0
	state, err := r.Store.Do(ctx, op)
	c.Ended, c.State = Clock(), state
	if errors.Is(err, limiter.ErrOutcomeUnknown) {
		c.Outcome = Unknown
	} else if err != nil {
		c.Outcome = NotApplied
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
	return state, err
}

// Calls returns what was recorded. No call may be under way.
func (r *Recorder) Calls() []Call { return r.calls }
