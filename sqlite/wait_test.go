package sqlite_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/sqlite"
)

// gate is a clock that can stop: so an operation that may write keeps its turn.
type gate struct {
	*sqlite.Store
	closed atomic.Pointer[chan struct{}] // nil if the gate is open
	all    sync.WaitGroup
}

func newGate(t *testing.T) *gate {
	// The statements of this pool end with the context, so that the end of a time limit shows.
	g := &gate{Store: newStore(t, openPool(t, "&_journal_mode=WAL"))}
	g.SetClock(func() time.Time {
		if closed := g.closed.Load(); closed != nil {
			<-*closed
		}
		return time.Now()
	})
	return g
}

// stop closes the gate, until open is called. Operations that come meanwhile pass after letPass.
func (g *gate) stop() (open func()) {
	closed := make(chan struct{})
	g.closed.Store(&closed)
	return func() { close(closed) }
}

func (g *gate) letPass() { g.closed.Store(nil) }

// start makes a request of two limits, which waits in the line of those who write.
func (g *gate) start(ctx context.Context, key string, timeout time.Duration) (answer *error) {
	ops := []limiter.Op{takeOf("l0", key, slow, 1), takeOf("l1", key, window, 1)}
	for i := range ops {
		ops[i].At, ops[i].Timeout = 0, timeout
	}
	answer = new(error)
	g.all.Go(func() { _, *answer = g.DoAll(ctx, ops) })
	synctest.Wait()
	return answer
}

// hold starts a request that keeps its turn until open is called. It is not refused without a turn.
func (g *gate) hold(ctx context.Context) (open func()) {
	op := takeOf("l", "first", limiter.FixedWindow{Limit: 1, Window: time.Hour, CountRejected: true}, 1)
	op.At = 0
	open = g.stop()
	g.all.Go(func() { _, _ = g.Do(ctx, op) })
	synctest.Wait()
	g.letPass()
	return open
}

// A process that is busy with its own operations is no failed store.
func TestTimeSpentBehindOthers(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	for name, commits := range map[string]bool{"others commit": true, "nobody commits": false} {
		bubble(t, "a time limit that ends while "+name, func(t *testing.T) {
			g := newGate(t)
			openFirst := g.hold(t.Context())
			g.start(t.Context(), "second", time.Minute)
			answer := g.start(t.Context(), "third", limit)
			openSecond := func() {}
			if commits {
				<-time.After(limit / 2)
				openSecond = g.stop()
				openFirst()
			}
			<-time.After(limit)
			synctest.Wait()
			if !errors.Is(*answer, limiter.ErrNotApplied) || errors.Is(*answer, limiter.ErrKeyBusy) != commits || limiter.StoreFailed(*answer) == commits {
				t.Errorf("%v; want ErrNotApplied, and ErrKeyBusy: %t", *answer, commits)
			}
			if openSecond(); !commits {
				openFirst()
			}
			g.all.Wait()
		})
		bubble(t, "a turn that comes after "+name, func(t *testing.T) {
			g := newGate(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			openFirst := g.hold(ctx)
			answer := g.start(t.Context(), "second", limit)
			<-time.After(limit * 9 / 10)
			if !commits {
				cancel()
			}
			openSecond := g.stop()
			openFirst()
			<-time.After(limit / 2) // the turn came, and the time limit would be over
			openSecond()
			g.all.Wait()
			testenv.Equal(t, *answer == nil, commits, "a late turn has its full time limit:", *answer)
		})
	}
}

// late is a context that ends without telling anybody who waits.
type late struct {
	context.Context
	ended atomic.Bool
}

func (l *late) Err() error {
	if l.ended.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

func TestTurnThatComesTooLateIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		ctx, cancel := context.WithCancel(t.Context())
		openFirst := g.hold(ctx)
		ended := &late{Context: context.Background()}
		answer := g.start(ended, "late", 0)
		ended.ended.Store(true)
		cancel() // the first one commits nothing
		openFirst()
		synctest.Wait()
		testenv.ErrorIs(t, *answer, limiter.ErrCanceled)
		testenv.Equal(t, errors.Is(*answer, limiter.ErrOutcomeUnknown), false, "the outcome is unknown:", *answer)
		next := g.start(t.Context(), "next", time.Second)
		g.all.Wait()
		must(t, *next)
	})
}

func TestTimeUsedUpBeforeTheStatement(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"in a queue of the process": true, "behind a lock": false} {
		bubble(t, name, func(t *testing.T) {
			ctx := new(opcontext.Deadlines).WithTimeout(t.Context(), 10*time.Millisecond)
			defer opcontext.Stop(ctx)
			if busy {
				<-ctx.Done()
			}
			calls := 0
			err := sqlite.Attempt(ctx, func(context.Context) error {
				calls++
				return &coded{5, "database is locked"}
			})
			if errors.Is(err, limiter.ErrKeyBusy) != busy || limiter.StoreFailed(err) == busy || !errors.Is(err, limiter.ErrNotApplied) {
				t.Errorf("%v; want ErrNotApplied, and ErrKeyBusy: %t", err, busy)
			}
			testenv.Equal(t, calls == 0, busy, "f is not called")
		})
	}
}
