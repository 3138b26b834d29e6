// Package leases checks what the callers of one key of a [limiter.Concurrency] were told. The store and the
// callers must share the clock of one machine. The checks go by the answers and that clock, and not by
// [limiter.Op.Apply].
package leases

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

// late is how long after it was sent the server may carry out a statement that nobody waits for.
const late = time.Second

// Event is that an operation on a lease is about to be sent, or was answered.
type Event struct {
	Kind  limiter.OpKind
	ID    int64
	Hold  int64  // ns
	At    int64  // the machine's clock
	Now   int64  // the clock that the store told
	Class string // of the answer: see package outcome. It is empty if the operation is about to be sent.
}

// Recorder is a store that reports the events of leases. Note may be called by several goroutines at once.
type Recorder struct {
	limiter.Store
	Note func(Event)
}

// Do implements [limiter.Store].
func (r Recorder) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if op.ID == 0 {
		return r.Store.Do(ctx, op)
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
	told     int64 // when its caller learned of the lease; 0 if it has not
	end      int64 // as the store told it; 0 if it has not
	released int64 // when the first release was sent; 0 if none was
	releases int   // that were sent
	until    int64 // the lease is certainly over from here on
}

// refusal is an acquire that was refused.
type refusal struct{ sent, answered int64 }

// Ledger records the events of one key. The zero Ledger is empty. It is safe for concurrent use.
type Ledger struct {
	mu       sync.Mutex
	leases   map[int64]*lease
	refusals []refusal
	wrong    []string
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
	counts := map[string]int64{}
	for what, n := range l.counts {
		counts[what] = n
	}
	return counts
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
		m.until = m.sent
	case outcome.NotApplied, outcome.Canceled:
		m.until = m.sent
	case outcome.Unknown, outcome.CanceledLate:
	default:
		l.wrong = append(l.wrong, "an acquire is "+e.Class)
	}
}

// extended records an Extend that makes the lease end later.
func (l *Ledger) extended(m *lease, e Event) {
	switch e.Class {
	case "":
		m.until = max(m.until, e.At+e.Hold+int64(late))
	case outcome.Carried:
		m.end = max(m.end, e.Now+e.Hold)
		m.until = m.end
	case outcome.Refused:
		if m.until = m.end; e.Now < m.end && m.released == 0 {
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
		m.until = min(m.until, e.At)
	case outcome.Refused:
		if m.told == 0 { // the release may have come before the acquire
			return
		}
		if m.until = min(m.until, e.At); m.releases == 1 && e.At < m.end {
			l.wrong = append(l.wrong, fmt.Sprintf("somebody else freed a lease %v before its end", time.Duration(m.end-e.At)))
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
