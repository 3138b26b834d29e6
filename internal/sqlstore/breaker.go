package sqlstore

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
)

const (
	// breakerFailures is how many operations in a row have to fail for the database to
	// count as down.
	breakerFailures = 5
	// From then on one operation is let through after firstProbe, and then one each after
	// twice as long, up to lastProbe: a pooler that restarts is back soon, while who waits
	// for a database for long is not to ask it often.
	firstProbe = 50 * time.Millisecond
	lastProbe  = time.Second
	// An operation that took longer than its time limit, by so much, has waited for a
	// connection to be made, in vain: the database does not even say that it is down. One
	// such failure is enough, after any other.
	beyondLimit = time.Second
)

// Breaker keeps operations from a database that does not answer, so that each costs
// microseconds in place of its time limit, and not everybody asks it when it comes back.
// Now and then it lets one through, which finds out. The zero Breaker is closed: it lets
// everything through. A Breaker is safe for concurrent use.
//
// To its callers a locked row looks like a database that hangs. So while only one key fails,
// only that key is blocked.
type Breaker struct {
	// Down reports whether an error of the store means that the database cannot work at the
	// moment. Otherwise the database answered. nil always reports true.
	Down func(error) bool

	failing atomic.Bool // whether there is anything to lock mu for
	// round counts the ends of failures in a row. What was sent in an earlier one says
	// nothing of this one.
	round atomic.Uint64

	mu       sync.Mutex
	failures int
	key      uint64 // that has failed, by its hash
	others   bool   // other keys have failed, too
	windows  bool   // fixed windows have failed
	buckets  bool   // token buckets have failed
	cause    error
	asked    time.Time     // when an operation was let through at last, or had failed
	wait     time.Duration // from then to the next one; 0 while the Breaker is closed
}

// Pass is a Breaker's leave to ask the database for one operation.
type Pass struct {
	breaker  *Breaker
	round    uint64
	failures int       // that there were when it was given
	entered  time.Time // if there were any
}

// Enter returns a Pass for op, or an error if the database is not to be asked: of class
// [limiter.ErrMisconfigured] if that is what its operations failed as, else
// [limiter.ErrNotApplied].
func (b *Breaker) Enter(op *limiter.Op) (Pass, error) {
	p := Pass{breaker: b, round: b.round.Load()}
	if !b.failing.Load() {
		return p, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	p.failures, p.entered = b.failures, now
	if b.wait == 0 || !b.others && hashOf(op) != b.key || errors.Is(b.cause, limiter.ErrMisconfigured) && !*b.failedOn(op) {
		return p, nil
	}
	if passed := since(b.asked, now); passed >= 0 && passed < b.wait {
		return p, fmt.Errorf("%w: not sent, because the last %d tries failed; the next one is %v after the one before: %v",
			b.class(), b.failures, b.wait, b.cause) //nolint:errorlint // that one may have been sent, this one was not
	}
	b.asked, b.wait = now, min(2*b.wait, lastProbe)
	return p, nil
}

// class is that of the error of an operation which is not sent.
func (b *Breaker) class() error {
	if errors.Is(b.cause, limiter.ErrMisconfigured) {
		return limiter.ErrMisconfigured
	}
	return limiter.ErrNotApplied
}

// Leave tells what came of the operation that the Pass was for.
func (p Pass) Leave(op *limiter.Op, err error) {
	b := p.breaker
	switch {
	case err == nil:
		b.answered()
	case errors.Is(err, limiter.ErrCanceled), !limiter.StoreFailed(err) && !errors.Is(err, limiter.ErrMisconfigured):
		// It says nothing of the database.
	case b.Down == nil || b.Down(err):
		b.failed(p, op, err)
	default:
		b.answered()
	}
}

// answered closes the Breaker.
func (b *Breaker) answered() {
	if !b.failing.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.round.Add(1)
	b.failures, b.others, b.windows, b.buckets, b.cause, b.wait = 0, false, false, false, nil, 0
	b.failing.Store(false)
}

// failed counts a failure, and opens the Breaker if there were enough. Of operations that
// were under way together one counts: that of many which shared a statement is one failure,
// and so is a pooler that restarts.
func (b *Breaker) failed(p Pass, op *limiter.Op, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.round != b.round.Load() {
		return
	}
	if key := hashOf(op); b.failures == 0 {
		b.key = key
		b.failing.Store(true)
	} else if key != b.key {
		b.others = true
	}
	*b.failedOn(op) = true
	if p.failures != b.failures {
		return
	}
	b.failures++
	b.cause = err
	now := time.Now()
	waited := !p.entered.IsZero() && now.Sub(p.entered)-beyondLimit >= op.Timeout
	if b.wait == 0 && (waited || b.failures >= breakerFailures) {
		b.wait = firstProbe
	}
	b.asked = now // a probe may take longer than the wait for the next one, and a lone caller made all of them
}

// failedOn is whether an operation on op's table has failed: what is missing there, a right or
// a column, the other one may have.
func (b *Breaker) failedOn(op *limiter.Op) *bool {
	if _, ok := op.Policy.(limiter.FixedWindow); ok {
		return &b.windows
	}
	return &b.buckets
}

// seed is that of the hashes of keys that failed.
var seed = maphash.MakeSeed()

func hashOf(op *limiter.Op) uint64 {
	return maphash.String(seed, op.Name)*31 + maphash.String(seed, op.Key)
}

// since returns how long ago then was: by the wall clock, too, because the other one may
// stand still while a process is frozen. It is negative if the wall clock went back.
func since(then, now time.Time) time.Duration {
	wall := now.Round(0).Sub(then.Round(0))
	if wall < 0 {
		return wall
	}
	return max(wall, now.Sub(then))
}
