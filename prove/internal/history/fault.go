package history

import (
	"errors"
	"fmt"
)

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
	// Operations is the number of calls. Unknown is the number of calls of unknown outcome, and
	// Applied the number of these that were carried out. Charged is the number of all takes that
	// were carried out.
	Operations, Unknown, Applied, Charged int64
	// LostRaces is the number of requests that were refused although there was room, because
	// others kept changing the row. Their callers are told so.
	LostRaces int64
	Faults    []Fault
}

// Of returns how many faults there are of some kinds.
func (r *Report) Of(kinds ...Kind) (n int64) {
	for _, f := range r.Faults {
		for _, k := range kinds {
			if f.Kind == k {
				n++
			}
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
	r.Applied += other.Applied
	r.Charged += other.Charged
	r.LostRaces += other.LostRaces
	r.Faults = append(r.Faults, other.Faults...)
}

func (r *Report) fault(kind Kind, key Key, format string, args ...any) {
	r.Faults = append(r.Faults, Fault{kind, key, fmt.Sprintf(format, args...)})
}
