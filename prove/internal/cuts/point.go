package cuts

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/prove/internal/cutproxy"
	"github.com/sqlimit/limiter/prove/internal/outcome"
	"github.com/sqlimit/limiter/prove/internal/tables"
)

// Measure returns how many bytes the operation sends and is sent on a connection that has done it before.
func (w *Client) Measure() (sizes [2]int64, err error) {
	if err := w.once(); err != nil {
		return sizes, err
	}
	if w.dial, err = w.measureDial(); err != nil {
		return sizes, err
	}
	if err := w.once(); err != nil {
		return sizes, err
	}
	a, err := w.attempt(cutproxy.Cut{After: math.MaxInt64, Fresh: w.kind.Fresh})
	if err == nil {
		err = w.succeeded(a)
	}
	if err != nil {
		return sizes, err
	}
	if w.mode.text {
		for _, part := range w.kind.statements {
			if !strings.Contains(a.trap.Sent(), part) {
				return sizes, fmt.Errorf("%q is not sent", part)
			}
		}
	}
	return a.trap.Passed(), nil
}

// measureDial makes a connection and returns how many bytes that takes.
func (w *Client) measureDial() (sizes [2]int64, err error) {
	trap := w.proxy.Arm(cutproxy.Cut{After: math.MaxInt64, Fresh: true})
	defer trap.Disarm()
	w.pool.Reset()
	err = w.pool.AcquireFunc(context.Background(), func(*pgxpool.Conn) error { return nil })
	return trap.Passed(), err
}

// attempt is an operation, done once.
type attempt struct {
	before  map[string]int64 // what its keys had spent
	trap    *cutproxy.Trap
	cut     bool
	answers []answer
}

// attempt does the operation on a connection that is cut meanwhile.
func (w *Client) attempt(cut cutproxy.Cut) (a attempt, err error) {
	if err := w.ready(); err != nil {
		return a, err
	}
	if a.before, err = w.spent(); err != nil {
		return a, err
	}
	a.trap = w.proxy.Arm(cut)
	if w.kind.Fresh {
		w.pool.Reset()
	}
	a.answers = w.kind.act(w)
	a.cut = a.trap.Disarm()
	return a, nil
}

// succeeded returns an error unless an attempt did all that it should.
func (w *Client) succeeded(a attempt) error {
	for _, answer := range a.answers {
		if answer.err != nil || answer.carried == (w.kind.reads || w.kind.refused) {
			return fmt.Errorf("carried out %t, %w", answer.carried, answer.err)
		}
	}
	_, err := w.judge(a)
	return err
}

// once does the operation, which is not to fail.
func (w *Client) once() error {
	a, err := w.attempt(cutproxy.Cut{After: math.MaxInt64})
	if err != nil {
		return err
	}
	return w.succeeded(a)
}

// spent returns what the keys have spent: leases, tokens of a bucket, or units of the window of the row. A
// bucket gains no token while it is used. No kind uses a key both in a bucket and in a window.
func (w *Client) spent() (map[string]int64, error) {
	found := map[string]int64{}
	err := w.rows(func(kind limiter.PolicyKind, _, key string, row limiter.Row) {
		found[key] += rowtest.Used(kind, row, row.At)
	})
	return found, err
}

// rows reads the rows of the keys. The primary key serves a range even if the plan was made for an empty table.
func (w *Client) rows(each func(kind limiter.PolicyKind, name, key string, row limiter.Row)) error {
	return tables.Rows(context.Background(), w.db, "WHERE limiter = $1 AND key BETWEEN $2 AND $3", each, w.name, []byte(w.keys[0]), []byte(w.keys[2]))
}

// Finding is what a cut has led to.
type Finding struct {
	Classes map[string]int64 // how many answers there were of each class
	Surplus int64            // operations that were carried out, although no answer allows it
	Lost    int64            // operations that were not carried out, although an answer says so
	Took    time.Duration    // the longest time of an answer
}

// Cut does the operation on a connection that is cut, and then once more. The error says what is wrong.
func (w *Client) Cut(cut cutproxy.Cut) (found Finding, err error) {
	cut.Fresh = w.kind.Fresh
	a, err := w.attempt(cut)
	for tries := 1; err == nil && !a.cut && w.kind.leases && tries < 9; tries++ {
		a, err = w.attempt(cut) // as text, the id of a lease may be a digit shorter than when it was measured
	}
	if err != nil {
		return found, err
	}
	if !a.cut {
		return found, fmt.Errorf("it was not cut: %d bytes passed, and it was answered %v", a.trap.Passed(), a.answers)
	}
	if found, err = w.judge(a); err != nil {
		return found, err
	}
	w.unheeded = true
	for _, answer := range a.answers {
		w.unheeded = w.unheeded && answer.err == nil
		if outcome.Of(answer.carried, answer.err) == outcome.Unknown && !w.mayBeUnknown(cut) {
			return found, fmt.Errorf("nothing can have been carried out, but it is %w", answer.err)
		}
	}
	if err := w.once(); err != nil {
		return found, fmt.Errorf("the next call: %w", err)
	}
	return found, nil
}

// CutWorker does the operation on a Citus cluster, with a connection to the worker that is cut. It reports whether the
// operation sent so many bytes there. The error says what is wrong.
func (w *Client) CutWorker(cut cutproxy.Cut) (reached bool, found Finding, err error) {
	a, err := w.attempt(cut)
	for outcome.Of(false, err) == outcome.NotApplied { // the coordinator keeps connections that an earlier cut broke
		a, err = w.attempt(cut)
	}
	if err != nil {
		return false, found, fmt.Errorf("without a cut: %w", err)
	}
	// A transaction whose second COMMIT was lost stays prepared until the coordinator recovers it.
	if _, err = w.db.Exec(context.Background(), "SELECT recover_prepared_transactions()"); err == nil {
		found, err = w.judge(a)
	}
	return a.cut, found, err
}

// mayBeUnknown reports whether something may have been carried out where a connection was
// cut, as far as the client can tell: not by a read, nor while the connection was made.
func (w *Client) mayBeUnknown(cut cutproxy.Cut) bool {
	made := w.dial[cut.Direction]
	if cut.Direction == cutproxy.Request {
		made++ // what comes back then does not pass any more
	}
	return !w.kind.reads && !(cut.Fresh && cut.After < made)
}

func (w *Client) judge(a attempt) (found Finding, err error) {
	spent, err := w.spent()
	if err != nil {
		return found, err
	}
	found.Classes = map[string]int64{}
	if w.kind.leases {
		err = w.judgeLeases(a)
	}
	keys := w.keys
	if w.kind.joint {
		// What is true of the first key is true of all.
		for _, key := range keys[1:] {
			if first := keys[0]; spent[key]-a.before[key] != spent[first]-a.before[first] {
				err = errors.Join(err, fmt.Errorf("not all was taken, or none: %v is spent, and was %v", spent, a.before))
			}
		}
		keys = keys[:1]
	}
	for _, key := range keys {
		change := spent[key] - a.before[key]
		carried := change / w.kind.unit
		told := map[string]int64{}
		for _, answer := range a.answers {
			if answer.key == key {
				told[outcome.Of(answer.carried, answer.err)]++
				found.Took = max(found.Took, answer.took)
			}
		}
		certain := told[outcome.Carried]
		possible := told[outcome.Unknown] + told[outcome.CanceledLate] + told[outcome.Other]
		lost, surplus := max(0, certain-carried), max(0, carried-certain-possible)
		if lost > 0 || surplus > 0 || change%w.kind.unit != 0 {
			err = errors.Join(err, fmt.Errorf("a key has spent %d, and %d before, but it was told %v", spent[key], a.before[key], told))
		}
		found.Lost, found.Surplus = found.Lost+lost, found.Surplus+surplus
		for class, n := range told {
			found.Classes[class] += n
			switch class {
			case outcome.Carried, outcome.Refused, outcome.NotApplied, outcome.Unknown:
			default:
				err = errors.Join(err, fmt.Errorf("an answer is %s: %v", class, a.answers))
			}
		}
	}
	return found, err
}

// judgeLeases checks that each lease ends in time, and that an acquire of unknown outcome sends one release.
func (w *Client) judgeLeases(a attempt) error {
	latest, late := noon.Add(hold).UnixNano(), int64(0)
	err := w.rows(func(kind limiter.PolicyKind, _, _ string, row limiter.Row) { late += rowtest.Used(kind, row, latest) })
	if err == nil && late > 0 {
		err = fmt.Errorf("%d leases end after their time", late)
	}
	if err != nil {
		return err
	}
	var want int
	if w.kind.unit < 0 { // it is a release itself
		want = 1
	}
	if w.releases != want {
		return fmt.Errorf("%d releases more than acquires of unknown outcome, want %d; the answers are %v", w.releases, want, a.answers)
	}
	return nil
}
