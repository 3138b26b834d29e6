package history

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sqlimit/limiter"
)

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
	state, err := r.Store.Do(ctx, op)
	c.Ended, c.State = Clock(), state
	if errors.Is(err, limiter.ErrOutcomeUnknown) {
		c.Outcome = Unknown
	} else if err != nil {
		c.Outcome = NotApplied
	}
	r.add(c)
	return state, err
}

// Denied records a take that a Limiter refused from memory, between two readings of the [Clock].
func (r *Recorder) Denied(op limiter.Op, began, ended int64) {
	r.add(Call{Op: op, Outcome: DenyCache, Began: began, Ended: ended})
}

func (r *Recorder) add(c Call) {
	c.Op.Timeout = 0
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
}

// Calls returns what was recorded. No call may be under way.
func (r *Recorder) Calls() []Call { return r.calls }
