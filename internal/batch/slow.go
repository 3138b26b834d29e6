package batch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
)

// A row that another session has locked must not stop other keys. A statement waits for a row lock
// for [Config.LockWait] at most. If that is too short, the key is slow: its next statements may wait
// as long as its time limit allows, but need one of the [Slots]. If a call waits 100 ms or longer in
// vain for its row, and nobody wrote that meanwhile, the key fails fast. Then one call asks again at most
// every 100 ms, and the others fail at once, except releases. See DESIGN.md, "A locked row stops only its key".
//
// A statement that waits in the queue of all processes may wait longer. See [Queue.relieve].

const (
	// askAgain is how long the calls of a key that fails fast get no statement.
	askAgain = 100 * time.Millisecond
	// forgetSlow is how long a queue remembers an idle slow key at least. It forgets the key when
	// another one becomes slow later.
	forgetSlow = time.Second
	// maxSlow is how many slow keys a queue remembers. If there are more, it forgets all idle ones.
	maxSlow = 1024
)

// errFailedFast is in the error of a call that failed because its key fails fast.
var errFailedFast = errors.New("not sent, because the last statement of this key waited too long for its row")

// FailedFast reports whether a call failed without a statement because its key fails fast. Such an error
// says nothing new about the store.
func FailedFast(err error) bool { return errors.Is(err, errFailedFast) }

// ErrRowLocked is the error of [HoldAll] if another session has locked the row. The caller releases
// the keys that it holds, and calls [Queue.Lock].
var ErrRowLocked = fmt.Errorf("%w: another session has locked the row", limiter.ErrNotApplied)

// failedFast returns the error of a call that must not be sent because the key fails fast.
func (k *keyQueue) failedFast() error {
	if k.failFast == nil || !k.inFlight && len(k.waiting) == 0 && time.Since(k.asked).Abs() >= askAgain {
		return nil
	}
	return notSent(k.failFast)
}

// notSent returns the error of a call that was not sent, because of a statement that failed with err.
func notSent(err error) error {
	return fmt.Errorf("%w: %w: %v", limiter.ErrNotApplied, errFailedFast, err) //nolint:errorlint // that one was sent
}

// lockTimedOut handles the end of a statement of one key that waited too long for its row. It reports
// whether its calls may be sent again. Otherwise it returns their error. A row that was written while
// the [Group.bounding] call waited, or less than 100 ms ago, is not locked, but busy: see [Statement.NeedsWritten].
func (q *Queue) lockTimedOut(k *keyQueue, st *Statement, err error) (again bool, _ error) {
	st.judge()
	for _, c := range st.Groups[0].Calls {
		c.rowWait += time.Since(st.sent)
	}
	waited := st.bounding.rowWait
	busy := time.Since(st.Written).Abs() < max(st.bounding.ownWait+waited, askAgain)
	again = !busy && !st.last
	// A client may have chosen a short deadline. A wait that this ended does not make the key fail fast.
	_, short := opcontext.Due(st.bounding.ctx)
	failFast := !again && !busy && !short && waited >= askAgain
	if busy {
		if !errors.Is(err, limiter.ErrCanceled) {
			err = fmt.Errorf("%w: others wrote the row meanwhile: %w", limiter.ErrKeyBusy, err)
		}
		q.clearSlow(k)
	} else {
		q.setSlow(k)
	}
	if failFast {
		k.failFast = err
	}
	waiting := k.waiting
	k.waiting, k.mixed = nil, false
	for _, c := range waiting {
		switch {
		case c.left:
		case failFast && c.Op.Kind != limiter.OpRelease:
			if c.hold == nil {
				q.config.Counters.Queued.Add(-1)
			}
			c.finish(notSent(err))
		case c.hold != nil:
			c.finish(ErrRowLocked)
		default:
			k.push(c, q.config.Merges)
		}
	}
	return again, err
}

// judge decides, once, whether the wait of a statement that waited too long for its row was the last one of its
// [Group.bounding] call. That begins no wait in about the last fifth of its time, so that the server can answer.
func (st *Statement) judge() {
	if st.judged {
		return
	}
	lockWait, c := st.queue.config.LockWait, st.bounding
	wait, least := time.Since(st.sent), lockWait
	if st.from != &st.queue.slow {
		least /= 2
	}
	least = max(least, (c.ownWait+c.rowWait+wait)/9)
	st.judged, st.last = true, lockWait == 0 || opcontext.LongestLockWait(c.ctx) < least
	st.queued = st.queueWait > 0 && wait > st.queueWait-time.Millisecond // the store truncates it
}

// NeedsWritten reports whether the store must set Written after a statement that waited too long for its row.
// That is so if it waited for as long as it may queue, or if its bounding call cannot wait again.
func (st *Statement) NeedsWritten() bool {
	st.judge()
	return st.queued || st.last
}

// lockError returns the error of a call whose statement waited too long for its row. The context of a
// leader's statement has no deadline. The call's own context may have one that a client has chosen. A Lock that
// first waited while the store answered others may have had little time left for its row: then the store is not
// at fault.
func (c *Call) lockError(err error) error {
	short := opcontext.ShortDeadline(c.ctx)
	switch {
	case short == nil && c.waited && c.rowWait < askAgain:
		return fmt.Errorf("%w: %w", limiter.ErrKeyBusy, err)
	case short == nil:
		return err
	case errors.Is(err, limiter.ErrOutcomeUnknown): // on Citus, where the time limit ended the statement
		return fmt.Errorf("%w: %w", short, err)
	}
	return fmt.Errorf("%w: %v", short, err) //nolint:errorlint // it would also match ErrNotApplied
}

// setSlow makes a key slow, and remembers it.
func (q *Queue) setSlow(k *keyQueue) {
	if !k.slow {
		q.remembered = append(q.remembered, k)
	}
	now := time.Now()
	k.slow, k.asked = true, now
	full := len(q.remembered) > maxSlow
	q.remembered = slices.DeleteFunc(q.remembered, func(b *keyQueue) bool {
		idle := b != k && !b.inFlight && len(b.waiting) == 0 && b.line == nil
		forget := idle && (full || now.Sub(b.asked).Abs() >= forgetSlow)
		if forget {
			b.slow, b.failFast = false, nil
			q.drop(b)
		}
		return forget
	})
}

// clearSlow ends the state that lockTimedOut began: the store has answered a statement of the key.
func (q *Queue) clearSlow(k *keyQueue) {
	k.slow, k.failFast = false, nil
	q.remembered = slices.DeleteFunc(q.remembered, func(b *keyQueue) bool { return b == k })
}

// Slots limits how many statements of a store may wait long. It is safe for concurrent use.
type Slots struct {
	mu     sync.Mutex
	free   int
	wanted bool // a queue found no free slot
	queues []*Queue
}

// NewSlots returns n Slots.
func NewSlots(n int) *Slots { return &Slots{free: n} }

func (s *Slots) add(q *Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = append(s.queues, q)
}

// acquire takes a slot. If there is none and waits is set, release starts a leader.
func (s *Slots) acquire(waits bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		s.wanted = s.wanted || waits
		return false
	}
	s.free--
	return true
}

// release frees a slot. The caller may have locked the mu of a queue, so another goroutine looks for
// keys that wait for the slot.
func (s *Slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.wanted {
		s.wanted = false
		go s.start()
	}
}

// start leads the slow lines of the queues, from a random one on.
func (s *Slots) start() {
	s.mu.Lock()
	queues := s.queues
	s.mu.Unlock()
	first := rand.IntN(len(queues))
	for i := range queues {
		q := queues[(first+i)%len(queues)]
		q.mu.Lock()
		for range len(q.slow.keys) {
			if q.first(&q.slow) == nil || !q.takeSlot(&q.slow) {
				break
			}
			go q.lead(&q.slow)
		}
		q.mu.Unlock()
	}
}
