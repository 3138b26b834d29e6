// Package history records the answers that callers of a store got, and checks them against the witness:
// the order in which the rows changed. The tests of prove call it.
//
// The specification is [limiter.Op.Apply], one operation after another.
package history

import (
	"errors"
	"fmt"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/tables"
)

// Outcome is what a caller knows of its operation.
type Outcome uint8

const (
	// Answered is an operation that the store carried out, with the State of the call.
	Answered Outcome = iota
	// Unknown is one that was carried out once or not at all.
	Unknown
	// NotApplied is one that the store says it has not carried out.
	NotApplied
	// DenyCache is a take that was refused from memory.
	DenyCache
)

// outcomeOf is the outcome of an operation that ended with err.
func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Answered
	case errors.Is(err, limiter.ErrOutcomeUnknown):
		return Unknown
	}
	return NotApplied
}

// Call is one operation, and what was told of it.
type Call struct {
	Op limiter.Op
	// State is what the store said. Of refunds, cancels and resets it is Took, and the row that they
	// left if the store tells it.
	State   limiter.State
	Outcome Outcome
	// Began and Ended enclose the operation, by the [Clock] of all processes.
	Began, Ended int64
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

// writes reports whether the call may write a row and is told that row: a take, a charge, a block, or a look
// that was told a row of its own time.
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

// String tells the call without its key.
func (c *Call) String() string {
	kind := [...]string{"?", "take", "look", "refund", "cancel", "reset", "take of up to its cost", "charge", "block"}[c.Op.Kind]
	told := fmt.Sprintf("%+v", c.State)
	switch c.Outcome {
	case Unknown:
		told = "outcome unknown"
	case NotApplied:
		told = "not applied"
	case DenyCache:
		told = "refused from memory"
	case Answered:
		if c.changes() {
			told = fmt.Sprint("took: ", c.State.Took)
		}
	}
	return fmt.Sprintf("%s of %d, up to %v ahead, by %+v, from %d to %d: %s", kind, c.Op.Cost, c.Op.MaxWait, c.Op.Policy, c.Began, c.Ended, told)
}

// Key is what has a row.
type Key struct {
	Kind      limiter.PolicyKind
	Name, Key string
}

// KeyOf is where the row of an operation is.
func KeyOf(op *limiter.Op) Key { return Key{limiter.KindOf(op.Policy), op.Name, op.Key} }

// String names the key, which no application has.
func (k Key) String() string {
	kind := "key"
	if k.Kind > 0 {
		kind = tables.All[k.Kind-1].Prefix
	}
	return fmt.Sprintf("%s %s of %s", kind, k.Key, k.Name)
}

// Transition is one change of a row. The zero Row is no row.
type Transition struct {
	Key      Key
	Old, New limiter.Row
	// Units is how many takes it is, if it is takes; 0 if nobody wrote that down.
	Units int64
}

// History is all that happened to some keys.
type History struct {
	Calls []Call
	// Transitions are in the order of each row.
	Transitions []Transition
	// Opened and Left are the rows before and after it; what is not there is no row.
	Opened, Left map[Key]limiter.Row
	// DenyAge is how long refusals were kept in memory: they may not have heard for
	// so long of what others gave back.
	DenyAge int64
}

// Kind is what is wrong with a history.
type Kind string

// The kinds of faults.
const (
	// Over is a request that was let in though there was no room for it.
	Over Kind = "over-admitted"
	// Lost is a take that was answered as granted, or a charge or block that was acknowledged, and
	// that the row does not have.
	Lost Kind = "acknowledged take lost"
	// Double is a charge of a row that no call explains that is not explained by another.
	Double Kind = "charged by nobody, or twice"
	// Given is a change for the better of a row that no call explains.
	Given Kind = "given back by nobody, or twice"
	// Swept is a row that was removed while it still counted.
	Swept Kind = "removed too soon"
	// Chain is a row that is not as its latest change has left it.
	Chain Kind = "changed behind the log's back"
	// Order is a call that the row has before another one which had ended by then.
	Order Kind = "answered out of order"
	// Answer is an answer that is none of any state that there was at the time.
	Answer Kind = "answered wrongly"
)

// Fault is one thing that is wrong.
type Fault struct {
	Kind Kind
	Key  Key
	Text string
}

func (f Fault) Error() string { return fmt.Sprintf("%s: %s: %s", f.Kind, f.Key, f.Text) }

// Report is what there is to say of a history.
type Report struct {
	Operations int64 // calls
	Unknown    int64 // calls of unknown outcome
	Charged    int64 // takes that were carried out
	LostRaces  int64 // refusals although there was room, because others kept changing the row
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

// most is how many faults an error tells.
const most = 20

// Err returns the faults as an error, or nil.
func (r *Report) Err() error {
	var errs []error
	for i, f := range r.Faults {
		if i == most {
			errs = append(errs, fmt.Errorf("and %d more", len(r.Faults)-most))
			break
		}
		errs = append(errs, f)
	}
	return errors.Join(errs...)
}

// add adds what another one says of some keys.
func (r *Report) add(other *Report) {
	r.Unknown += other.Unknown
	r.Charged += other.Charged
	r.LostRaces += other.LostRaces
	r.Faults = append(r.Faults, other.Faults...)
}

func (r *Report) fault(kind Kind, key Key, format string, args ...any) {
	r.Faults = append(r.Faults, Fault{kind, key, fmt.Sprintf(format, args...)})
}
