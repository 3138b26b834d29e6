package batch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// Turn is the right to send one statement. The goroutine that has it waits for a connection, calls
// [Turn.Begin], and carries out the Groups.
//
// [Queue.Enter] gives a Turn to the caller of a lone operation: see DESIGN.md, "A lone operation runs in
// its caller's goroutine". For all other calls, a goroutine of the queue passes a Turn to [Config.Send].
type Turn struct {
	// Groups are the calls to carry out: of different keys, sorted by limiter and key. They are known
	// after Begin. The store calls [Call.Decide] for each call that its statement decides. A call that is
	// alone in its statement must be decided; the queue sends others again that are not.
	Groups []*Group

	queue *Queue
	from  *line
	lone  bool
	own   Call      // of a lone operation
	stop  func()    // of the statement's context, if a leader sends it
	begun bool      // Begin was called
	ended bool      // the slot of the line has passed on to a Hold
	sent  time.Time // zero if it was not sent, or if the queue bounds no lock waits
}

// turns are reused, because groups are most of what an operation would allocate.
var turns = sync.Pool{New: func() any { return new(Turn) }}

func (q *Queue) newTurn(from *line) *Turn {
	t := turns.Get().(*Turn)
	t.queue, t.from = q, from
	return t
}

// group adds a group with no calls.
func (t *Turn) group() *Group {
	if n := len(t.Groups); n < cap(t.Groups) {
		t.Groups = t.Groups[:n+1]
		if g := t.Groups[n]; g != nil {
			return g
		}
		t.Groups = t.Groups[:n]
	}
	g := new(Group)
	t.Groups = append(t.Groups, g)
	return g
}

// recycle clears the Turn, and keeps its memory for another one.
func (t *Turn) recycle() {
	for _, g := range t.Groups {
		clear(g.Calls)
		*g = Group{Calls: g.Calls[:0]}
	}
	*t = Turn{Groups: t.Groups[:0]}
	turns.Put(t)
}

// errNobodyWaits is the error of Begin if all calls have left.
var errNobodyWaits = fmt.Errorf("%w: no call waits", limiter.ErrNotApplied)

// Begin fills in the Groups, and returns the context of the statement. Call it with a connection, right
// before the statement is sent. Fresh reports whether the connection was made for this statement; ctx is
// that in which the connection was made. If Begin fails, send nothing, and return the error.
//
// The context of a leader's statement is no caller's: a caller who leaves would break the connection, and
// leave the outcome of the other calls unknown.
func (t *Turn) Begin(ctx context.Context, fresh bool) (context.Context, error) {
	q, units := t.queue, 1
	t.begun = true
	if t.lone {
		q.config.Counters.Queued.Add(-1)
	} else {
		if q.fill(t); len(t.Groups) == 0 {
			return nil, errNobodyWaits
		}
		ctx, units = t.limit(ctx, fresh)
	}
	if err := opcontext.Begin(ctx, fresh, t.lockWait()); err != nil {
		return nil, err
	}
	q.config.Counters.Sent(len(t.Groups), units)
	return ctx, nil
}

// limit returns the context of a leader's statement, and how many calls it has. The time of the call for
// which the connection was made may be over by now, so the statement has the longest of its calls.
func (t *Turn) limit(ctx context.Context, fresh bool) (limited context.Context, units int) {
	var longest time.Duration
	for _, g := range t.Groups {
		units += len(g.Calls)
		for _, c := range g.Calls {
			longest = max(longest, c.Op.Timeout)
			opcontext.Connected(c.ctx, fresh)
		}
	}
	limited, t.stop = t.queue.config.Deadlines.WithTimeout(context.WithoutCancel(ctx), max(longest, opcontext.Grace))
	return limited, units
}

// lockWait returns how long the statement may wait for row locks, 0 if only its time bounds that. Calls that
// failed together with others wait for a quarter of the usual time: they have waited before, and some
// of their rows are probably locked.
func (t *Turn) lockWait() time.Duration {
	config := &t.queue.config
	if config.Locked == nil {
		return 0
	}
	t.sent = time.Now()
	first := t.Groups[0].Calls[0]
	switch {
	case t.from == &t.queue.slow: // no longer than its caller waits
		return max(opcontext.LongestLockWait(first.ctx), 1)
	case len(t.Groups) > 1:
		return config.SharedLockWait
	case first.retried:
		return config.LockWait / 4
	}
	return config.LockWait
}

// isLocked reports whether the statement was sent and failed because it waited too long for its row.
func (t *Turn) isLocked(err error) bool {
	return err != nil && !t.sent.IsZero() && t.queue.config.Locked(err)
}

// Recover turns a panic into an error. Defer it where the statement is sent: it is chance whether the
// goroutine of a caller sends it, who could recover the panic, or one of the queue, where the panic would
// end the process.
func (t *Turn) Recover(err *error) {
	if p := recover(); p != nil {
		class := limiter.ErrNotApplied
		if t.begun {
			class = limiter.ErrOutcomeUnknown
		}
		*err = fmt.Errorf("%w: panic: %v", class, p)
	}
}

// End ends a Turn that [Queue.Enter] returned, with the error of its statement, and returns the outcome
// of the operation. The Turn must not be used afterwards. If the statement waited too long for its row, End
// may wait until a goroutine of the queue has sent the operation once more.
func (t *Turn) End(err error) (limiter.State, error) {
	q, from := t.queue, t.from
	if !t.begun {
		q.config.Counters.Queued.Add(-1)
	}
	state, op, ctx := t.own.state, t.own.Op, t.own.ctx
	q.mu.Lock()
	k := q.keys[idOf(&op)]
	again := t.isLocked(err) && q.locked(k, t, err)
	t.recycle()
	if err == nil {
		from.answers++
	}
	if k.inFlight = again; again { // until the call is in the queue
		q.release(from)
		k.inFlight = false
		return q.wait(ctx, &Call{Op: op}, k, true)
	}
	if start := q.free(k, err == nil); start != nil {
		go q.lead(start)
	}
	q.release(from)
	q.mu.Unlock()
	if err != nil {
		return limiter.State{}, err
	}
	return state, nil
}
