package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

// errKeyBusy is the error of an operation that timed out in its key's queue.
var errKeyBusy = fmt.Errorf("%w: %w: %w", limiter.ErrKeyBusy, limiter.ErrNotApplied, context.DeadlineExceeded)

// calls are the operations of a Limiter on the key "k". The decisions have a Result.
func calls(ctx context.Context, l *limiter.Limiter, charged limiter.Result) (decisions map[string]func() (limiter.Result, error), others map[string]func() error) {
	decisions = map[string]func() (limiter.Result, error){
		"AllowN":    func() (limiter.Result, error) { return l.AllowN(ctx, "k", 2) },
		"AllowUpTo": func() (limiter.Result, error) { return l.AllowUpTo(ctx, "k", 2) },
		"Peek":      func() (limiter.Result, error) { return l.Peek(ctx, "k") },
		"Reserve": func() (limiter.Result, error) {
			r, err := l.Reserve(ctx, "k", 2, time.Second)
			if (r.Delay == math.MaxInt64) == r.Allowed || r.Source == limiter.SourcePolicy && r.Allowed && r.Delay != 0 {
				return r.Result, fmt.Errorf("Allowed is %v and Delay is %v", r.Allowed, r.Delay)
			}
			if r.Source == limiter.SourcePolicy { // nothing was booked
				err = errors.Join(err, r.Cancel(ctx))
			}
			return r.Result, err
		},
	}
	others = map[string]func() error{
		"Charge":    func() error { return testenv.ErrorOf(l.Charge(ctx, "k", 2)) },
		"Charge(0)": func() error { return testenv.ErrorOf(l.Charge(ctx, "k", 0)) },
		"Block":     func() error { return l.Block(ctx, "k", time.Hour) },
		"Refund":    func() error { return refunding(l.Refund(ctx, "k", 1)) },
		"RefundOf":  func() error { return refunding(l.RefundOf(ctx, "k", 1, charged)) },
		"Reset":     func() error { return l.Reset(ctx, "k") },
	}
	return decisions, others
}

func TestFailurePolicies(t *testing.T) {
	t.Parallel()
	cause := errors.New("the cable is out")
	noDecision := limiter.Result{Source: limiter.SourcePolicy}
	for _, c := range []struct {
		class error
		fails bool // whether the store failed, so that the failure policy applies
	}{
		{limiter.ErrNotApplied, true},
		{limiter.ErrOutcomeUnknown, true},
		{fmt.Errorf("%w: %w", limiter.ErrNotApplied, context.DeadlineExceeded), true},
		{limiter.ErrInvalid, false},
		{limiter.ErrExceedsCapacity, false},
		{limiter.ErrMisconfigured, false},
		{limiter.ErrCanceled, false},
		{fmt.Errorf("%w: %w", limiter.ErrCanceled, limiter.ErrOutcomeUnknown), false},
		{fmt.Errorf("%w: %w", limiter.ErrNotApplied, limiter.ErrMisconfigured), false},
		{errKeyBusy, false},
		{errors.ErrUnsupported, false},
		{errors.New("of no class"), false},
	} {
		err := errors.Join(c.class, cause)
		testenv.Equal(t, limiter.StoreFailed(err), c.fails, "StoreFailed of", c.class)
		for name, opt := range failurePolicies() {
			for where, provisional := range map[string]bool{"on a pool": false, "in a transaction": true} {
				store := &spyStore{Store: memory.New()}
				var s limiter.Store = store
				if provisional {
					s = inTransaction{store}
				}
				var seen observed
				l := newLimiter(t, s, limiter.PerDay(9), seen.option(), limiter.FailLocal(memory.New()), limiter.FailOpen(), opt)
				charged, _ := l.Allow(t.Context(), "k")
				store.err = err
				check := func(what string, res limiter.Result, got error, passes bool) {
					t.Helper()
					what += " " + where + " with Fail " + name + " and " + c.class.Error()
					if passes && got != nil {
						t.Errorf("%s: %v, want no error", what, got)
					}
					if !passes && (!errors.Is(got, c.class) || got.Error() != `limiter "l": `+err.Error()) {
						t.Errorf("%s: %q, want the store's error, wrapped once", what, got)
					}
					if len(seen) != 1 || !errors.Is(seen[0].Err, err) || seen[0].Result != res || seen[0].Changed ||
						len(store.ops) != 1 || store.ops[0].Timeout != 250*time.Millisecond {
						t.Errorf("%s: %+v in %d calls of the store, and the observer saw %+v; want one call, and the same", what, res, len(store.ops), seen)
					}
				}
				decisions, others := calls(t.Context(), l, charged)
				for what, call := range decisions {
					seen, store.ops = nil, nil
					res, got := call()
					passes, want := c.fails && !provisional && name != "closed", noDecision
					if passes {
						want.Allowed = true
						if what != "Peek" {
							want.Taken = 2
						}
						if name == "local" {
							want = limiter.Result{
								Allowed: true, Limit: 9, Remaining: res.Remaining, ResetAfter: res.ResetAfter,
								Taken: want.Taken, Source: limiter.SourceLocal, Policy: limiter.PerDay(9),
							}
						}
					}
					testenv.Equal(t, res.Visible(), want, what, where, "with Fail", name, "and", c.class)
					check(what, res, got, passes)
				}
				for what, call := range others { // no failure policy applies to them
					seen, store.ops = nil, nil
					check(what, noDecision, call(), false)
				}
				store.err = nil
				if r, err := l.Peek(t.Context(), "k"); err != nil || r.Remaining != 8 {
					t.Errorf("%s: after the failures: %+v, %v, want 8 left", name, r, err)
				}
			}
		}
	}
}

// What the store admits and what the fallback admits while the store is down are each at
// most what the policy admits.
func TestFailLocalAdmitsPolicyOnceMore(t *testing.T) {
	t.Parallel()
	store := &spyStore{Store: memory.New()}
	l := newLimiter(t, store, limiter.PerHour(5), limiter.FailLocal(memory.New()))
	admitted := map[limiter.Source]int{}
	for i, err := range []error{nil, limiter.ErrNotApplied, limiter.ErrOutcomeUnknown, nil} {
		store.err = err
		for range 20 {
			res, err := l.Allow(t.Context(), "k")
			must(t, err)
			if local := res.Source == limiter.SourceLocal; local != (store.err != nil) {
				t.Fatalf("phase %d: the source is %v", i, res.Source)
			}
			if res.Allowed {
				admitted[res.Source]++
			} else if res.RetryAfter <= 0 {
				t.Errorf("a refusal by %v has RetryAfter %v", res.Source, res.RetryAfter)
			}
		}
	}
	testenv.Equal(t, admitted, map[limiter.Source]int{limiter.SourceStore: 5, limiter.SourceLocal: 5}, "admitted")
}

func TestFailLocalWithFailingFallback(t *testing.T) {
	t.Parallel()
	var seen observed
	l := newLimiter(t, &spyStore{err: limiter.ErrNotApplied}, limiter.PerHour(1), limiter.FailLocal(&spyStore{err: limiter.ErrMisconfigured}), seen.option())
	err := refusal(l.Allow(t.Context(), "k"))
	testenv.ErrorIs(t, err, limiter.ErrNotApplied, "Allow")
	testenv.ErrorIs(t, err, limiter.ErrMisconfigured, "Allow")
	if len(seen) != 1 || seen[0].Err != err || seen[0].Result != (limiter.Result{Source: limiter.SourcePolicy}) {
		t.Errorf("the observer was told %+v", seen)
	}
}

func TestRefundOfNothing(t *testing.T) {
	t.Parallel()
	for _, p := range samples {
		store := &spyStore{Store: memory.New()}
		l := newLimiter(t, store, p, limiter.FailOpen())
		allow := func(n int64) limiter.Result {
			res, _ := l.AllowN(t.Context(), "k", n)
			return res
		}
		results := map[string]limiter.Result{"no Result": {}, "a peek": allow(0), "a cost above the limit": allow(6)}
		charged := allow(5)
		results["a refusal"] = allow(1)
		store.err = limiter.ErrOutcomeUnknown
		if results["a pass by FailOpen"] = allow(1); !results["a pass by FailOpen"].Allowed {
			t.Fatal("FailOpen does not let it pass")
		}
		store.err = nil
		asked := len(store.ops)
		for name, res := range results {
			if gave, err := l.RefundOf(t.Context(), "k", 1, res); gave || err != nil || len(store.ops) != asked {
				t.Errorf("%T: RefundOf %s = %v, %v, in %d calls; want false in none", p, name, gave, err, len(store.ops)-asked)
			}
		}
		if gave, err := l.RefundOf(t.Context(), "k", 0, charged); gave || err != nil || len(store.ops) != asked {
			t.Errorf("%T: RefundOf of 0 = %v, %v, in %d calls; want false in none", p, gave, err, len(store.ops)-asked)
		}
		if gave, err := l.RefundOf(t.Context(), "k", 1, charged); !gave || err != nil {
			t.Errorf("%T: RefundOf what was charged = %v, %v, want true", p, gave, err)
		}
	}
}

func TestGivingBackToTheFallback(t *testing.T) {
	t.Parallel()
	for name, giveBack := range map[string]func(l *limiter.Limiter, r *limiter.Reservation) error{
		"RefundOf": func(l *limiter.Limiter, r *limiter.Reservation) error {
			gave, err := l.RefundOf(t.Context(), "k", 1, r.Result)
			testenv.Equal(t, gave, true, "RefundOf a Result by", r.Source, "gave something back")
			return err
		},
		"Cancel": func(_ *limiter.Limiter, r *limiter.Reservation) error { return r.Cancel(t.Context()) },
	} {
		store, fallback := &spyStore{Store: memory.New()}, &spyStore{Store: memory.New()}
		l := newLimiter(t, store, limiter.PerDay(1), limiter.FailLocal(fallback), fixed())
		for _, c := range []struct {
			down           error
			charged, other *spyStore
		}{{nil, store, fallback}, {limiter.ErrNotApplied, fallback, store}} {
			store.err = c.down
			r, err := l.Reserve(t.Context(), "k", 1, 0)
			if err != nil || !r.Allowed {
				t.Fatalf("Reserve = %+v, %v", r, err)
			}
			store.err = nil // the store works again before the request is given back
			asked, askedOther := len(c.charged.ops), len(c.other.ops)
			testenv.ErrorIs(t, giveBack(l, r), nil, name)
			if len(c.charged.ops) != asked+1 || len(c.other.ops) != askedOther {
				t.Errorf("%s of a Result by %v sent %v and %v, want one operation to the store that was charged", name, r.Source, c.charged.ops, c.other.ops)
			}
			store.err = c.down
			mustAllow(t, l, true)
		}
	}
}

// No failure policy lets a wrong call or a caller that has left pass, and the store is not asked.
func TestInvalidCalls(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	gone, leave := context.WithCancel(ctx)
	leave()
	late, cancel := context.WithTimeout(ctx, -1)
	defer cancel()
	const most = int64(thirtyYears / (200 * time.Millisecond))
	const end = endOfTime / int64(time.Second) // the clock must be before it: see Op.Clock
	local := newLimiter(t, &spyStore{err: limiter.ErrNotApplied}, limiter.PerSecond(5), limiter.FailLocal(memory.New()))
	byFallback, err := local.Allow(ctx, "k")
	must(t, err)
	for name, opt := range failurePolicies() {
		store := &spyStore{Store: memory.New()}
		now := time.Unix(1e9, 0)
		l := newLimiter(t, store, limiter.PerSecond(5), opt, clockOf(&now))
		w := newLimiter(t, store, limiter.FixedWindow{Limit: 5, Window: time.Second}, opt, clockOf(&now))
		counts := newLimiter(t, store, limiter.FixedWindow{Limit: 5, Window: time.Second, CountRejected: true}, opt, clockOf(&now))
		res, err := l.Allow(ctx, "k")
		must(t, err)
		store.err, store.ops = limiter.ErrNotApplied, nil
		allow := func(ctx context.Context, key string, n int64) error { return refusal(l.AllowN(ctx, key, n)) }
		upTo := func(ctx context.Context, l *limiter.Limiter, key string, n int64) error {
			return refusal(l.AllowUpTo(ctx, key, n))
		}
		peek := func(l *limiter.Limiter, key string, n int64) error { return refusal(l.PeekN(ctx, key, n)) }
		charge := func(ctx context.Context, l *limiter.Limiter, key string, n int64) error {
			return refusal(l.Charge(ctx, key, n))
		}
		reserve := func(l *limiter.Limiter, n int64, maxWait time.Duration) error {
			r, err := l.Reserve(ctx, "k", n, maxWait)
			testenv.Equal(t, r.Delay, math.MaxInt64, "the delay of", n, maxWait)
			return refusal(r.Result, err)
		}
		refund := func(ctx context.Context, key string, n int64) error { return refunding(l.Refund(ctx, key, n)) }
		refundOf := func(ctx context.Context, key string, n int64, res limiter.Result) error {
			return refunding(l.RefundOf(ctx, key, n, res))
		}
		invalid, exceeds, canceled := limiter.ErrInvalid, limiter.ErrExceedsCapacity, limiter.ErrCanceled
		other := byFallback
		if name == "local" {
			other = limiter.Result{} // this limiter has a fallback
		}
		for _, c := range []struct {
			what string
			err  error
			want error // nil: the call does nothing
		}{
			{"the empty key", allow(ctx, "", 1), invalid},
			{"a negative cost", allow(ctx, "k", -1), invalid},
			{"a cost above capacity", allow(ctx, "k", 6), exceeds},
			{"the highest cost", allow(ctx, "k", math.MaxInt64), exceeds},
			{"a context that was canceled", allow(gone, "k", 1), context.Canceled},
			{"a context that was canceled, as a class", allow(gone, "k", 1), canceled},
			{"a deadline that has passed", allow(late, "k", 1), canceled},
			{"AllowUpTo(0)", upTo(ctx, l, "k", 0), invalid},
			{"AllowUpTo of a negative cost", upTo(ctx, w, "k", -1), invalid},
			{"AllowUpTo without a key", upTo(ctx, l, "", 1), invalid},
			{"AllowUpTo where refusals count", upTo(ctx, counts, "k", 1), errors.ErrUnsupported},
			{"AllowUpTo where refusals count, as a class", upTo(ctx, counts, "k", 1), invalid},
			{"AllowUpTo after leaving", upTo(gone, l, "k", 1), canceled},
			{"PeekN of a negative cost", peek(l, "k", -1), invalid},
			{"PeekN above the capacity", peek(l, "k", 6), exceeds},
			{"PeekN above the limit", peek(w, "k", math.MaxInt64), exceeds},
			{"PeekN above the limit where refusals count", peek(counts, "k", 6), exceeds},
			{"PeekN without a key", peek(l, "", 1), invalid},
			{"a charge without a key", charge(ctx, l, "", 1), invalid},
			{"a charge of 0 without a key", charge(ctx, l, "", 0), invalid},
			{"a negative charge", charge(ctx, l, "k", -1), invalid},
			{"a charge of over 30 years", charge(ctx, l, "k", most+1), exceeds},
			{"the highest charge", charge(ctx, l, "k", math.MaxInt64), exceeds},
			{"a charge after leaving", charge(gone, l, "k", 1), canceled},
			{"a block without a key", l.Block(ctx, "", time.Second), invalid},
			{"a block of no time", l.Block(ctx, "k", 0), invalid},
			{"a block of negative time", w.Block(ctx, "k", -1), invalid},
			{"a block that is too long", w.Block(ctx, "k", limiter.MaxBlock+1), invalid},
			{"the highest block", counts.Block(ctx, "k", math.MaxInt64), invalid},
			{"a block after leaving", l.Block(gone, "k", time.Second), canceled},
			{"a negative refund", refund(ctx, "k", -1), invalid},
			{"a refund of 0", refund(ctx, "k", 0), nil},
			{"a refund of 0 after leaving", refund(gone, "k", 0), canceled},
			{"a refund without a key", refund(ctx, "", 0), invalid},
			{"RefundOf of a negative amount", refundOf(ctx, "k", -1, res), invalid},
			{"RefundOf of a negative amount of nothing", refundOf(ctx, "k", -1, limiter.Result{}), invalid},
			{"RefundOf of 0", refundOf(ctx, "k", 0, res), nil},
			{"RefundOf of nothing", refundOf(ctx, "k", 1, limiter.Result{}), nil},
			{"RefundOf without a key", refundOf(ctx, "", 1, res), invalid},
			{"RefundOf after leaving", refundOf(gone, "k", 1, res), canceled},
			{"RefundOf of nothing after leaving", refundOf(gone, "k", 1, limiter.Result{}), canceled},
			{"RefundOf of another limiter's fallback", refundOf(ctx, "k", 1, other), map[bool]error{true: nil, false: invalid}[name == "local"]},
			{"a reset without a key", l.Reset(ctx, ""), invalid},
			{"a reset after leaving", l.Reset(gone, "k"), canceled},
			{"a reservation above capacity", reserve(l, 6, time.Second), exceeds},
			{"a negative reservation", reserve(l, -1, time.Second), invalid},
			{"a negative wait", reserve(l, 1, -1), invalid},
			{"a wait that is too long", reserve(l, 1, limiter.MaxReserve+1), invalid},
			{"a reservation of 0 that waits too long", reserve(l, 0, limiter.MaxReserve+1), invalid},
			{"a reservation where refusals count", reserve(counts, 1, time.Second), errors.ErrUnsupported},
			{"a reservation of 0 where refusals count", reserve(counts, 0, time.Second), errors.ErrUnsupported},
			{"a wait where refusals count", counts.Wait(ctx, "k"), errors.ErrUnsupported},
			{"WaitN(0) without a key", l.WaitN(ctx, "", 0), invalid},
			{"WaitN(0) after leaving", l.WaitN(gone, "k", 0), context.Canceled},
			{"a wait with a deadline that has passed", l.Wait(late, "k"), context.DeadlineExceeded},
			{"a wait for a negative cost", l.WaitN(ctx, "k", -1), invalid},
			{"a wait above capacity", l.WaitN(ctx, "k", 6), exceeds},
		} {
			if !errors.Is(c.err, c.want) || limiter.StoreFailed(c.err) {
				t.Errorf("Fail %s: %s: %v, want %v", name, c.what, c.err, c.want)
			}
		}
		for _, now = range []time.Time{
			{},
			time.Unix(0, 0), time.Unix(-1, 0), time.Unix(end, 0), time.Unix(math.MaxInt64, 0),
			time.Unix(math.MinInt64/int64(time.Second)-1e9, 0), // whose nanoseconds overflow to a valid time
		} {
			for i, err := range []error{allow(ctx, "k", 1), refund(ctx, "k", 1), l.Reset(ctx, "k")} {
				if !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), "1970 and 2079") {
					t.Errorf("method %d when the clock says %v: %v, want ErrInvalid that names the years", i, now, err)
				}
			}
		}
		testenv.Equal(t, store.ops, nil, "Fail", name, "the store got")
		now, store.err = time.Unix(end-1, 0), nil
		for i, err := range []error{
			testenv.ErrorOf(l.Charge(ctx, "k", most)), testenv.ErrorOf(w.Charge(ctx, "k", math.MaxInt64)), testenv.ErrorOf(counts.Charge(ctx, "k", 1)),
			testenv.ErrorOf(counts.PeekN(ctx, "k", 5)), l.Block(ctx, "k", 1), w.Block(ctx, "k", limiter.MaxBlock), counts.Block(ctx, "k", 1),
		} {
			if err != nil || len(store.ops) != 7 {
				t.Errorf("valid call %d: %v, %d calls of the store, want 7", i, err, len(store.ops))
			}
		}
	}
}

// refusal returns the error of a call. It panics if the Result is not the one that comes with an error.
func refusal(res limiter.Result, err error) error {
	if res != (limiter.Result{Source: limiter.SourcePolicy}) {
		panic(fmt.Sprintf("%+v with the error %v", res, err))
	}
	return err
}

// refunding returns the error of a refund. It panics if the refund failed and also gave something back.
func refunding(gave bool, err error) error {
	if gave && err != nil {
		panic(fmt.Sprintf("gave back with the error %v", err))
	}
	return err
}
