package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/storetest"
)

var must = testenv.Must

// applyStore is the least that a Store is: Op.Apply under a lock.
type applyStore struct {
	mu   sync.Mutex
	rows map[[3]string]limiter.Row
}

func (s *applyStore) Do(ctx context.Context, op limiter.Op) (limiter.State, error) {
	if ctx.Err() != nil {
		return limiter.State{}, errors.Join(limiter.ErrCanceled, ctx.Err())
	}
	if err := op.Check(); err != nil {
		return limiter.State{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := op.Clock(time.Now)
	if err != nil {
		return limiter.State{}, err
	}
	id := rowOf(&op)
	next, state := op.Apply(s.rows[id], now)
	s.rows[id] = next
	return state, nil
}

func (s *applyStore) DoAll(ctx context.Context, ops []limiter.Op) ([]limiter.State, error) {
	if ctx.Err() != nil {
		return nil, errors.Join(limiter.ErrCanceled, ctx.Err())
	}
	if err := limiter.CheckOps(ops); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := ops[0].Clock(time.Now)
	if err != nil {
		return nil, err
	}
	rows := make([]limiter.Row, len(ops))
	for i := range ops {
		rows[i] = s.rows[rowOf(&ops[i])]
	}
	next, states := limiter.ApplyAll(ops, rows, now)
	for i := range ops {
		s.rows[rowOf(&ops[i])] = next[i]
	}
	return states, nil
}

// rowOf identifies the row of an operation.
func rowOf(op *limiter.Op) [3]string {
	return [3]string{fmt.Sprint(limiter.KindOf(op.Policy)), op.Name, op.Key}
}

func TestOpApplyUnderALockIsAStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) limiter.Store {
		return &applyStore{rows: map[[3]string]limiter.Row{}}
	})
}

// storeFunc is a store that is a function.
type storeFunc func(context.Context, limiter.Op) (limiter.State, error)

func (f storeFunc) Do(ctx context.Context, op limiter.Op) (limiter.State, error) { return f(ctx, op) }

func TestNewArguments(t *testing.T) {
	t.Parallel()
	store, policy := memory.New(), limiter.PerSecond(1)
	tests := []struct {
		what   string
		store  limiter.Store
		name   string
		opt    limiter.Option
		advice string
	}{
		{"no store", nil, "l", limiter.WithMaxWait(0), "memory.New()"},
		{"a nil pointer as the store", (*memory.Store)(nil), "l", limiter.WithMaxWait(0), "the store is nil (*memory.Store)"},
		{"a nil function as the store", storeFunc(nil), "l", limiter.WithMaxWait(0), "the store is nil (limiter_test.storeFunc)"},
		{"no fallback", store, "l", limiter.FailLocal(nil), "memory.New()"},
		{"a nil pointer as the fallback", store, "l", limiter.FailLocal((*memory.Store)(nil)), "the fallback of FailLocal is nil (*memory.Store)"},
		{"no name", store, "", limiter.WithMaxWait(0), "must have 1 to 64"},
		{"a name of 65 bytes", store, strings.Repeat("n", 65), limiter.WithMaxWait(0), "must have 1 to 64"},
		{"a space in the name", store, "a b", limiter.WithMaxWait(0), "it may have A-Z"},
		{"NUL in the name", store, "a\x00", limiter.WithMaxWait(0), "it may have A-Z"},
		{"a letter that is not ASCII", store, "ä", limiter.WithMaxWait(0), "it may have A-Z"},
		{"a newline in the name", store, "a\n", limiter.WithMaxWait(0), "it may have A-Z"},
		{"a nil option", store, "l", nil, "leave it out"},
		{"a nil clock", store, "l", limiter.WithClock(nil), "time.Now"},
		{"no secret", store, "l", limiter.WithKeyDigest(nil), "32 random bytes"},
		{"an empty secret", store, "l", limiter.WithKeyDigest([]byte{}), "32 random bytes"},
		{"a nil observer", store, "l", limiter.WithObserver(nil), "leave the option out"},
		{"no time", store, "l", limiter.WithTimeout(0), "above 0"},
		{"a negative time", store, "l", limiter.WithTimeout(-1), "above 0"},
		{"a negative longest wait", store, "l", limiter.WithMaxWait(-1), "must be 0 to"},
		{"a longest wait that is too long", store, "l", limiter.WithMaxWait(limiter.MaxReserve + 1), "must be 0 to"},
	}
	for _, test := range tests {
		l, err := limiter.New(test.store, test.name, policy, limiter.WithMaxWait(time.Second), test.opt)
		if !errors.Is(err, limiter.ErrInvalid) || l != nil || !strings.Contains(err.Error(), test.advice) {
			t.Errorf("%s: New = %v, %v, want ErrInvalid that says %q", test.what, l, err, test.advice)
		}
	}
	name := strings.Repeat("n", 64)
	l, err := limiter.New(store, name, policy, limiter.WithMaxWait(limiter.MaxReserve), limiter.WithMaxWait(0))
	must(t, err)
	if l.Name() != name || l.Policy() != limiter.Policy(policy) {
		t.Errorf("Name %q, Policy %+v, want what New was given", l.Name(), l.Policy())
	}
}

func TestWithKeyDigestCopiesTheSecret(t *testing.T) {
	t.Parallel()
	store, secret := memory.New(), []byte("secret")
	a := newLimiter(t, store, limiter.PerDay(1), limiter.WithKeyDigest(secret))
	mustAllow(t, a, true)
	b := newLimiter(t, store, limiter.PerDay(1), limiter.WithKeyDigest([]byte("secret")))
	clear(secret)
	mustAllow(t, a, false)
	mustAllow(t, b, false)
}

// coarseStore is a store whose clock has a resolution of 1 µs.
type coarseStore struct{ row limiter.Row }

func (s *coarseStore) Do(_ context.Context, op limiter.Op) (limiter.State, error) {
	next, state := op.Apply(s.row, start)
	s.row, state.Tick = next, 1000
	return state, nil
}

func TestWaitsAreRoundedUpToTicks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		policy limiter.Policy
		want   time.Duration
	}{
		{limiter.PerSecond(3), 333_334_000}, // a step is 333,333,334 ns
		{limiter.PerSecond(1), time.Second}, // a multiple stays
		{limiter.PerSecond(999_999), 2_000}, // 1,001 ns
		{limiter.FixedWindow{Limit: 1, Window: time.Hour}, time.Hour},
	} {
		l := newLimiter(t, &coarseStore{}, test.policy)
		n := limitOf(test.policy)
		if r, err := l.AllowN(t.Context(), "k", n); err != nil || !r.Allowed || r.ResetAfter%1000 != 0 {
			t.Errorf("%+v: AllowN(%d) = %+v, %v, want it to pass, ResetAfter in µs", test.policy, n, r, err)
		}
		if r, err := l.Allow(t.Context(), "k"); err != nil || r.Allowed || r.RetryAfter != test.want {
			t.Errorf("%+v: Allow = %+v, %v, want RetryAfter %v", test.policy, r, err, test.want)
		}
	}
}

func TestRowExpired(t *testing.T) {
	t.Parallel()
	const end = start
	for _, test := range []struct {
		what string
		row  limiter.Row
	}{
		{"a bucket", limiter.Row{FullAt: end, At: end - 100, Period: 10, Limit: 10}},
		{"a bucket that was refunded", limiter.Row{FullAt: end - 1000, At: end, Period: 10, Limit: 10}},
		{"a window", limiter.Row{Start: end - 10_000, Used: 1, At: end - 5000, Period: 10_000, Limit: 10}},
		{"a window that counts refusals", limiter.Row{Start: end - 10_000, Used: 1 << 62, At: end - 5000, Period: 10_000, Limit: 10}},
		{"a booked window that was canceled", limiter.Row{Start: end - 10_000, At: end - 50_000, Period: 10_000, Limit: 10}},
		{"a window that was written late", limiter.Row{Start: end - 20_000, Used: 1, At: end, Period: 10_000, Limit: 10}},
		{"a window that lies ahead of its take", limiter.Row{Start: end - 10_000, Used: 1, At: end - 50_000, Period: 10_000, Limit: 10}},
	} {
		for offset, want := range map[time.Duration]bool{0: false, limiter.SweepGrace - 1: false, limiter.SweepGrace: true, 1e18: true} {
			if got := test.row.Expired(end + int64(offset)); got != want {
				t.Errorf("%s: %v after its end: Expired = %v, want %v", test.what, offset, got, want)
			}
		}
	}
	const day = int64(24 * time.Hour)
	first := limiter.Row{Used: 1, At: 1, Period: day, Limit: 10}
	if now := day + int64(limiter.SweepGrace); first.Expired(now-1) || !first.Expired(now) {
		t.Errorf("%+v, the first day: Expired a nanosecond before %d %v, and then %v", first, now, first.Expired(now-1), first.Expired(now))
	}
	if first.Used = 0; !first.Expired(1 + int64(limiter.SweepGrace)) {
		t.Errorf("%+v, of which all was given back, is not expired", first)
	}
	if !(limiter.Row{}).Expired(start) || !(limiter.Row{Period: 10, Limit: 10}).Expired(start) {
		t.Error("the zero Row, or that of a key that was reset, is not expired")
	}
}

func TestSourceString(t *testing.T) {
	t.Parallel()
	for source, want := range map[limiter.Source]string{
		0: "none", limiter.SourceStore: "store", limiter.SourceDenyCache: "deny_cache",
		limiter.SourceLocal: "local", limiter.SourcePolicy: "policy", 99: "source(99)",
	} {
		if got := source.String(); got != want {
			t.Errorf("Source(%d) = %q, want %q", uint8(source), got, want)
		}
	}
}

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
