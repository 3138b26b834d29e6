package handler_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/handler"
)

func TestARequestCostsWhatCostSays(t *testing.T) {
	t.Parallel()
	c, next := newClock(), &served{}
	cost := func(r *http.Request) int64 {
		n, _ := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
		return n
	}
	h := handler.New(newLimiter(t, c, "batch", limiter.PerMinute(60)), oneKey, handler.Cost(cost))(next)
	for i, step := range []struct {
		n      string
		status int
		quota  string
		retry  string
	}{
		{"0", http.StatusTeapot, `"batch";r=60`, ""}, // nothing was used: no t
		{"50", http.StatusTeapot, `"batch";r=10;t=1`, ""},
		{"0", http.StatusTeapot, `"batch";r=10;t=1`, ""},
		{"30", http.StatusTooManyRequests, `"batch";r=10;t=1`, "20"},
		{"61", http.StatusBadRequest, "", ""}, // can never pass
		{"-1", http.StatusInternalServerError, "", ""},
		{"10", http.StatusTeapot, `"batch";r=0;t=1`, ""},
		{"1", http.StatusTooManyRequests, `"batch";r=0;t=1`, "1"},
		{"0", http.StatusTeapot, `"batch";r=0;t=1`, ""}, // what costs nothing is never refused
	} {
		resp := askBy(h, httptest.NewRequest(http.MethodGet, "/?n="+step.n, http.NoBody))
		wantStatus(t, resp, step.status)
		wantHeaders(t, resp.header, map[string]string{"RateLimit": step.quota, "Retry-After": step.retry})
		if t.Failed() {
			t.Fatalf("in step %d, n=%s", i, step.n)
		}
	}
}

func TestASkippedRequestIsNeitherAskedAboutNorCharged(t *testing.T) {
	t.Parallel()
	l, next := fails(limiter.ErrMisconfigured), &served{}
	h := handler.New(l, oneKey, handler.Skip(func(r *http.Request) bool { return r.URL.Path == "/healthz" }))(next)
	resp := askBy(h, httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody))
	wantStatus(t, resp, http.StatusTeapot)
	wantHeaders(t, resp.header, map[string]string{"RateLimit": "", "RateLimit-Policy": ""})
	if len(l.asked) != 0 {
		t.Errorf("the limiter was asked %d times", len(l.asked))
	}
	wantStatus(t, ask(h), http.StatusServiceUnavailable)
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

func TestSucceededReachesAllThatChargeFailuresAndNoOthers(t *testing.T) {
	t.Parallel()
	c := newClock()
	account := newLimiter(t, c, "account", limiter.PerDay(10))
	address := newLimiter(t, c, "address", limiter.PerDay(10))
	all := newLimiter(t, c, "all", limiter.PerDay(10))
	h := handler.New(address, oneKey, handler.ChargeFailures())(handler.New(all, oneKey)(
		handler.New(account, oneKey, handler.ChargeFailures())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			handler.Succeeded(r.Context())
		}))))
	ask(h)
	for l, want := range map[*limiter.Limiter]int64{account: 10, address: 10, all: 9} {
		if res, err := l.Peek(t.Context(), "everybody"); err != nil || res.Remaining != want {
			t.Errorf("%s has %d left, %v; want %d", l.Name(), res.Remaining, err, want)
		}
	}
	handler.Succeeded(t.Context()) // without a limiter around it it does nothing
}

// refunds is a limiter that counts refunds, and fails at them.
type refunds struct {
	answers
	ctxErr error
	cost   []int64
}

func (r *refunds) Refund(ctx context.Context, _ string, n int64) error {
	r.ctxErr, r.cost = ctx.Err(), append(r.cost, n)
	return limiter.ErrNotApplied
}

func TestAChargeIsGivenBackOnlyWhereThereWasOne(t *testing.T) {
	t.Parallel()
	allowed := limiter.Result{Allowed: true, Limit: 10, Remaining: 9, Source: limiter.SourceStore}
	byPolicy := limiter.Result{Allowed: true, Source: limiter.SourcePolicy}
	for _, c := range []struct {
		name   string
		result limiter.Result
		cost   int64
		panics bool
		want   int
	}{
		{"a charge", allowed, 3, false, 1},
		{"a look", allowed, 0, false, 0},
		{"let pass while the store was down", byPolicy, 3, false, 0},
		{"the handler panicked", allowed, 3, true, 0},
		{"a refusal in a dry run", limiter.Result{Limit: 10, RetryAfter: 1, Source: limiter.SourceStore}, 3, false, 0},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		l := &refunds{answers: answers{result: c.result}}
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
		func() {
			defer func() { _ = recover() }()
			askBy(h, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		}()
		if len(l.cost) != c.want || c.want == 1 && (l.cost[0] != c.cost || l.ctxErr != nil) {
			t.Errorf("%s: given back %v in a context with error %v, want %d times %d", c.name, l.cost, l.ctxErr, c.want, c.cost)
		}
		if len(reported) != c.want || c.want == 1 && !errors.Is(reported[0], limiter.ErrNotApplied) {
			t.Errorf("%s: OnError got %v", c.name, reported)
		}
	}
}

func TestARefusalLooksAsTheApplicationWants(t *testing.T) {
	t.Parallel()
	c := newClock()
	var told []limiter.Result
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res, ok := handler.ResultFromContext(r.Context())
		if !ok || res.Allowed {
			t.Errorf("ResultFromContext = %+v, %v; want the refusal", res, ok)
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "come back in %v", res.RetryAfter)
	})
	h := handler.New(newLimiter(t, c, "l", limiter.PerMinute(1)), oneKey, handler.Refusal(page),
		handler.OnRefusal(func(r *http.Request, res limiter.Result) {
			if seen, ok := handler.ResultFromContext(r.Context()); !ok || seen != res {
				t.Errorf("the request of the hook has %+v, the hook %+v", seen, res)
			}
			told = append(told, res)
		}))(&served{})
	wantStatus(t, ask(h), http.StatusTeapot)
	if len(told) != 0 {
		t.Errorf("OnRefusal was told of a request that passed")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if w.Code != http.StatusForbidden || w.Body.String() != "come back in 1m0s" {
		t.Errorf("%d %q, want the page", w.Code, w.Body)
	}
	wantHeaders(t, w.Header(), map[string]string{"Retry-After": "60", "Cache-Control": "no-store", "RateLimit": `"l";r=0;t=60`})
	if len(told) != 1 || told[0].RetryAfter != time.Minute {
		t.Errorf("OnRefusal got %+v, want one refusal of a minute", told)
	}
}

func TestADryRunReportsAndChangesNothing(t *testing.T) {
	t.Parallel()
	c := newClock()
	var refused, seen int
	var failed []error
	options := []handler.Option{
		handler.DryRun(), handler.LegacyHeaders(), handler.ExposeHeaders(),
		handler.OnRefusal(func(*http.Request, limiter.Result) { refused++ }),
		handler.OnError(func(_ *http.Request, err error) { failed = append(failed, err) }),
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if res, ok := handler.ResultFromContext(r.Context()); ok && !res.Allowed {
			seen++
		}
		w.WriteHeader(http.StatusTeapot)
	})
	l := newLimiter(t, c, "l", limiter.PerMinute(2))
	for range 5 {
		resp := ask(handler.New(l, oneKey, options...)(next))
		wantStatus(t, resp, http.StatusTeapot)
		if len(resp.header) != 0 {
			t.Errorf("the answer has headers: %v", resp.header)
		}
	}
	if refused != 3 || seen != 3 {
		t.Errorf("of 5 requests 3 should be reported: OnRefusal %d, in the context %d", refused, seen)
	}
	for _, err := range []error{limiter.ErrMisconfigured, limiter.ErrExceedsCapacity} {
		wantStatus(t, ask(handler.New(fails(err), oneKey, options...)(next)), http.StatusTeapot)
	}
	wantStatus(t, ask(handler.New(l, handler.Header("X-Api-Key"), options...)(next)), http.StatusTeapot)
	if len(failed) != 3 || !errors.Is(failed[2], handler.ErrNoKey) {
		t.Errorf("OnError got %v, want three errors", failed)
	}
}

func TestAHiddenQuotaIsInNoPartOfAnAnswer(t *testing.T) {
	t.Parallel()
	c := newClock()
	h := handler.New(newLimiter(t, c, "account", limiter.PerMinute(1)), oneKey, handler.HideQuota(), handler.LegacyHeaders(), handler.ExposeHeaders())(&served{})
	resp := ask(h)
	wantStatus(t, resp, http.StatusTeapot)
	if len(resp.header) != 0 {
		t.Errorf("headers %v, want none", resp.header)
	}
	resp = ask(h)
	problem := wantStatus(t, resp, http.StatusTooManyRequests)
	wantHeaders(t, resp.header, map[string]string{"Retry-After": "60", "RateLimit": "", "RateLimit-Policy": "", "X-RateLimit-Remaining": ""})
	if strings.Contains(fmt.Sprint(problem), "account") {
		t.Errorf("the problem names the policy: %v", problem)
	}
}

func TestWhatIsPutTogetherWronglyPanicsAtTheStart(t *testing.T) {
	t.Parallel()
	l := newLimiter(t, newClock(), "l", limiter.PerSecond(1))
	for name, c := range map[string]struct {
		f    func()
		mend string
	}{
		"no limiter":        {func() { handler.New(nil, oneKey) }, "limiter.New"},
		"a nil limiter":     {func() { handler.New((*limiter.Limiter)(nil), oneKey) }, "limiter.New"},
		"no key":            {func() { handler.New(l, nil) }, "handler.ClientIP()"},
		"a nil option":      {func() { handler.New(l, oneKey, nil) }, "leave it out"},
		"no next handler":   {func() { handler.New(l, oneKey)(nil) }, "pass one"},
		"no policy":         {func() { handler.New(noPolicy{}, oneKey) }, "limiter.New"},
		"a name no header":  {func() { handler.New(oddName{}, oneKey) }, "printable ASCII"},
		"no refunds":        {func() { handler.New(fails(nil), oneKey, handler.ChargeFailures()) }, "Refund"},
		"Cost":              {func() { handler.Cost(nil) }, "leave the option out"},
		"Skip":              {func() { handler.Skip(nil) }, "leave the option out"},
		"Refusal":           {func() { handler.Refusal(nil) }, "leave the option out"},
		"OnRefusal":         {func() { handler.OnRefusal(nil) }, "leave the option out"},
		"OnError":           {func() { handler.OnError(nil) }, "leave the option out"},
		"Header":            {func() { handler.Header("") }, "X-Api-Key"},
		"User":              {func() { handler.User(nil) }, "pass a function"},
		"Join of none":      {func() { handler.Join() }, "no keys"},
		"Join of a nil key": {func() { handler.Join(oneKey, nil) }, "nil key"},
	} {
		func() {
			defer func() {
				text := fmt.Sprint(recover())
				if !strings.HasPrefix(text, "handler: ") || !strings.Contains(text, c.mend) {
					t.Errorf("%s: the panic says %q, want what to do: %q", name, text, c.mend)
				}
			}()
			c.f()
		}()
	}
}

type noPolicy struct{}

func (noPolicy) AllowN(context.Context, string, int64) (limiter.Result, error) {
	return limiter.Result{}, nil
}
func (noPolicy) Name() string           { return "l" }
func (noPolicy) Policy() limiter.Policy { return nil }

type oddName struct{ noPolicy }

func (oddName) Name() string           { return "naïve" }
func (oddName) Policy() limiter.Policy { return limiter.PerSecond(1) }
