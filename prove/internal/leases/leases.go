// Package leases checks what the callers of one key of a [limiter.Concurrency] were told. The store and the
// callers must share the clock of one machine. A step of the store's clock must be reported to [Ledger.Step].
// The checks use the answers and that clock, but not [limiter.Op.Apply].
package leases

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

const (
	// late is how long after a statement was sent the server may still carry it out, if its caller has left.
	late = time.Second
	// farthest is how far ahead of the store's clock a lease can end. One that ends later counts as ended.
	farthest = int64(limiter.MaxHold + 2*time.Second)
)

// Event reports that an operation on a lease is about to be sent, or was answered.
type Event struct {
	Kind  limiter.OpKind
	ID    int64
	Hold  int64  // ns
	At    int64  // the machine's clock
	Now   int64  // the reading of the store's clock in the answer
	Class string // of the answer: see package outcome. It is empty if the operation is about to be sent.
}

// Recorder is a store that reports the events of leases. Gate, if it is not nil, is read-locked in each operation.
type Recorder struct {
	limiter.Store
	Note func(Event)
	Gate *sync.RWMutex
}

// Do implements [limiter.Store].
func (r Recorder) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if op.ID == 0 {
		return r.Store.Do(ctx, op)
	}
	if r.Gate != nil {
		r.Gate.RLock()
		defer r.Gate.RUnlock()
	}
	e := Event{Kind: op.Kind, ID: op.ID, Hold: int64(op.Hold), At: time.Now().UnixNano()}
	r.Note(e)
	s, err := r.Store.Do(ctx, op)
	e.At, e.Now, e.Class = time.Now().UnixNano(), s.Now, outcome.Of(s.Took, err)
	r.Note(e)
	return s, err
}

// lease is what is known of a lease. All times are in nanoseconds since 1970.
type lease struct {
	sent     int64 // the acquire
	told     int64 // from when on the lease is certainly held: its caller learned of it; 0 if it has not
	end      int64 // as the store told it; 0 if it has not
	gone     bool  // the store certainly does not have the lease
	released int64 // when the first release was sent; 0 if none was
	releases int   // that were sent
	until    int64 // the lease is certainly over from here on, unless the clock is stepped back
}

// refusal is an acquire that was refused.
type refusal struct{ sent, answered int64 }

// Ledger records the events of one key. The zero Ledger is empty. It is safe for concurrent use.
type Ledger struct {
	mu       sync.Mutex
	leases   map[int64]*lease
	refusals []refusal
	wrong    []string
	held     int   // the most until the latest step of the store's clock
	ahead    int64 // how far the store's clock is ahead of the machine's
	counts   map[string]int64
}

// What a Ledger counts, besides the classes of answers.
const (
	Acquired = "leases acquired"
	Late     = "releases after the end of the lease"
)

// Counts returns what was counted.
func (l *Ledger) Counts() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// Note records an event. Those of one lease must come in their order.
func (l *Ledger) Note(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leases == nil {
		l.leases, l.counts = map[int64]*lease{}, map[string]int64{}
	}
	if e.Class != "" {
		l.counts[e.Class]++
		e.Now -= l.ahead
	}
	if e.Kind == limiter.OpAcquire && e.Class == "" {
		l.leases[e.ID] = &lease{sent: e.At, until: e.At + e.Hold + int64(late)}
		return
	}
	switch m := l.leases[e.ID]; e.Kind {
	case limiter.OpAcquire:
		l.acquired(m, e)
	case limiter.OpExtend:
		l.extended(m, e)
	case limiter.OpRelease:
		l.released(m, e)
	}
}

func (l *Ledger) acquired(m *lease, e Event) {
	switch e.Class {
	case outcome.Carried:
		l.counts[Acquired]++
		m.told, m.end = e.At, e.Now+e.Hold
		m.until = m.end
	case outcome.Refused:
		l.refusals = append(l.refusals, refusal{m.sent, e.At})
		m.until, m.gone = m.sent, true
	case outcome.NotApplied, outcome.Canceled:
		m.until, m.gone = m.sent, true
	case outcome.Unknown, outcome.CanceledLate:
	default:
		l.wrong = append(l.wrong, "an acquire is "+e.Class)
	}
}

// extended records an Extend.
func (l *Ledger) extended(m *lease, e Event) {
	switch e.Class {
	case "":
		m.until = max(m.until, e.At+e.Hold+int64(late))
	case outcome.Carried:
		m.end = e.Now + e.Hold
		m.until = m.end
		if m.told == 0 {
			m.told = e.At
		}
	case outcome.Refused:
		if m.until = m.end; m.told != 0 && e.Now < m.end && m.released == 0 {
			l.wrong = append(l.wrong, fmt.Sprintf("an Extend found no lease %v before its end", time.Duration(m.end-e.Now)))
		}
	}
}

func (l *Ledger) released(m *lease, e Event) {
	switch e.Class {
	case "":
		if m.releases++; m.releases == 1 {
			m.released = e.At
		}
		if m.told != 0 && e.At >= m.end {
			l.counts[Late]++
		}
	case outcome.Carried:
		m.until, m.gone = min(m.until, e.At), true
	case outcome.Refused:
		if m.told == 0 { // the release may have come before the acquire
			return
		}
		m.gone = true
		if m.until = min(m.until, e.At); m.releases == 1 && e.At < m.end {
			l.wrong = append(l.wrong, fmt.Sprintf("somebody else freed a lease %v before its end", time.Duration(m.end-e.At)))
		}
	}
}

// Step notes that the store's clock was stepped, at an instant of the machine's clock. Nothing may be under
// way. All leases end earlier by a step forward, and later by a step back. One that had ended may be held
// again, because the store may still have it. One that ends too far ahead of the clock counts as ended, until
// the clock comes near to its end.
func (l *Ledger) Step(limit int, at int64, by time.Duration) {
	l.held, l.wrong = l.Check(limit)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ahead += int64(by)
	l.refusals = nil
	for _, m := range l.leases {
		if m.gone {
			continue
		}
		exact, held := m.until == m.end, m.told != 0 && m.end > at
		m.end -= int64(by)
		m.until -= int64(by)
		if exact { // otherwise it may have been held since it was sent
			m.sent = m.end - farthest
		}
		if held && m.end <= at+farthest {
			m.told = max(m.told, at)
		} else {
			m.told = 0
		}
	}
}

// Check returns the highest number of leases that were certainly held at a time, and what is wrong besides
// that: a refusal although a place was free, and a place that somebody else freed. A lease is certainly held
// from the answer to its acquire until its first release is sent, or until its end. Nothing may be under way.
func (l *Ledger) Check(limit int) (held int, wrong []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	type step struct {
		at int64
		by int
	}
	var steps []step
	for _, m := range l.leases {
		end := m.end
		if m.releases > 0 {
			end = min(end, m.released)
		}
		if m.told != 0 && m.told < end {
			steps = append(steps, step{m.told, 1}, step{end, -1})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	n := 0
	held = l.held
	for _, s := range steps {
		n += s.by
		held = max(held, n)
	}
	wrong = slices.Clone(l.wrong)
	for _, r := range l.refusals {
		possible := 0
		for _, m := range l.leases {
			if m.sent <= r.answered && m.until > r.sent {
				possible++
			}
		}
		if possible < limit {
			wrong = append(wrong, fmt.Sprintf("an acquire was refused, although only %d leases can have been held", possible))
		}
	}
	return held, wrong
}
