package limiter_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

// named returns a Limiter with a name.
func named(t *testing.T, s limiter.Store, name string, p limiter.Policy, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(s, name, p, append(opts, fixed())...)
	must(t, err)
	return l
}

// claims are claims of cost 1 on the key "k".
func claims(ls ...*limiter.Limiter) (cs []limiter.Claim) {
	for _, l := range ls {
		cs = append(cs, limiter.Claim{Limiter: l, Key: "k"})
	}
	return cs
}

// refusalOfAll is refusal for AllowAll.
func refusalOfAll(res limiter.AllResult, err error) error {
	if res.Allowed || res.Each != nil {
		panic(fmt.Sprintf("%+v with the error %v", res, err))
	}
	return err
}

// What is wrong with the limiters, CheckAll and AllowAll say alike.
func TestCheckAll(t *testing.T) {
	t.Parallel()
	store, hour := memory.New(), limiter.PerHour(1)
	plain := named(t, store, "plain", hour)
	other := named(t, store, "other", limiter.PerHour(2))
	local := named(t, store, "local", hour, limiter.FailLocal(memory.New()))
	planned := named(t, store, "planned", hour, limiter.WithPolicyFor(func(context.Context, string) (limiter.Policy, error) {
		panic("CheckAll chose a policy")
	}))
	daily := func(zone string) limiter.Policy {
		return limiter.CalendarWindow{Limit: 1, Period: limiter.Day, Location: time.FixedZone(zone, 3600)}
	}
	many := slices.Repeat([]*limiter.Limiter{plain}, limiter.MaxClaims+1)
	invalid, unsupported := limiter.ErrInvalid, errors.ErrUnsupported
	for _, c := range []struct {
		what     string
		limiters []*limiter.Limiter
		class    error // which the error matches beside ErrInvalid; nil if there is none
		text     string
	}{
		{"one", many[:1], nil, ""},
		{"the most", many[1:], nil, ""},
		{"equal names and policies", []*limiter.Limiter{plain, named(t, store, "plain", hour)}, nil, ""},
		{"two names with two policies", []*limiter.Limiter{plain, other}, nil, ""},
		{"two kinds for a name", []*limiter.Limiter{plain, named(t, store, "plain", limiter.FixedWindow{Limit: 1, Window: time.Hour})}, nil, ""},
		{"failure policies", []*limiter.Limiter{plain, local, planned, named(t, store, "open", hour, limiter.FailOpen())}, nil, ""},
		{"none", nil, invalid, "0 claims"},
		{"too many", many, invalid, "9 claims; pass 1 to 8"},
		{"nil", []*limiter.Limiter{plain, nil}, invalid, "is nil"},
		{"no store", []*limiter.Limiter{plain, plain.On(nil)}, invalid, "store"},
		{"only no store", []*limiter.Limiter{plain.On(nil)}, invalid, "passed to On is nil"},
		{"stores", []*limiter.Limiter{plain, named(t, memory.New(), "other", hour)}, invalid, "different stores"},
		{"a store without DoAll", []*limiter.Limiter{plain.On(refusing(limiter.State{}))}, unsupported, "cannot decide over several limits"},
		{"a store without ==", []*limiter.Limiter{plain.On(wideStore{store, nil})}, invalid, "cannot be compared"},
		{"clocks", []*limiter.Limiter{plain, other, newLimiter(t, store, hour)}, invalid, "WithClock"},
		{"fallbacks", []*limiter.Limiter{local, other, named(t, store, "second", hour, limiter.FailLocal(memory.New()))}, invalid, "different fallbacks"},
		{"policies", []*limiter.Limiter{plain, other, named(t, store, "plain", limiter.PerHour(2))}, invalid, "different policies"},
		{"two Locations of one name", []*limiter.Limiter{named(t, store, "day", daily("zone")), named(t, store, "day", daily("zone"))}, invalid, "load each Location once"},
		{"refusals that count", []*limiter.Limiter{plain, named(t, store, "counts", limiter.FixedWindow{Limit: 1, Window: time.Hour, CountRejected: true})}, unsupported, "CountRejected"},
	} {
		says := func(f string, err error) {
			t.Helper()
			if !errors.Is(err, limiter.ErrInvalid) || !errors.Is(err, c.class) || limiter.StoreFailed(err) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %s: %v, want ErrInvalid and %v that says %q", c.what, f, err, c.class, c.text)
			}
		}
		for range 2 {
			err := limiter.CheckAll(c.limiters...)
			if c.class == nil {
				testenv.ErrorIs(t, err, nil, c.what)
				continue
			}
			says("CheckAll", err)
			says("AllowAll", refusalOfAll(limiter.AllowAll(t.Context(), claims(c.limiters...)...)))
			slices.Reverse(c.limiters)
		}
	}
	mustAllow(t, plain, true) // nothing was charged
}

func TestAllowAllSaysWhatIsWrongWithItsClaims(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, memory.New(), limiter.PerSecond(5))
	claim := limiter.Claim{Limiter: l, Key: "k", Cost: 5}
	for name, c := range map[string]struct {
		claims []limiter.Claim
		class  error
	}{
		"no key":                    {[]limiter.Claim{{Limiter: l}}, limiter.ErrInvalid},
		"a cost over the limit":     {[]limiter.Claim{{Limiter: l, Key: "k", Cost: 6}}, limiter.ErrExceedsCapacity},
		"a sum over the limit":      {[]limiter.Claim{{Limiter: l, Key: "k", Cost: 1}, claim}, limiter.ErrExceedsCapacity},
		"a sum that would overflow": {slices.Repeat([]limiter.Claim{claim}, limiter.MaxClaims), limiter.ErrExceedsCapacity},
	} {
		err := refusalOfAll(limiter.AllowAll(t.Context(), c.claims...))
		testenv.ErrorIs(t, err, c.class, name)
		testenv.Equal(t, limiter.StoreFailed(err), false, name, err, "is a failure of the store")
	}
	if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 5 {
		t.Errorf("afterwards the key has %+v, %v, want all", res, err)
	}
}

// wideStore is an AllStore that cannot be compared.
type wideStore struct {
	*memory.Store
	_ []int
}

// Each observer gets the decision about its own claim. A refusal has a source that metrics can count, also for the
// claims that nobody was asked about.
func TestAllowAllTellsObservers(t *testing.T) {
	t.Parallel()
	spy := &spyStore{Store: memory.New()}
	seen := map[string][]limiter.Decision{}
	observe := limiter.WithObserver(func(_ context.Context, d limiter.Decision) { seen[d.Limiter] = append(seen[d.Limiter], d) })
	local := named(t, spy, "local", limiter.PerHour(1), observe, limiter.FailLocal(memory.New()), limiter.WithDenyCache(10, time.Minute))
	open := named(t, spy, "open", limiter.FixedWindow{Limit: 9, Window: time.Hour}, observe, limiter.FailOpen())
	mute := named(t, spy, "mute", limiter.PerHour(9), limiter.FailOpen())
	cs := []limiter.Claim{{Limiter: mute, Key: "k"}, {Limiter: open, Key: "k", Cost: 2}, {Limiter: local, Key: "k"}}
	down := limiter.ErrOutcomeUnknown
	for _, c := range []struct {
		what            string
		claims          []limiter.Claim
		err             error
		allowed         bool
		has             []bool // whether each claim alone has room
		ofOpen, ofLocal limiter.Source
	}{
		{"taken", cs, nil, true, []bool{true, true, true}, limiter.SourceStore, limiter.SourceStore},
		{"refused", cs, nil, false, []bool{true, true, false}, limiter.SourceStore, limiter.SourceStore},
		{"refused from memory", cs, nil, false, []bool{false, false, false}, limiter.SourceDenyCache, limiter.SourceDenyCache},
		{"let pass", cs[:2], down, true, []bool{true, true}, limiter.SourcePolicy, 0},
		{"failed", cs, limiter.ErrMisconfigured, false, nil, limiter.SourcePolicy, limiter.SourcePolicy},
		{"taken from the fallback", cs, down, true, []bool{true, true, true}, limiter.SourcePolicy, limiter.SourceLocal},
		{"refused by the fallback", cs, down, false, []bool{true, true, false}, limiter.SourceLocal, limiter.SourceLocal},
	} {
		spy.err = c.err
		if c.err != nil {
			_ = local.Reset(t.Context(), "k") // ends what the deny cache keeps, although the store fails
		}
		clear(seen)
		res, err := limiter.AllowAll(t.Context(), c.claims...)
		whole := res.Result != res.Result.Visible() // RefundOf gives back claims only
		if res.Allowed != c.allowed || res.Source != cmp.Or(c.ofLocal, c.ofOpen) || len(res.Each) != len(c.has) || (err != nil) != (c.what == "failed") || whole {
			t.Fatalf("%s: %+v, %v", c.what, res, err)
		}
		for i, has := range c.has {
			testenv.Equal(t, res.Each[i].Allowed, has, c.what, "claim", i, res.Each[i])
		}
		for i, source := range []limiter.Source{0, c.ofOpen, c.ofLocal}[:len(c.claims)] {
			name := cs[i].Limiter.Name()
			if name == "mute" {
				continue
			}
			if c.allowed && res.Each[i].Source != source {
				t.Errorf("%s: claim %d: %+v, want Source %v", c.what, i, res.Each[i], source)
			}
			want := limiter.Decision{Limiter: name, Op: limiter.OpTake, Cost: max(1, cs[i].Cost), Err: c.err}
			if c.has != nil {
				want.Result = res.Each[i]
			}
			want.Result.Allowed, want.Result.Source = c.allowed, source
			charged := c.allowed && source != limiter.SourcePolicy
			testenv.Equal(t, want.Result != want.Result.Visible(), charged, c.what, "claim", i, "can be refunded")
			if taken := want.Result.Taken; c.allowed && taken != want.Cost || !c.allowed && taken != 0 {
				t.Errorf("%s: claim %d took %d", c.what, i, taken)
			}
			if len(seen[name]) != 1 {
				t.Errorf("%s: the observer of %q saw %d decisions, want 1", c.what, name, len(seen[name]))
				continue
			}
			got := seen[name][0]
			testenv.ErrorIs(t, got.Err, c.err, c.what, "the observer of", name)
			got.Err, got.Duration = want.Err, 0
			testenv.Equal(t, got, want, c.what, "the observer of", name)
		}
	}
}

func TestAllowAllAndTheDenyCaches(t *testing.T) {
	t.Parallel()
	spy := &spyStore{Store: memory.New()}
	deny := limiter.WithDenyCache(10, time.Minute)
	a := named(t, spy, "a", limiter.PerHour(5), deny)
	b := named(t, spy, "b", limiter.PerHour(1), deny)
	c := named(t, spy, "c", limiter.FixedWindow{Limit: 1, Window: time.Hour}, deny)
	plain := named(t, spy, "plain", limiter.PerHour(1))
	ask := func(calls int, cs ...limiter.Claim) limiter.AllResult {
		t.Helper()
		spy.calls = 0
		res, err := limiter.AllowAll(t.Context(), cs...)
		if err != nil || spy.calls != calls {
			t.Fatalf("%+v, %v, in %d calls of the store, want %d", res, err, spy.calls, calls)
		}
		return res
	}
	if res := ask(1, claims(c, a, b)...); !res.Allowed {
		t.Fatalf("new keys: %+v", res)
	}
	if res := ask(1, claims(a, b)...); res.Allowed || !res.Each[0].Allowed || res.Each[1].Allowed || res.Source != limiter.SourceStore {
		t.Fatalf("b has no room: %+v", res)
	}
	for l, want := range map[*limiter.Limiter]int{a: 0, b: 1} {
		held, _ := l.DenyKeys()
		testenv.Equal(t, len(held), want, "claims that had no room in the cache of", l.Name(), held)
	}
	res := ask(0, claims(c, a, b)...)
	if res.Allowed || res.Source != limiter.SourceDenyCache || res.Binding != 2 || res.RetryAfter != time.Hour ||
		res.Each[0] != (limiter.Result{}) || res.Each[1] != (limiter.Result{}) || res.Each[2].Source != limiter.SourceDenyCache || res.Each[2].Allowed {
		t.Errorf("b is kept: %+v, want Each of b only", res)
	}
	if res := ask(1, claims(c, a)...); res.Allowed || res.Binding != 0 { // keeps c
		t.Errorf("c has no room: %+v", res)
	}
	if res := ask(0, claims(c, b, a)...); res.Each[0].Source != limiter.SourceDenyCache || res.Each[1].Source != limiter.SourceDenyCache || res.Each[2].Source != 0 {
		t.Errorf("b and c are kept: %+v", res)
	}
	denying{b, t, spy}.expect("k", 1, false, cache) // by Allow of what AllowAll was refused
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	testenv.ErrorIs(t, refusalOfAll(limiter.AllowAll(canceled, claims(b)...)), limiter.ErrCanceled, "a canceled context")
	must(t, b.Reset(t.Context(), "k"))
	if res := ask(1, claims(a, b, plain)...); !res.Allowed {
		t.Errorf("after Reset: %+v", res)
	}
	ask(1, claims(plain)...)
	ask(1, claims(plain)...) // has no cache
	if r, err := a.Peek(t.Context(), "k"); err != nil || r.Remaining != 3 {
		t.Errorf("a was taken twice, and has %+v, %v", r, err)
	}
}

func TestAllowAllUsesThePolicyOfEachRequest(t *testing.T) {
	t.Parallel()
	spy := &spyStore{Store: memory.New()}
	pa, pb := &plans{policy: limiter.PerHour(2)}, &plans{}
	a := named(t, spy, "a", limiter.PerHour(9), pa.option(), limiter.FailOpen())
	b := named(t, spy, "b", limiter.FixedWindow{Limit: 9, Window: time.Hour}, pb.option(), limiter.FailOpen())
	res, err := limiter.AllowAll(t.Context(), limiter.Claim{Limiter: b, Key: "y", Cost: 9}, limiter.Claim{Limiter: a, Key: "x", Cost: 2})
	if err != nil || !res.Allowed || res.Each[0].Policy != b.Policy() || res.Each[1].Policy != pa.policy || res.Policy != b.Policy() {
		t.Errorf("%+v, %v, want it allowed by the policies of the request", res, err)
	}
	if pa.calls != 1 || pa.key != "x" || pb.calls != 1 || pb.key != "y" {
		t.Errorf("f ran %d times for %q and %d times for %q, want once each", pa.calls, pa.key, pb.calls, pb.key)
	}
	cause := errors.New("no plans")
	for name, c := range map[string]struct {
		plans plans
		cost  int64
		class error
	}{
		"a cost above the chosen policy": {plans{policy: limiter.PerHour(2)}, 3, limiter.ErrExceedsCapacity},
		"another kind":                   {plans{policy: limiter.FixedWindow{Limit: 9, Window: time.Hour}}, 1, limiter.ErrInvalid},
		"an error":                       {plans{err: errors.Join(cause, limiter.ErrNotApplied)}, 1, limiter.ErrNoPolicy},
	} {
		*pa = c.plans
		spy.calls = 0
		cs := []limiter.Claim{{Limiter: b, Key: "k"}, {Limiter: a, Key: "k", Cost: c.cost}}
		err := refusalOfAll(limiter.AllowAll(t.Context(), cs...))
		if !errors.Is(err, c.class) || limiter.StoreFailed(err) || spy.calls != 0 {
			t.Errorf("%s: %v, in %d calls of the store, want %v", name, err, spy.calls, c.class)
		}
	}
	*pa, pb.policy = plans{}, limiter.FixedWindow{Limit: 9, Window: time.Hour, CountRejected: true}
	err = refusalOfAll(limiter.AllowAll(t.Context(), claims(a, b)...))
	testenv.ErrorIs(t, err, limiter.ErrInvalid, "a chosen window that counts refusals")
	testenv.ErrorIs(t, err, errors.ErrUnsupported, "a chosen window that counts refusals")
}

func TestAllowAllTakesTheShortestTimeLimit(t *testing.T) {
	t.Parallel()
	spy := &spyStore{Store: memory.New()}
	a := named(t, spy, "a", limiter.PerHour(9), limiter.WithTimeout(3*time.Second))
	b := named(t, spy, "b", limiter.PerHour(9), limiter.WithTimeout(time.Second))
	c := named(t, spy, "c", limiter.PerHour(9), limiter.WithTimeout(2*time.Second))
	if _, err := limiter.AllowAll(t.Context(), claims(c, b, a)...); err != nil || len(spy.ops) != 3 {
		t.Fatal(err, spy.ops)
	}
	for i, op := range spy.ops {
		if op.Timeout != time.Second || op.At != start || op.MaxWait != 0 || op.Kind != limiter.OpTake || op.Name != string("abc"[i]) {
			t.Errorf("operation %d: %+v, want them sorted, with the shortest time limit", i, op)
		}
	}
}

func TestAllowAllChecksTheFallbacks(t *testing.T) {
	t.Parallel()
	spy := &spyStore{Store: memory.New(), err: limiter.ErrNotApplied}
	one, two := memory.New(), memory.New()
	for name, c := range map[string]struct {
		opts  []limiter.Option
		class error // nil for a result
	}{
		"one fallback":                          {[]limiter.Option{limiter.FailLocal(one), limiter.FailLocal(one)}, nil},
		"one fallback, and open":                {[]limiter.Option{limiter.FailOpen(), limiter.FailLocal(one), limiter.FailLocal(one)}, nil},
		"two fallbacks":                         {[]limiter.Option{limiter.FailLocal(one), limiter.FailLocal(two)}, limiter.ErrInvalid},
		"two fallbacks, and open between":       {[]limiter.Option{limiter.FailLocal(one), limiter.FailOpen(), limiter.FailLocal(two)}, limiter.ErrInvalid},
		"two fallbacks, and closed":             {[]limiter.Option{limiter.FailClosed(), limiter.FailLocal(one), limiter.FailLocal(two)}, limiter.ErrInvalid},
		"a fallback without the ability":        {[]limiter.Option{limiter.FailLocal(refusing(limiter.State{}))}, errors.ErrUnsupported},
		"a fallback that is invalid without it": {[]limiter.Option{limiter.FailLocal(refusing(limiter.State{}))}, limiter.ErrInvalid},
		"a fallback that cannot be compared":    {[]limiter.Option{limiter.FailLocal(wideStore{one, nil})}, limiter.ErrInvalid},
		"local, then closed":                    {[]limiter.Option{limiter.FailLocal(one), limiter.FailClosed()}, limiter.ErrNotApplied},
		"closed, then local, then open":         {[]limiter.Option{limiter.FailClosed(), limiter.FailLocal(one), limiter.FailOpen()}, limiter.ErrNotApplied},
	} {
		var ls []*limiter.Limiter
		for i, opt := range c.opts {
			ls = append(ls, named(t, spy, string("abc"[i]), limiter.PerHour(100), opt))
		}
		res, err := limiter.AllowAll(t.Context(), claims(ls...)...)
		if !errors.Is(err, c.class) || res.Allowed != (c.class == nil) {
			t.Errorf("%s: %+v, %v, want %v", name, res, err, c.class)
		}
	}
	twice := claims(named(t, spy, "a", limiter.PerHour(2), limiter.FailLocal(one)), named(t, spy, "a", limiter.PerHour(2), limiter.FailOpen()))
	if res, err := limiter.AllowAll(t.Context(), twice...); err != nil || res.Source != limiter.SourceLocal {
		t.Errorf("FailLocal and FailOpen of a name: %+v, %v", res, err)
	}
	l := named(t, inTransaction{spy}, "a", limiter.PerHour(1), limiter.FailOpen())
	testenv.ErrorIs(t, refusalOfAll(limiter.AllowAll(t.Context(), claims(l)...)), limiter.ErrNotApplied, "a transaction")
	var seen []error
	both := named(t, spy, "a", limiter.PerHour(1), limiter.FailLocal(&spyStore{Store: one, err: limiter.ErrOutcomeUnknown}), limiter.WithObserver(func(_ context.Context, d limiter.Decision) {
		seen = append(seen, d.Err)
	}))
	err := refusalOfAll(limiter.AllowAll(t.Context(), claims(both)...))
	testenv.ErrorIs(t, err, limiter.ErrNotApplied, "a fallback that fails")
	testenv.ErrorIs(t, err, limiter.ErrOutcomeUnknown, "a fallback that fails")
	testenv.Equal(t, len(seen), 1, "errors that the observer saw")
	testenv.ErrorIs(t, errors.Join(seen...), limiter.ErrOutcomeUnknown, "the observer")
}

func TestAllowAllBindsTheFirstOfEqualClaims(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policies []limiter.Policy // of the limiters "a", "b" and so on
		order    []int            // of the claims
		binding  []int            // of each request
		cost     int64            // of each claim; 0 means 1
	}{
		"buckets":               {[]limiter.Policy{limiter.PerHour(1), limiter.PerHour(1)}, []int{0, 1}, []int{0, 0}, 0},
		"buckets, reversed":     {[]limiter.Policy{limiter.PerHour(1), limiter.PerHour(1)}, []int{1, 0}, []int{0, 0}, 0},
		"a window and a bucket": {[]limiter.Policy{limiter.FixedWindow{Limit: 1, Window: time.Hour}, limiter.PerHour(1)}, []int{0, 1}, []int{0, 0}, 0},
		"the smallest share":    {[]limiter.Policy{limiter.PerHour(9), limiter.PerHour(2), limiter.PerHour(3)}, []int{0, 1, 2}, []int{1, 1, 1}, 0},
		"products over 2^64":    {[]limiter.Policy{limiter.FixedWindow{Limit: 1 << 60, Window: time.Hour}, limiter.FixedWindow{Limit: 1<<59 + 512, Window: time.Hour}}, []int{0, 1}, []int{1}, 1 << 10},
		"the longest wait":      {[]limiter.Policy{limiter.PerMinute(1), limiter.PerDay(1), limiter.PerHour(1)}, []int{0, 1, 2}, []int{0, 1}, 0},
		"one row twice":         {[]limiter.Policy{limiter.PerHour(9), limiter.PerHour(2)}, []int{1, 0, 1}, []int{0, 0}, 0},
	} {
		s := memory.New()
		var cs []limiter.Claim
		for _, i := range c.order {
			cs = append(cs, limiter.Claim{Limiter: named(t, s, string("abc"[i]), c.policies[i]), Key: "k", Cost: c.cost})
		}
		for i, want := range c.binding {
			res, err := limiter.AllowAll(t.Context(), cs...)
			if err != nil || res.Binding != want || res.Limit != res.Each[want].Limit || res.RetryAfter != res.Each[want].RetryAfter {
				t.Errorf("%s: request %d: %+v, %v, want binding %d", name, i, res, err, want)
			}
		}
	}
}

// One decision has one policy for each key.
func TestAllowAllChoosesThePolicyOnce(t *testing.T) {
	calls := int64(0)
	l := newLimiter(t, memory.New(), limiter.PerHour(10), limiter.WithPolicyFor(func(context.Context, string) (limiter.Policy, error) {
		calls++
		return limiter.PerHour(10 * calls), nil
	}))
	r, err := limiter.AllowAll(t.Context(), limiter.Claim{Limiter: l, Key: "k"}, limiter.Claim{Limiter: l, Key: "other"}, limiter.Claim{Limiter: l, Key: "k", Cost: 3})
	if err != nil || !r.Allowed || calls != 2 || r.Each[1].Remaining != 19 || r.Each[2].Remaining != 6 {
		t.Errorf("%+v, %v after %d calls, want one for each key", r, err, calls)
	}
}
