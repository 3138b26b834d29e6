// Package breaker keeps operations from a database that does not answer. The Do methods of postgres
// and sqlite call [Breaker.Enter] before each operation and [Pass.Leave] after it.
package breaker

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
)

const (
	// openAfter is how many failures in a row open the Breaker.
	openAfter = 5
	// After firstProbe the Breaker lets one operation through, then one each after twice as long,
	// up to lastProbe. So a pooler that restarts costs a moment, and a database that is down for
	// long is not asked often.
	firstProbe = 50 * time.Millisecond
	lastProbe  = time.Second
	// beyondLimit is how much longer than its time limit an operation must take to show that no
	// connection could be made: the database does not even say that it is down. One such failure is
	// enough after any other.
	beyondLimit = time.Second
	// leastTime is how much time an operation needs to find out whether the database answers.
	leastTime = 50 * time.Millisecond
)

// Breaker keeps operations from a database that does not answer. Each then costs microseconds
// instead of its time limit, and the database is not flooded when it comes back. Now and then the
// Breaker lets one operation through to find out.
//
// To its callers a locked row looks like a hung database. So an operation is blocked only if it uses
// every key that all failed operations used. See DESIGN.md, "The breaker belongs to the store".
//
// A timeout of an operation with a time limit below 50 ms does not count, because a healthy
// database may need more time. Such an operation is not a probe either, nor is one whose context
// ends within 100 ms. If no other operation asks for 1 s after a probe is due, the Breaker lets one
// of them through. That postpones no probe.
//
// The zero Breaker is closed: it lets every operation through. A Breaker is safe for concurrent
// use.
type Breaker struct {
	// IsOutage reports whether an error of the store means that the database cannot work at the
	// moment. Otherwise the database answered. If IsOutage is nil, every error means that.
	IsOutage func(error) bool

	failing atomic.Bool // whether there is anything to lock mu for
	// round counts the ends of series of failures. The outcome of an operation that was sent in an
	// earlier round does not count.
	round atomic.Uint64

	mu       sync.Mutex
	failures int
	keys     []uint64 // the hashes of the keys that every failed operation used
	tables   []uint   // the sets of tables of the failed operations: see tablesOf
	cause    error
	last     time.Time     // when the last operation was let through, or failed
	wait     time.Duration // from then to the next one; 0 while the Breaker is closed
	openings int64         // how often wait became more than 0
}

// Pass is the Breaker's permission to send one operation.
type Pass struct {
	breaker  *Breaker
	round    uint64
	failures int       // that there were when it was given
	entered  time.Time // if there were any, or if the time limit is below leastTime
}

// Enter returns a Pass for an operation, or an error if the operation must not be sent. The error
// matches [limiter.ErrMisconfigured] if that is why operations failed, otherwise
// [limiter.ErrNotApplied]. Several ops are one operation on several keys. The ctx is the caller's.
func (b *Breaker) Enter(ctx context.Context, ops ...*limiter.Op) (Pass, error) {
	p := Pass{breaker: b, round: b.round.Load()}
	short := isShort(ops)
	if short {
		p.entered = time.Now()
	}
	if !b.failing.Load() {
		return p, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	p.failures, p.entered = b.failures, now
	if !b.blocks(ops) {
		return p, nil
	}
	wait := b.wait
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(now) < 2*leastTime { // half of it is for the store
		short = true
	}
	if short {
		wait += lastProbe
	}
	if passed := since(b.last, now); passed >= 0 && passed < wait {
		return p, fmt.Errorf("%w: not sent, because the last %d tries failed; the next try is %v after the last one: %v",
			b.class(), b.failures, wait, b.cause) //nolint:errorlint // that one may have been sent, this one was not
	}
	if short {
		b.last = now.Add(-b.wait) // a probe stays due
	} else {
		b.last, b.wait = now, min(2*b.wait, lastProbe)
	}
	return p, nil
}

// isShort reports whether the operation's time limit is too short to find out whether the database
// answers.
func isShort(ops []*limiter.Op) bool { return ops[0].Timeout > 0 && ops[0].Timeout < leastTime }

// Stats reports whether the Breaker is open, for one key or for all, and how often it was opened.
func (b *Breaker) Stats() (open bool, openings int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wait > 0, b.openings
}

// blocks reports whether the Breaker is open for an operation. If the operation does not use all keys
// that the failed ones used, it may not need the row that is locked.
func (b *Breaker) blocks(ops []*limiter.Op) bool {
	if b.wait == 0 || slices.ContainsFunc(b.keys, func(key uint64) bool { return !uses(ops, key) }) {
		return false
	}
	return !errors.Is(b.cause, limiter.ErrMisconfigured) || b.failedOn(tablesOf(ops))
}

// class is the class of the error of an operation that is not sent.
func (b *Breaker) class() error {
	if errors.Is(b.cause, limiter.ErrMisconfigured) {
		return limiter.ErrMisconfigured
	}
	return limiter.ErrNotApplied
}

// Leave tells the Breaker the outcome of the operation. If it failed, ops are those that may be why.
func (p Pass) Leave(err error, ops ...*limiter.Op) {
	b := p.breaker
	switch {
	case err == nil:
		if b.failing.Load() {
			b.answered()
		}
	case errors.Is(err, limiter.ErrCanceled), !limiter.StoreFailed(err) && !errors.Is(err, limiter.ErrMisconfigured),
		isShort(ops) && errors.Is(err, context.DeadlineExceeded) && !p.waited(ops):
		// It says nothing of the database.
	case b.IsOutage == nil || b.IsOutage(err):
		b.failed(p, ops, err)
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
	b.failures, b.tables, b.cause, b.wait = 0, nil, nil, 0
	b.failing.Store(false)
}

// failed counts a failure, and opens the Breaker if there were enough. Failures that were in flight
// together count once: they may share a statement, or a pooler may have restarted.
func (b *Breaker) failed(p Pass, ops []*limiter.Op, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.round != b.round.Load() {
		return
	}
	if b.failures == 0 {
		b.keys = b.keys[:0]
		for _, op := range ops {
			b.keys = append(b.keys, hashOf(op))
		}
		b.failing.Store(true)
	} else {
		b.keys = slices.DeleteFunc(b.keys, func(key uint64) bool { return !uses(ops, key) })
	}
	if tables := tablesOf(ops); !slices.Contains(b.tables, tables) {
		b.tables = append(b.tables, tables)
	}
	if p.failures != b.failures {
		return
	}
	b.failures++
	b.cause = err
	now := time.Now()
	if b.wait == 0 && (b.failures > 1 && p.waited(ops) || b.failures >= openAfter) {
		b.wait = firstProbe
		b.openings++
	}
	b.last = now // a probe may take longer than the wait for the next one, and a lone caller made all of them
}

// waited reports whether the operation took so long that it must have waited for a connection that
// could not be made.
func (p Pass) waited(ops []*limiter.Op) bool {
	return !p.entered.IsZero() && time.Since(p.entered)-beyondLimit >= ops[0].Timeout
}

// tablesOf returns the set of tables that an operation uses: one bit for each kind of policy.
func tablesOf(ops []*limiter.Op) (tables uint) {
	for _, op := range ops {
		tables |= 1 << limiter.KindOf(op.Policy)
	}
	return tables
}

// failedOn reports whether an operation has failed that used none but these tables. A right or column
// that is missing in one table may exist in the other.
func (b *Breaker) failedOn(tables uint) bool {
	return slices.ContainsFunc(b.tables, func(failed uint) bool { return failed&^tables == 0 })
}

// seed is the seed of the hashes of keys.
var seed = maphash.MakeSeed()

// uses reports whether an operation uses the key with this hash. A function of slices would cost each
// operation an allocation, because the compiler cannot tell what that does with the pointers.
func uses(ops []*limiter.Op, key uint64) bool {
	for _, op := range ops {
		if hashOf(op) == key {
			return true
		}
	}
	return false
}

func hashOf(op *limiter.Op) uint64 {
	return maphash.String(seed, op.Name)*31 + maphash.String(seed, op.Key)
}

// since returns how long ago then was, as the larger value of both clocks, because the monotonic
// clock may stand still while a process is frozen. It is negative if the wall clock went back.
func since(then, now time.Time) time.Duration {
	wall := now.Round(0).Sub(then.Round(0))
	if wall < 0 {
		return wall
	}
	return max(wall, now.Sub(then))
}
