package limiter_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/tables"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

const (
	// start is the instant at which histories begin: 2033, aligned to a day.
	start       = 86_400 * 23_148 * int64(time.Second)
	thirtyYears = 262_980 * time.Hour
)

var must = testenv.Must

// newLimiter returns a Limiter with the name "l".
func newLimiter(t *testing.T, s limiter.Store, p limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(s, "l", p, opts...)
	must(t, err)
	return l
}

// mustAllow checks whether Allow of the key "k" passes.
func mustAllow(t *testing.T, l *limiter.Limiter, want bool) {
	t.Helper()
	if r, err := l.Allow(t.Context(), "k"); err != nil || r.Allowed != want {
		t.Errorf("Allow = %+v, %v, want Allowed %v", r, err, want)
	}
}

// fixed is a clock that stands still.
func fixed() limiter.Option { return clockOf(new(time.Unix(0, start))) }

// clockOf is a clock that shows what now points to.
func clockOf(now *time.Time) limiter.Option {
	return limiter.WithClock(func() time.Time { return *now })
}

// spyStore remembers what it was asked for. It fails with err while that is not nil.
type spyStore struct {
	limiter.Store
	err  error
	only limiter.OpKind // it fails only operations of this kind; 0 means all

	mu    sync.Mutex
	calls int
	ops   []limiter.Op
	ended bool          // the context of the latest operation had ended
	left  time.Duration // until the deadline of that context
}

func (s *spyStore) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	s.note(ctx, op)
	if s.err != nil && (s.only == 0 || s.only == op.Kind) {
		return limiter.State{Took: true}, s.err // a state that comes with an error must not count
	}
	return s.Store.Do(ctx, op)
}

func (s *spyStore) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	if s.note(ctx, ops...); s.err != nil {
		return nil, s.err
	}
	return s.Store.(limiter.AllStore).DoAll(ctx, ops)
}

func (s *spyStore) note(ctx context.Context, ops ...limiter.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.ops = append(s.ops, ops...)
	s.ended = ctx.Err() != nil
	deadline, _ := ctx.Deadline()
	s.left = time.Until(deadline)
}

// inTransaction is a store on a transaction.
type inTransaction struct{ limiter.AllStore }

func (inTransaction) Provisional() bool { return true }

// storeFunc is a store that is a function.
type storeFunc func(context.Context, limiter.Op) (limiter.State, error)

func (f storeFunc) Do(ctx context.Context, op limiter.Op) (limiter.State, error) { return f(ctx, op) }

// refusing returns a store that refuses everything with a state of its own.
func refusing(s limiter.State) limiter.Store {
	return storeFunc(func(context.Context, limiter.Op) (limiter.State, error) { return s, nil })
}

// oneRow returns a store of one key. Its clock stands still and has a resolution, unless an operation has a
// time of its own.
func oneRow(tick int64) limiter.Store {
	var row limiter.Row
	return storeFunc(func(_ context.Context, op limiter.Op) (s limiter.State, err error) {
		now, err := op.Clock(func() time.Time { return time.Unix(0, start) })
		if err == nil {
			row, s = op.Apply(row, now)
			s.Tick = tick
		}
		return s, err
	})
}

// failurePolicies are all failure policies.
func failurePolicies() map[string]limiter.Option {
	return map[string]limiter.Option{"closed": limiter.FailClosed(), "open": limiter.FailOpen(), "local": limiter.FailLocal(memory.New())}
}

// samples are a policy of each kind, with a limit of 5. It comes back within an hour.
var samples = map[string]limiter.Policy{
	"bucket": limiter.PerHour(5), "window": limiter.FixedWindow{Limit: 5, Window: time.Hour},
	"counts":  limiter.FixedWindow{Limit: 5, Window: time.Hour, CountRejected: true},
	"sliding": limiter.SlidingWindow{Limit: 5, Window: 48 * time.Minute},
}

// randomPair returns a policy of any kind whose refusals change nothing, and one that a key may have had
// before.
func randomPair(r *rand.Rand) (now, before limiter.Policy) {
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	switch r.IntN(3) {
	case 0:
		w := limiter.SlidingWindow{Limit: 1 + r.Int64N(4), Window: 16*time.Millisecond + upTo(400*time.Millisecond)}
		return w, limiter.SlidingWindow{Limit: 1, Window: 16*time.Millisecond + upTo(2*w.Window)}
	case 1:
		w := limiter.FixedWindow{Limit: 1 + r.Int64N(4), Window: time.Millisecond + upTo(400*time.Millisecond)}
		return w, limiter.FixedWindow{Limit: 1, Window: time.Millisecond + upTo(2*w.Window)}
	}
	b := limiter.TokenBucket{Capacity: 1 + r.Int64N(4), Refill: 1 + r.Int64N(4), Interval: time.Microsecond*4 + upTo(400*time.Millisecond)}
	return b, limiter.TokenBucket{Capacity: 1 + r.Int64N(9), Refill: 1, Interval: time.Microsecond + upTo(4*b.Step())}
}

// spanOf is a bucket's step, or the length of a window.
func spanOf(p limiter.Policy) int64 {
	return tables.All[limiter.KindOf(p)-1].Numbers(&limiter.Op{Policy: p}, 0).Period
}

func limitOf(p limiter.Policy) int64 {
	return tables.All[limiter.KindOf(p)-1].Numbers(&limiter.Op{Policy: p}, 0).Limit
}
