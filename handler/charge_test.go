package handler_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
)

func TestRulesAreChargedTogether(t *testing.T) {
	t.Parallel()
	c, next := newClock(), &nextHandler{}
	rules := burstAndDay(t, memory.New(), c, 100)
	rules[0].Cost, rules[1].Cost = costOf("burst"), costOf("day")
	h := handler.NewAll(rules)(next)
	const policies = `"burst";q=3;w=6, "day";q=100;w=86400`
	for i, call := range []struct {
		after    time.Duration
		cost     string
		status   int
		quota    string
		retry    string
		violated any
	}{
		{0, "burst=1&day=1", http.StatusTeapot, `"burst";r=2;t=2, "day";r=99;t=43200`, "", nil},
		{0, "burst=2&day=1", http.StatusTeapot, `"burst";r=0;t=2, "day";r=98;t=43200`, "", nil},
		{0, "burst=1&day=1", http.StatusTooManyRequests, `"burst";r=0;t=2, "day";r=98;t=43200`, "2", []any{"burst"}},
		{0, "burst=3&day=99", http.StatusTooManyRequests, `"burst";r=0;t=2, "day";r=98;t=43200`, "43200", []any{"burst", "day"}},
		{2 * time.Second, "burst=1&day=99", http.StatusTooManyRequests, `"burst";r=1;t=2, "day";r=98;t=43198`, "43198", []any{"day"}},
		{0, "burst=1&day=0", http.StatusTeapot, `"burst";r=0;t=2, "day";r=98;t=43198`, "", nil},
		{0, "burst=0&day=1", http.StatusTeapot, `"burst";r=0;t=2, "day";r=97;t=43198`, "", nil},
		{0, "burst=0&day=98", http.StatusTooManyRequests, `"burst";r=0;t=2, "day";r=97;t=43198`, "43198", []any{"day"}},
		{0, "burst=0&day=0", http.StatusTeapot, `"burst";r=0;t=2, "day";r=97;t=43198`, "", nil}, // a look at both
		{0, "burst=4&day=1", http.StatusBadRequest, "", "", nil},                                // can never pass
		{0, "burst=1&day=-1", http.StatusInternalServerError, "", "", nil},
		{0, "burst=0&day=-1", http.StatusInternalServerError, "", "", nil},
		{4 * time.Second, "burst=2&day=97", http.StatusTeapot, `"burst";r=0;t=2, "day";r=0;t=43194`, "", nil},
	} {
		c.add(call.after)
		resp := askBy(h, httptest.NewRequest(http.MethodGet, "/?"+call.cost, http.NoBody))
		problem := wantStatus(t, resp, call.status)
		want := map[string]string{"RateLimit-Policy": policies, "RateLimit": call.quota, "Retry-After": call.retry}
		if call.quota == "" {
			want["RateLimit-Policy"] = ""
		}
		wantHeaders(t, resp.header, want)
		testenv.Equal(t, problem["violated-policies"], call.violated, "violated-policies")
		if t.Failed() {
			t.Fatalf("in call %d, %s", i, call.cost)
		}
	}
	testenv.Equal(t, next.calls, 6, "calls of the handler")
}

func TestCostZeroMayRefuse(t *testing.T) {
	t.Parallel()
	c, next := newClock(), &nextHandler{}
	rules := burstAndDay(t, memory.New(), c, 100)
	rules[0].Cost = costOf("burst") // 0
	all := handler.NewAll(rules)(next)
	one := handler.New(rules[0].Limiter, oneKey, handler.Cost(rules[0].Cost))(next)
	wantStatus(t, ask(all), http.StatusTeapot)
	must(t, rules[0].Limiter.Block(t.Context(), "everybody", 10*time.Second))
	for _, h := range []http.Handler{all, one} {
		resp := ask(h)
		testenv.Equal(t, wantStatus(t, resp, http.StatusTooManyRequests), map[string]any{
			"type":              "https://iana.org/assignments/http-problem-types#quota-exceeded",
			"title":             "Request cannot be satisfied as assigned quota has been exceeded",
			"status":            429.0,
			"violated-policies": []any{"burst"}, // the limiter day is not asked
		}, "the problem")
		wantHeaders(t, resp.header, map[string]string{"RateLimit": `"burst";r=0;t=10`, "Retry-After": "10"})
	}
	testenv.Equal(t, left(t, rules[1:]), []int64{99}, "left of the day: only the first request is charged")
	c.add(10 * time.Second)
	wantStatus(t, ask(all), http.StatusTeapot)
	wantStatus(t, ask(one), http.StatusTeapot)
}

func TestMissingKeyChargesNoRule(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for i := range 2 {
		rules := burstAndDay(t, memory.New(), newClock(), 2)
		rules[i].Key = func(*http.Request) (string, error) { return "k", broken }
		rules[i].Cost = func(*http.Request) int64 { return 0 }
		var reported []error
		h := handler.NewAll(rules, handler.FailOpen(), handler.OnError(func(_ *http.Request, err error) { reported = append(reported, err) }))(&nextHandler{})
		resp := ask(h)
		wantStatus(t, resp, http.StatusBadRequest)
		wantHeaders(t, resp.header, map[string]string{"RateLimit": "", "RateLimit-Policy": "", "Retry-After": ""})
		if len(reported) != 1 || !errors.Is(reported[0], handler.ErrNoKey) || !errors.Is(reported[0], broken) {
			t.Errorf("OnError got %v, want ErrNoKey and the reason", reported)
		}
		testenv.Equal(t, left(t, rules), []int64{3, 2}, "left")
	}
}

func TestNoDecisionOfRulesIsNeverAPass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err            error
		opt            limiter.Option
		status, open   int // open is the status with handler.FailOpen
		policy, report string
	}{
		{limiter.ErrNotApplied, limiter.FailClosed(), 503, 418, "", "[true true]"},
		{limiter.ErrOutcomeUnknown, limiter.FailClosed(), 503, 418, "", "[true true]"},
		{limiter.ErrMisconfigured, limiter.FailOpen(), 503, 503, "", "[true true]"},
		{limiter.ErrNotApplied, limiter.FailOpen(), 418, 418, `"burst";q=3;w=6, "day";q=2;w=86400`, "[]"}, // only the observer sees that
	} {
		store := newFakeStore()
		store.all = c.err
		rules := burstAndDay(t, store, newClock(), 2, c.opt)
		var reported []bool
		onError := handler.OnError(func(_ *http.Request, err error) { reported = append(reported, errors.Is(err, c.err)) })
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen, _ := handler.ResultFromContext(r.Context())
			testenv.Equal(t, seen, limiter.Result{Allowed: true, Taken: 1, Source: limiter.SourcePolicy}, c.err, "what the application sees")
			w.WriteHeader(http.StatusTeapot)
		})
		resp := ask(handler.NewAll(rules, onError, handler.LegacyHeaders())(next))
		wantStatus(t, resp, c.status)
		wantHeaders(t, resp.header, map[string]string{"RateLimit": "", "RateLimit-Policy": c.policy, "X-RateLimit-Limit": ""})
		wantStatus(t, ask(handler.NewAll(rules, onError, handler.FailOpen())(next)), c.open)
		testenv.Equal(t, fmt.Sprint(reported), c.report, c.err, "OnError got that error")
	}
}

func TestRulesThatDoNotFitPanic(t *testing.T) {
	t.Parallel()
	c, store := newClock(), newFakeStore()
	asked := false
	observed := limiter.WithObserver(func(context.Context, limiter.Decision) { asked = true })
	plan := limiter.WithPolicyFor(func(context.Context, string) (limiter.Policy, error) {
		asked = true
		return nil, nil
	})
	rules := burstAndDay(t, store, c, 2, observed)
	planned := burstAndDay(t, store, c, 2, observed, plan)
	elsewhere := burstAndDay(t, memory.New(), c, 2)
	var many []handler.Rule
	for i := range limiter.MaxClaims {
		many = append(many, handler.Rule{Limiter: newOn(t, store, c, fmt.Sprint(i), limiter.PerHour(1)), Key: oneKey})
	}
	const ownName = `"burst"; give each rule a limiter with a name of its own`
	for name, test := range map[string]struct {
		rules  []handler.Rule
		opt    handler.Option
		advice string
	}{
		"no rule":           {nil, handler.DryRun(), "pass 1 to 8"},
		"a rule too many":   {append(many, rules[0]), handler.DryRun(), "pass 1 to 8"},
		"one limiter twice": {[]handler.Rule{rules[0], rules[1], {Limiter: rules[0].Limiter, Key: handler.ClientIP()}}, handler.DryRun(), ownName},
		"no limiter":        {[]handler.Rule{rules[0], {Key: oneKey}}, handler.DryRun(), "limiter.New"},
		"no key":            {[]handler.Rule{rules[0], {Limiter: rules[1].Limiter}}, handler.DryRun(), "handler.ClientIP()"},
		"a nil option":      {rules, nil, "leave it out"},
		"the option Cost":   {rules, handler.Cost(costOf("n")), "Rule.Cost"},
		"two stores":        {[]handler.Rule{rules[0], elsewhere[1]}, handler.DryRun(), "one store"},
	} {
		wantPanic(t, name, test.advice, func() { handler.NewAll(test.rules, test.opt) })
	}
	wantPanic(t, "no next handler", "", func() { handler.NewAll(rules)(nil) })
	handler.NewAll(many)    // as many as there may be
	handler.NewAll(planned) // whose policies are chosen later
	if asked || len(store.sent) > 0 {
		t.Error("NewAll asked a store, a plan or an observer")
	}
}

func TestOnlyFailuresAreCharged(t *testing.T) {
	t.Parallel()
	c := newClock()
	l := newLimiter(t, c, "login", limiter.TokenBucket{Capacity: 2, Refill: 1, Interval: time.Hour})
	login := handler.New(l, oneKey, handler.ChargeFailures())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.Succeeded(r.Context())
		handler.Succeeded(r.Context()) // once more gives nothing more back
	}))
	try := func(password string, status int, left int64) {
		t.Helper()
		resp := askBy(login, httptest.NewRequest(http.MethodPost, "/?password="+password, http.NoBody))
		res, err := l.Peek(t.Context(), "everybody")
		if resp.status != status || err != nil || res.Remaining != left {
			t.Errorf("password %s: status %d, %d left, %v; want %d and %d", password, resp.status, res.Remaining, err, status, left)
		}
	}
	for range 5 {
		try("right", http.StatusOK, 2)
	}
	try("wrong", http.StatusUnauthorized, 1)
	try("right", http.StatusOK, 1)
	try("wrong", http.StatusUnauthorized, 0)
	try("right", http.StatusTooManyRequests, 0)
	c.add(time.Hour)
	try("right", http.StatusOK, 1)
}

var succeeds = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handler.Succeeded(r.Context()) })

func TestSucceededReachesEveryLimiter(t *testing.T) {
	t.Parallel()
	c := newClock()
	account := newLimiter(t, c, "account", limiter.PerDay(10))
	address := newLimiter(t, c, "address", limiter.PerDay(10))
	all := newLimiter(t, c, "all", limiter.PerDay(10))
	h := handler.New(address, oneKey, handler.ChargeFailures())(handler.New(all, oneKey)(
		handler.New(account, oneKey, handler.ChargeFailures())(succeeds)))
	ask(h)
	for l, want := range map[*limiter.Limiter]int64{account: 10, address: 10, all: 9} {
		testenv.Equal(t, left(t, []handler.Rule{{Limiter: l}}), []int64{want}, l.Name(), "has left")
	}
	handler.Succeeded(t.Context()) // without a limiter around it it does nothing
}

func TestCostIsGivenBackWhereItWasTaken(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(time.Hour)
	bounded, stop := context.WithDeadline(t.Context(), end)
	defer stop()
	for _, c := range []struct {
		name            string
		cost            int64
		down            bool
		opt             limiter.Option
		panics          bool
		store, fallback int   // refunds that they get
		late            error // what OnError gets as the deadline leaves too little time for the refund
	}{
		{"a charge", 3, false, limiter.FailClosed(), false, 1, 0, nil},
		{"a charge with a deadline", 3, false, limiter.FailClosed(), false, 1, 0, limiter.ErrNotApplied},
		{"a deadline during the refund", 3, false, limiter.FailClosed(), false, 1, 0, limiter.ErrOutcomeUnknown},
		{"a look", 0, false, limiter.FailClosed(), false, 0, 0, nil},
		{"let pass while the store was down", 3, true, limiter.FailOpen(), false, 0, 0, nil},
		{"charged by the fallback", 3, true, nil, false, 0, 1, nil},
		{"charged by the store, with a fallback", 3, false, nil, false, 1, 0, nil},
		{"the handler panicked", 3, false, limiter.FailClosed(), true, 0, 0, nil},
		{"a refusal in a dry run", 8, false, limiter.FailClosed(), false, 0, 0, nil},
	} {
		refunds := [2][]string{{}, {}} // cost, error of the context, and its deadline
		parent, deadline, failure := t.Context(), time.Time{}, limiter.ErrNotApplied
		if c.late != nil {
			parent, deadline, failure = bounded, end, errors.Join(limiter.ErrCanceled, c.late)
		}
		fails := func(i int) func(ctx context.Context, op limiter.Op, n int) error {
			return func(ctx context.Context, op limiter.Op, n int) error {
				if op.Kind == limiter.OpRefund {
					deadline, _ := ctx.Deadline()
					refunds[i] = append(refunds[i], fmt.Sprint(op.Cost, ctx.Err(), deadline))
				} else if i == 1 || n == 1 || !c.down {
					return nil
				}
				return failure
			}
		}
		store, fallback := newFakeStore(), newFakeStore()
		store.fails, fallback.fails = fails(0), fails(1)
		if c.opt == nil {
			c.opt = limiter.FailLocal(fallback)
		}
		l := newOn(t, store, newClock(), "login", limiter.PerHour(10), c.opt)
		must(t, testenv.ErrorOf(l.AllowN(t.Context(), "everybody", 3)))
		ctx, cancel := context.WithCancel(parent)
		var reported []error
		h := handler.New(l, oneKey, handler.ChargeFailures(), handler.DryRun(),
			handler.Cost(func(*http.Request) int64 { return c.cost }),
			handler.OnError(func(_ *http.Request, err error) { reported = append(reported, err) }),
		)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			handler.Succeeded(r.Context())
			cancel() // the client goes as soon as it has its answer
			if c.panics {
				panic(http.ErrAbortHandler)
			}
		}))
		panicOf(func() { askBy(h, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)) })
		one := []string{fmt.Sprint(c.cost, nil, deadline)}
		testenv.Equal(t, refunds, [2][]string{slices.Repeat(one, c.store), slices.Repeat(one, c.fallback)}, c.name, "gave back")
		if want := c.store + c.fallback; len(reported) != want || want == 1 && !errors.Is(reported[0], cmp.Or(c.late, limiter.ErrNotApplied)) {
			t.Errorf("%s: OnError got %v", c.name, reported)
		}
	}
}

func TestLateRefundLiftsNothing(t *testing.T) {
	t.Parallel()
	for _, p := range []limiter.Policy{
		limiter.FixedWindow{Limit: 2, Window: 20 * time.Millisecond},
		limiter.TokenBucket{Capacity: 2, Refill: 2, Interval: 20 * time.Millisecond},
	} {
		c := newClock()
		l := newLimiter(t, c, "login", p)
		h := handler.New(l, oneKey, handler.ChargeFailures())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			// While this one is at work, its window ends, and others use the next one up.
			<-time.After(30 * time.Millisecond)
			c.add(30 * time.Millisecond)
			if res, err := l.AllowN(r.Context(), "everybody", 2); err != nil || !res.Allowed {
				t.Errorf("AllowN = %+v, %v", res, err)
			}
			handler.Succeeded(r.Context())
		}))
		ask(h)
		testenv.Equal(t, left(t, []handler.Rule{{Limiter: l}}), []int64{0}, p, "has left")
	}
}

func TestRefundAfterTheDeadline(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, newClock(), "login", limiter.PerMinute(2))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	askBy(handler.New(l, oneKey, handler.ChargeFailures())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		handler.Succeeded(r.Context())
	})), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody))
	testenv.Equal(t, left(t, []handler.Rule{{Limiter: l}}), []int64{2}, "left")
}

func TestRefundAcrossTheEdgeOfAWindow(t *testing.T) {
	t.Parallel()
	const limit = 5
	for _, p := range []limiter.FixedWindow{
		{Limit: limit, Window: time.Minute},
		{Limit: limit, Window: time.Minute, CountRejected: true},
	} {
		for _, crosses := range []string{"while the handler runs", "while the refund is under way"} {
			c := newClock()
			failed := 0 // logins that passed the limiter
			var login http.Handler
			nextWindow := func() {
				c.add(time.Minute)
				for range limit {
					askBy(login, httptest.NewRequest(http.MethodPost, "/wrong", http.NoBody))
				}
			}
			store := newFakeStore()
			store.fails = func(_ context.Context, op limiter.Op, _ int) error {
				if op.Kind == limiter.OpRefund && crosses == "while the refund is under way" {
					nextWindow()
				}
				return nil
			}
			l := newOn(t, store, c, "login", p)
			login = handler.New(l, oneKey, handler.ChargeFailures())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/wrong" {
					failed++
					return
				}
				if crosses == "while the handler runs" {
					nextWindow()
				}
				handler.Succeeded(r.Context())
			}))
			askBy(login, httptest.NewRequest(http.MethodPost, "/right", http.NoBody))
			for range limit {
				askBy(login, httptest.NewRequest(http.MethodPost, "/wrong", http.NoBody))
			}
			testenv.Equal(t, failed, limit, "failed logins that pass in one window, CountRejected:", p.CountRejected, "a success crosses the edge", crosses)
		}
	}
}
