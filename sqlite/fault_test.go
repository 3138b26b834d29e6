package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/sqlite"
)

// The tests in files fault*_test.go make something fail. They check that each take is answered in time
// by an error of the right class, that the Store works again soon after, and that the fault admitted
// nothing beyond the policy. Tests that measure time do not run beside others.

// faultTimeout is the time limit of a take. A Store must work again within recovery.
const (
	faultTimeout = 250 * time.Millisecond
	recovery     = 5 * time.Second
)

// grace is how much later than its time limit a take may be answered. A busy machine gets more.
func grace() time.Duration {
	if os.Getenv("CI") != "" {
		return 500 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// budget has more than the takes during a fault, and refills slowly.
var budget = limiter.TokenBucket{Capacity: 500, Refill: 1, Interval: 24 * time.Hour}

// faulty is a Store that meets a fault, and counts what the Store admits.
type faulty struct {
	*testing.T
	path  string
	store *sqlite.Store
	key   string

	// files are closed after the Store: a process that closes a file gives up all its locks on it.
	files []*os.File
	doubt bool // whether takes that meet may be of unknown outcome

	admitted, unknown atomic.Int64
	latest            atomic.Int64 // the longest that a take took
}

// ask takes one, as a Limiter asks a Store.
func (p *faulty) ask(ctx context.Context) error { return p.askFor(ctx, time.Minute) }

// askSoon takes one that has to be answered soon.
func (p *faulty) askSoon(ctx context.Context) error { return p.askFor(ctx, faultTimeout) }

func (p *faulty) askFor(ctx context.Context, timeout time.Duration) error {
	op := takeOf("l", p.key, budget, 1)
	op.At, op.Timeout = 0, timeout
	begin := time.Now()
	s, err := p.store.Do(ctx, op)
	p.took(time.Since(begin))
	switch {
	case err == nil && s.Took:
		p.admitted.Add(1)
	case errors.Is(err, limiter.ErrOutcomeUnknown):
		p.unknown.Add(1)
	}
	return err
}

// takes takes one of a key that has enough.
func (p *faulty) takes(key string) error {
	op := takeOf("l", key, limiter.TokenBucket{Capacity: 1_000_000, Refill: 1, Interval: time.Hour}, 1)
	op.At, op.Timeout = 0, time.Minute
	begin := time.Now()
	state, err := p.store.Do(p.Context(), op)
	p.took(time.Since(begin))
	if err == nil && !state.Took {
		err = errors.New("refused")
	}
	return err
}

// newFaulty returns a Store on a new file.
func newFaulty(t *testing.T, open func(t testing.TB, path string) *sqlite.Store) *faulty {
	p := &faulty{T: t, path: movable(t), key: "key"}
	t.Cleanup(func() {
		for _, f := range p.files {
			f.Close()
		}
	})
	p.store = open(t, p.path)
	return p
}

func (p *faulty) took(d time.Duration) {
	for m := p.latest.Load(); int64(d) > m && !p.latest.CompareAndSwap(m, int64(d)); m = p.latest.Load() {
	}
}

// limiter returns the Limiter that asks for the same as ask.
func (p *faulty) limiter(opts ...limiter.Option) *limiter.Limiter {
	return newLimiter(p.T, p.store, "l", budget, append([]limiter.Option{limiter.WithTimeout(faultTimeout)}, opts...)...)
}

// wantFailures checks that takes by several callers get an error of class in time, or a decision if class is nil.
func (p *faulty) wantFailures(callers int, class error) {
	p.Helper()
	answers := make(chan error, 2*callers)
	stalled := p.inTime(func() {
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range 2 {
					answers <- p.askSoon(p.Context())
				}
			})
		}
		all.Wait()
	})
	close(answers)
	for err := range answers {
		// While the process stood still, the time of a take may have ended in mid-statement.
		if stalled > faultTimeout/4 && errors.Is(err, limiter.ErrOutcomeUnknown) && errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		p.is(err, class)
	}
}

// inTime checks that no take of f takes too long. It returns for how long the process stood still.
func (p *faulty) inTime(f func()) (stalled time.Duration) {
	p.Helper()
	p.latest.Store(0)
	stop := stalls()
	f()
	longest := time.Duration(p.latest.Load())
	stalled = stop()
	if most := faultTimeout + grace() + stalled; longest > most {
		p.Errorf("a take took %v, want %v at most", longest, most)
	}
	p.Logf("the longest take during the fault: %v, beside stalls of %v", longest, stalled)
	return stalled
}

// stalls measures for how long this process gets no processor. stop ends that, and returns the sum.
func stalls() (stop func() time.Duration) {
	const tick, usual = time.Millisecond, 5 * time.Millisecond
	done, sum := make(chan struct{}), make(chan time.Duration)
	go func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		var all time.Duration
		for last, over := time.Now(), false; !over; last = time.Now() {
			select {
			case <-done:
				over = true
			case <-ticker.C:
			}
			if gap := time.Since(last); gap > usual {
				all += gap
			}
		}
		sum <- all
	}()
	return func() time.Duration { close(done); return <-sum }
}

var classes = []error{limiter.ErrInvalid, limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, limiter.ErrCanceled}

// is checks that err has the class, and no other.
func (p *faulty) is(err, class error) {
	p.Helper()
	if p.doubt && errors.Is(err, limiter.ErrOutcomeUnknown) {
		class = limiter.ErrOutcomeUnknown
	}
	for _, c := range classes {
		if errors.Is(err, c) != (c == class) {
			p.Errorf("a take: %v, want the class %v", err, class)
			return
		}
	}
}

// decides checks what a Limiter decides: FailOpen lets no request pass if an operator must act.
func (p *faulty) decides(class error) {
	p.Helper()
	r, err := p.limiter().Allow(p.Context(), p.key)
	if r.Allowed || r.Source != limiter.SourcePolicy || !errors.Is(err, class) {
		p.Errorf("Allow = %+v, %v; want it refused by policy with %v", r, err, class)
	}
	r, err = p.limiter(limiter.FailOpen()).Allow(p.Context(), p.key)
	if open := class != limiter.ErrMisconfigured; r.Allowed != open || (err == nil) != open {
		p.Errorf("Allow with FailOpen = %+v, %v; want Allowed %v", r, err, open)
	}
}

// recovers waits until takes are decided again.
func (p *faulty) recovers() {
	p.Helper()
	begin := time.Now()
	for {
		err := p.askSoon(p.Context())
		if err == nil {
			break
		}
		if d := time.Since(begin); d > recovery {
			p.Fatalf("%v after the fault: %v", d, err)
		}
		<-time.After(time.Millisecond) // a database that has failed is not asked each time
	}
	p.Logf("works again after %v", time.Since(begin))
}

// drains takes what is left, and compares what was admitted with what the policy allows.
func (p *faulty) drains() {
	p.Helper()
	for before := int64(-1); before != p.admitted.Load(); {
		before = p.admitted.Load()
		if err := p.ask(p.Context()); err != nil {
			p.Fatalf("a take after the fault: %v", err)
		}
	}
	admitted, unknown := p.admitted.Load(), p.unknown.Load()
	if admitted > budget.Capacity || admitted+unknown < budget.Capacity {
		p.Errorf("admitted %d, and %d of unknown outcome, want %d", admitted, unknown, budget.Capacity)
	}
}

// fault is a row of a table of faults.
type fault struct {
	name  string
	class error // of takes meanwhile; nil if they are decided
	// doubt is whether the outcome of a take that shares its transaction may also be unknown.
	doubt bool
	slow  bool // takes wait until their time limits end
	open  func(t testing.TB, path string) *sqlite.Store
	// begin makes the fault happen to the Store, and returns what ends it.
	begin func(p *faulty) (end func())
}

func (f fault) run(t *testing.T) {
	t.Run(f.name, func(t *testing.T) {
		if f.slow {
			skipShort(t, "it waits for time limits")
			t.Parallel()
		}
		open := f.open
		if open == nil {
			open = openPath
		}
		p := newFaulty(t, open)
		for range 10 {
			must(t, p.ask(t.Context()))
		}
		end := f.begin(p)
		if f.class != nil {
			p.decides(f.class)
		}
		p.wantFailures(1, f.class)
		p.doubt = f.doubt
		p.wantFailures(4, f.class)
		end()
		p.recovers()
		p.drains()
	})
}

// movable returns a path in a directory that may be renamed.
func movable(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dir")
	must(t, os.Mkdir(dir, 0o700))
	return filepath.Join(dir, "limiter.db")
}
