package prove_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

const (
	// nearDeadline is the deadline of half of the callers. They get their answer headroom earlier. A call
	// that waits for others, then for a connection that somebody makes, and is then sent has three time
	// limits, of which the store may notice one 100 ms late. The deadline leaves slack beside them. Such a
	// call must not fail because its caller left.
	nearDeadline = 3*limiter.DefaultTimeout + 100*time.Millisecond + headroom + slack
	headroom     = 100 * time.Millisecond
	slack        = 200 * time.Millisecond
	quietTime    = 300 * time.Millisecond // the time without a failure after which a fault counts as overcome
)

type loadFault struct {
	dsn        string // how stores reach the server
	server     string // the DSN of the server itself
	begin, end func(t *testing.T)
	dials      bool     // connecting may hang; it has a limit of its own
	after      func()   // runs before the stores are closed; may be nil
	must       []string // classes of answers that must come during the fault
	count      string   // rises by one each round; may be empty
}

// loadRun is a run of a loadFault, and what its callers measured.
type loadRun struct {
	*load
	loadFault

	mu       sync.Mutex
	classes  map[string]int64
	failed   time.Time     // time of the last failure
	failure  error         // the last failure
	granted  time.Time     // time of the last grant
	longest  time.Duration // the longest latency
	overtime time.Duration // the longest time by which an answer was late
	latest   string        // that answer
}

// run lets callers take while the fault begins, lasts and ends, until it is overcome.
func (s loadFault) run(t *testing.T, r *campaign.Round, l *load) {
	w := &loadRun{load: l, loadFault: s, classes: map[string]int64{}}
	// A store without a connection sends nothing, so none of its answers could be of unknown outcome.
	l.recovers(t, r, time.Now())
	delay := timerDelay()
	stop := repeat(r.Rand, 32, func(own *rand.Rand, caller int) {
		w.step(t.Context(), own, caller)
		wait(t.Context(), time.Duration(2+own.IntN(10))*time.Millisecond)
	})
	wait(t.Context(), 100*time.Millisecond)
	w.forget()
	s.begin(t)
	wait(t.Context(), 700*time.Millisecond)
	await(t, recovery, func() bool { return w.saw(s.must) }) // a busy machine may need longer for the answers
	s.end(t)
	ended := time.Now()
	seen := w.forget()
	for _, class := range s.must {
		testenv.Equal(t, seen[class] > 0, true, "an answer was", class, seen)
	}
	await(t, recovery+quietTime, func() bool { return !w.troubled(ended) })
	stop()
	after := w.forget()
	for class, n := range seen {
		r.Count("meanwhile "+class, n)
	}
	if s.count != "" {
		r.Count(s.count, 1)
	}
	r.Most("answer", w.longest)
	r.Most("answer later than its limit", max(0, w.overtime))
	r.Most("recovery", max(0, w.failed.Sub(ended)))
	lag := delay()
	r.Most("a timer rang too late", lag)
	if n := seen[outcome.Canceled] + seen[outcome.CanceledLate] + after[outcome.Canceled] + after[outcome.CanceledLate]; n > 0 && !s.dials && lag < slack {
		t.Errorf("%d answers were that the caller left, who had time: %v", n, w.failure)
	}
	testenv.Equal(t, w.overtime <= lateness()+lag, true, "an answer came", w.overtime, "later than it may, where timers ring late by", lag, w.latest)
	if took := w.failed.Sub(ended); took > recovery {
		t.Errorf("the last failure was %v after the end of the fault, since which callers were told %v: %v", took, after, w.failure)
	}
	l.exact(t, r, w.server)
}

// step is one take of a caller, and every other caller has a near deadline.
func (w *loadRun) step(ctx context.Context, r *rand.Rand, caller int) {
	of := w.limiters[caller%len(w.limiters)]
	lim := of[r.IntN(len(of))]
	limit := 2 * limiter.DefaultTimeout // a connection that has just been made begins it anew
	if w.dials {
		limit = dialLimit + limiter.DefaultTimeout
	}
	if caller%2 == 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, nearDeadline)
		defer cancel()
		limit = min(limit, nearDeadline-headroom)
	}
	began := time.Now()
	key, cost := fmt.Sprintf("%d/%d", w.epoch, r.IntN(40)), 1+r.Int64N(3)
	res, err := lim.AllowN(ctx, key, cost)
	now := time.Now()
	class := outcome.Of(res.Allowed, err)
	w.noteLeaver(lim, key, cost, class, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.classes[class]++
	switch class {
	case outcome.Carried:
		w.granted = now
	case outcome.Refused:
	default:
		w.failed, w.failure = now, err
	}
	took := now.Sub(began)
	w.longest = max(w.longest, took)
	if over := took - limit; over > w.overtime {
		w.overtime, w.latest = over, fmt.Sprintf("%s after %v, with a limit of %v: %v", class, took, limit, err)
	}
}

// forget returns the number of answers of each class since the last call.
func (w *loadRun) forget() map[string]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.classes
	w.classes = map[string]int64{}
	return seen
}

// saw reports whether there was an answer of each class since forget was called.
func (w *loadRun) saw(classes []string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(classes, func(class string) bool { return w.classes[class] == 0 })
}

// troubled reports whether callers still suffer from a fault that has ended.
func (w *loadRun) troubled(ended time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	bad := slices.MaxFunc([]time.Time{ended, w.failed}, time.Time.Compare)
	return time.Since(bad) < quietTime || w.granted.Before(bad)
}

// timerDelay measures how late timers fire, as they do on a busy machine. stop returns the longest delay.
func timerDelay() (stop func() time.Duration) {
	const tick = 5 * time.Millisecond
	ended, most := make(chan struct{}), make(chan time.Duration)
	go func() {
		var longest time.Duration
		for {
			began := time.Now()
			select {
			case <-ended:
				most <- longest
				return
			case <-time.After(tick):
				longest = max(longest, time.Since(began)-tick)
			}
		}
	}()
	return func() time.Duration {
		close(ended)
		return <-most
	}
}
