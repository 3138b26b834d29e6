package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/storetest"
)

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
	if err != nil {
		t.Fatal(err)
	}
	if l.Name() != name || l.Policy() != limiter.Policy(policy) {
		t.Errorf("Name %q, Policy %+v, want what New was given", l.Name(), l.Policy())
	}
}

func TestWithKeyDigestKeepsItsOwnCopyOfTheSecret(t *testing.T) {
	t.Parallel()
	store, secret := memory.New(), []byte("secret")
	a := newLimiter(t, store, limiter.PerDay(1), limiter.WithKeyDigest(secret))
	mustAllow(t, a, true)
	b := newLimiter(t, store, limiter.PerDay(1), limiter.WithKeyDigest([]byte("secret")))
	clear(secret)
	mustAllow(t, a, false)
	mustAllow(t, b, false)
}

func TestLimiterPassesErrorsOfTheStoreOn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cause := errors.New("the cable is out")
	for _, class := range []error{
		limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, limiter.ErrMisconfigured, limiter.ErrCanceled,
		limiter.ErrInvalid, errors.ErrUnsupported,
	} {
		store := &brokenStore{err: errors.Join(class, cause)}
		l := newLimiter(t, store, limiter.PerSecond(1))
		allowed, allowErr := l.Allow(ctx, "alice@example.com")
		peeked, peekErr := l.Peek(ctx, "alice@example.com")
		reserved, reserveErr := l.Reserve(ctx, "alice@example.com", 1, time.Second)
		for i, err := range []error{
			allowErr, peekErr, reserveErr, l.Wait(ctx, "alice@example.com"),
			errorOf(l.Refund(ctx, "alice@example.com", 1)), l.Reset(ctx, "alice@example.com"),
		} {
			if !errors.Is(err, class) || !errors.Is(err, cause) {
				t.Errorf("method %d: %v, want %v", i, err, store.err)
			} else if want := `limiter "l": ` + store.err.Error(); err.Error() != want {
				t.Errorf("method %d: %q, want it wrapped once: %q", i, err, want)
			}
		}
		noDecision := limiter.Result{Source: limiter.SourcePolicy}
		if allowed != noDecision || peeked != noDecision || reserved == nil || reserved.Result != noDecision || reserved.Delay != math.MaxInt64 {
			t.Errorf("%v: Results %+v, %+v, %+v, want refusals by nobody", class, allowed, peeked, reserved)
		}
		if err := reserved.Cancel(ctx); err != nil {
			t.Errorf("Cancel of what was not booked: %v", err)
		}
		if store.calls != 6 {
			t.Errorf("%v: %d calls of the store for 6 of the limiter: none may be repeated", class, store.calls)
		}
	}
}

func TestLimiterAsksTheStoreForNothingInvalid(t *testing.T) {
	t.Parallel()
	store := &brokenStore{}
	now := time.Unix(1e9, 0)
	l := newLimiter(t, store, limiter.PerSecond(5), limiter.WithClock(func() time.Time { return now }))
	counts := newLimiter(t, store, limiter.FixedWindow{Limit: 5, Window: time.Second, CountRejected: true})
	ctx := t.Context()
	gone, cancel := context.WithCancel(ctx)
	cancel()
	allow := func(ctx context.Context, key string, n int64) error {
		_, err := l.AllowN(ctx, key, n)
		return err
	}
	reserve := func(l *limiter.Limiter, n int64, maxWait time.Duration) error {
		r, err := l.Reserve(ctx, "k", n, maxWait)
		if r == nil || r.Allowed || r.Delay != math.MaxInt64 {
			t.Errorf("Reserve(%d, %v) = %+v with error %v", n, maxWait, r, err)
		}
		return err
	}
	tests := []struct {
		what string
		err  error
		want error
	}{
		{"the empty key", allow(ctx, "", 1), limiter.ErrInvalid},
		{"a negative cost", allow(ctx, "k", -1), limiter.ErrInvalid},
		{"the lowest cost", allow(ctx, "k", math.MinInt64), limiter.ErrInvalid},
		{"a cost above capacity", allow(ctx, "k", 6), limiter.ErrExceedsCapacity},
		{"the highest cost", allow(ctx, "k", math.MaxInt64), limiter.ErrExceedsCapacity},
		{"a context that has ended", allow(gone, "k", 1), context.Canceled},
		{"a negative refund", errorOf(l.Refund(ctx, "k", -1)), limiter.ErrInvalid},
		{"a refund of nothing", errorOf(l.Refund(ctx, "k", 0)), nil},
		{"a refund of nothing by a caller who has left", errorOf(l.Refund(gone, "k", 0)), limiter.ErrCanceled},
		{"a refund to nobody", errorOf(l.Refund(ctx, "", 0)), limiter.ErrInvalid},
		{"a reset of nobody", l.Reset(ctx, ""), limiter.ErrInvalid},
		{"a reservation above capacity", reserve(l, 6, time.Second), limiter.ErrExceedsCapacity},
		{"a negative reservation", reserve(l, -1, time.Second), limiter.ErrInvalid},
		{"a negative wait", reserve(l, 1, -1), limiter.ErrInvalid},
		{"a wait that is too long", reserve(l, 1, limiter.MaxReserve+1), limiter.ErrInvalid},
		{"a wait for nothing that is too long", reserve(l, 0, limiter.MaxReserve+1), limiter.ErrInvalid},
		{"a reservation where refusals count", reserve(counts, 1, time.Second), errors.ErrUnsupported},
		{"a reservation of nothing where refusals count", reserve(counts, 0, time.Second), errors.ErrUnsupported},
		{"a wait where refusals count", counts.Wait(ctx, "k"), errors.ErrUnsupported},
		{"a wait for nothing by nobody", l.WaitN(ctx, "", 0), limiter.ErrInvalid},
		{"a wait for nothing by a caller who has left", l.WaitN(gone, "k", 0), context.Canceled},
		{"a wait for nothing where refusals count", counts.WaitN(ctx, "k", 0), errors.ErrUnsupported},
		{"a wait for a negative cost", l.WaitN(ctx, "k", -1), limiter.ErrInvalid},
		{"a wait above capacity", l.WaitN(ctx, "k", 6), limiter.ErrExceedsCapacity},
	}
	for _, test := range tests {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v, want %v", test.what, test.err, test.want)
		}
	}
	for _, now = range []time.Time{
		{}, time.Unix(0, 0), time.Unix(-1, 0), time.Date(2080, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(math.MaxInt64, 0),
	} {
		for i, err := range []error{allow(ctx, "k", 1), errorOf(l.Refund(ctx, "k", 1)), l.Reset(ctx, "k")} {
			if !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), "1970 and 2079") {
				t.Errorf("method %d when the clock says %v: %v, want ErrInvalid that says what it may say", i, now, err)
			}
		}
	}
	if store.calls != 0 {
		t.Errorf("the store was called %d times", store.calls)
	}
}

// coarseStore is a store whose clock has a resolution of 1 µs.
type coarseStore struct{ row limiter.Row }

func (s *coarseStore) Do(_ context.Context, op limiter.Op) (limiter.State, error) {
	next, state := op.Apply(s.row, start)
	s.row, state.Tick = next, 1000
	return state, nil
}

func TestResultWaitsAreRoundedUpToTheTickOfTheClock(t *testing.T) {
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
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// errorOf returns the error of a refund.
func errorOf[T any](_ T, err error) error { return err }

// mustAllow checks whether Allow of the key "k" passes.
func mustAllow(t *testing.T, l *limiter.Limiter, want bool) {
	t.Helper()
	if r, err := l.Allow(t.Context(), "k"); err != nil || r.Allowed != want {
		t.Errorf("Allow = %+v, %v, want Allowed %v", r, err, want)
	}
}
