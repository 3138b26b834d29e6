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
