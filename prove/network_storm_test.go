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
	"github.com/sqlimit/limiter/prove/internal/campaign"
	"github.com/sqlimit/limiter/prove/internal/ledger"
	"github.com/sqlimit/limiter/prove/internal/outcome"
)

const (
	// hurry is when the context of some callers ends, and headroom how much earlier they
	// are answered.
	hurry    = 600 * time.Millisecond
	headroom = 100 * time.Millisecond
	// calm is for how long nothing may fail for a fault to be overcome.
	calm = 300 * time.Millisecond
)

// storm is a fault under load.
type storm struct {
	dsn        string // how stores reach the server
	server     string // the DSN of the server itself
	begin, end func(t *testing.T)
	lasts      time.Duration // 0 is most of a second
	// dials is whether the making of a connection may hang. It has a limit of its own.
	dials bool
	// after is what comes before the row's stores are closed; nil is nothing.
	after func()
	// must are classes of answers of which there has to be one meanwhile.
	must []string
	// count is what is counted of it, once a round.
	count string
}

// stormy is how the callers of a storm fare.
type stormy struct {
	*load
	storm

	mu       sync.Mutex
	classes  map[string]int64
	failed   time.Time     // when an answer was a failure at last
	failure  error         // that one
	granted  time.Time     // when there was a grant at last
	longest  time.Duration // an answer took
	overtime time.Duration // by which one came later than it may
	tardy    string        // what that was
}

// run has callers take while the fault begins, lasts and ends, and until it is overcome.
func (s storm) run(t *testing.T, r *campaign.Round, l *load) {
	t.Helper()
	w := &stormy{load: l, storm: s, classes: map[string]int64{}}
	late := newTardiness()
	stop := w.callers(t.Context(), r.Rand, 32)
	wait(t.Context(), 100*time.Millisecond)
	w.forget()
	s.begin(t)
	lasts := s.lasts
	if lasts == 0 {
		lasts = 700 * time.Millisecond
	}
	wait(t.Context(), lasts)
	s.end(t)
	ended := time.Now()
	seen := w.forget()
	for _, class := range s.must {
		if seen[class] == 0 {
			t.Errorf("no answer was %q: %v", class, seen)
		}
	}
	for w.troubled(ended) && time.Since(ended) < recovery+calm {
		wait(t.Context(), 5*time.Millisecond)
	}
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
	lag := late.stop()
	r.Most("a timer rang too late", lag)
	if n := seen[outcome.Canceled] + seen[outcome.CanceledLate] + after[outcome.Canceled] + after[outcome.CanceledLate]; n > 0 && lag+lateness() < headroom {
		t.Errorf("%d answers were that the caller left, who had time: %v", n, w.failure)
	}
	if w.overtime > lateness()+lag {
		t.Errorf("an answer came %v later than it may, where timers ring %v late: %s", w.overtime, lag, w.tardy)
	}
	if took := w.failed.Sub(ended); took > recovery {
		t.Errorf("the last failure was %v after the end of the fault, since which callers were told %v: %v", took, after, w.failure)
	}
	l.exact(t, r, w.server)
}

// callers starts so many of them.
func (w *stormy) callers(ctx context.Context, r *rand.Rand, n int) (stop func()) {
	var all sync.WaitGroup
	ended := make(chan struct{})
	for i := range n {
		own := rand.New(rand.NewPCG(r.Uint64(), uint64(i)))
		all.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				w.step(ctx, own, i)
				wait(ctx, time.Duration(2+own.IntN(10))*time.Millisecond)
			}
		})
	}
	return func() {
		close(ended)
		all.Wait()
	}
}

// step is one take of a caller, every other of whom is in a hurry.
func (w *stormy) step(ctx context.Context, r *rand.Rand, caller int) {
	of := w.limiters[caller%len(w.limiters)]
	lim := of[r.IntN(len(of))]
	limit := 2 * limiter.DefaultTimeout // a connection that has just been made begins it anew
	if w.dials {
		limit = dialLimit + limiter.DefaultTimeout
	}
	if caller%2 == 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, hurry)
		defer cancel()
		limit = min(limit, hurry-headroom)
	}
	began := time.Now()
	key, cost := fmt.Sprintf("%d/%d", w.epoch, r.IntN(40)), 1+r.Int64N(3)
	res, err := lim.AllowN(ctx, key, cost)
	now := time.Now()
	class := w.note(lim, key, cost, res, err)
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
		w.overtime, w.tardy = over, fmt.Sprintf("%s after %v, with a limit of %v: %v", class, took, limit, err)
	}
}

// note notes an answer. Those who are in a hurry may be told that they left, if the machine
// was late, and is then said to be.
func (w *stormy) note(lim *limiter.Limiter, key string, cost int64, res limiter.Result, err error) string {
	_, window := lim.Policy().(limiter.FixedWindow)
	id := ledger.ID{Window: window, Limiter: lim.Name(), Key: key}
	class := outcome.Of(res.Allowed, err)
	switch class {
	case outcome.Canceled:
		err = limiter.ErrNotApplied
	case outcome.CanceledLate:
		err = limiter.ErrOutcomeUnknown
	}
	w.ledger.Note(id, capacityOf(lim.Policy()), cost, res, err)
	return class
}

// forget returns how many answers there were of each class since the last time.
func (w *stormy) forget() map[string]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.classes
	w.classes = map[string]int64{}
	return seen
}

// troubled reports whether a fault that ended then is not overcome yet.
func (w *stormy) troubled(ended time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	bad := slices.MaxFunc([]time.Time{ended, w.failed}, time.Time.Compare)
	return time.Since(bad) < calm || w.granted.Before(bad)
}

// tardiness is by how much timers ring too late, as they do on a machine that is busy.
type tardiness struct {
	most  time.Duration
	ended chan struct{}
	done  sync.WaitGroup
}

func newTardiness() *tardiness {
	const tick = 5 * time.Millisecond
	l := &tardiness{ended: make(chan struct{})}
	l.done.Go(func() {
		for {
			began := time.Now()
			select {
			case <-l.ended:
				return
			case <-time.After(tick):
				l.most = max(l.most, time.Since(began)-tick)
			}
		}
	})
	return l
}

func (l *tardiness) stop() time.Duration {
	close(l.ended)
	l.done.Wait()
	return l.most
}
