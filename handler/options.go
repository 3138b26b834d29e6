package handler

import (
	"net/http"

	"github.com/sqlimit/limiter"
)

// Option changes how the middleware of [New] and [NewAll] works; some also change that of [NewConcurrency].
// Functions that are passed to options must be safe for concurrent use.
type Option func(*options)

type options struct {
	cost           func(*http.Request) int64
	skip           func(*http.Request) bool
	skipPreflight  bool
	chargeFailures bool
	refusal        http.Handler
	onRefusal      func(*http.Request, limiter.Result)
	onError        func(*http.Request, error)
	legacy         bool
	exposes        bool
	hide           bool
	dryRun         bool
	failOpen       bool
}

// Cost sets what a request costs. A request of cost 0 takes nothing. It passes, with the headers
// that say what is left, unless its key is in debt, blocked, booked beyond now or above its limit: see
// [limiter.Limiter.AllowN]. A request that costs more than the limiter ever admits gets 400. One with
// a negative cost, which is a mistake in the function, gets 500. The default is 1. With [NewAll], set
// Rule.Cost instead.
func Cost(of func(*http.Request) int64) Option {
	if of == nil {
		panic("handler: Cost got nil; pass a function, or leave the option out")
	}
	return func(o *options) { o.cost = of }
}

// Skip lets a request pass without asking the limiter if these returns true. The default is to
// skip no request.
func Skip(these func(*http.Request) bool) Option {
	if these == nil {
		panic("handler: Skip got nil; pass a function, or leave the option out")
	}
	return func(o *options) { o.skip = these }
}

// SkipPreflight lets CORS preflights pass without asking the limiter or charging. These are
// requests with the method OPTIONS and the headers Origin and Access-Control-Request-Method. Use it
// if CORS middleware is inside of the limiter: see "CORS" in the package documentation. Any client
// can send any number of preflights, so the inner handlers must answer OPTIONS with little work.
// The default is to charge them.
func SkipPreflight() Option {
	return func(o *options) { o.skipPreflight = true }
}

// skips reports whether r passes without a decision.
func (o *options) skips(r *http.Request) bool {
	return o.skip != nil && o.skip(r) || o.skipPreflight && isPreflight(r)
}

// isPreflight reports whether r is what the Fetch standard calls a CORS-preflight request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// ChargeFailures charges only requests that fail, such as logins with a wrong password. Each
// request is charged before it is carried out, so that simultaneous requests do not exceed the
// limit. At most the limit can be in flight, even if all will succeed.
//
// If the handler calls [Succeeded], the cost is given back when the handler returns, before the
// client has the whole answer. If the handler panics, it stays charged. It is given back where it
// was charged, which may be a fallback of [limiter.FailLocal]. On a fixed window it is given back
// only while that window runs, so a request that outlasts its window stays charged. [OnError] gets
// the error of giving it back.
//
// RateLimit says what was left before that. Use [HideQuota] if clients would slow down because of
// it. New panics if the limiter has no method RefundOf. The default is to charge every request.
func ChargeFailures() Option {
	return func(o *options) { o.chargeFailures = true }
}

// Refusal answers refused requests with h. When h is called, the headers are set, including
// Retry-After and Cache-Control, and [ResultFromContext] has the decision. h writes the status and
// the body; if it sets no status, the answer is 200, as for any handler. The default is 429 with a
// problem document.
func Refusal(h http.Handler) Option {
	if h == nil {
		panic("handler: Refusal got nil; pass a handler, or leave the option out")
	}
	return func(o *options) { o.refusal = h }
}

// OnRefusal calls f with each refusal before it is sent, for logs and metrics. With [DryRun] it
// calls f with each request that would have been refused.
func OnRefusal(f func(*http.Request, limiter.Result)) Option {
	if f == nil {
		panic("handler: OnRefusal got nil; pass a function, or leave the option out")
	}
	return func(o *options) { o.onRefusal = f }
}

// OnError calls f if there was no key or no decision, or if a refund or a release failed. Clients learn only
// its [middleware.Cause]. The error matches [ErrNoKey], or is the limiter's. The middleware does not call f
// if [limiter.FailOpen] let the request pass; only [limiter.WithObserver] sees that error. Nor does it call f
// for [limiter.ErrCanceled]: the client left, or the request's own deadline left too little time.
//
// The default is to log the error by a [github.com/sqlimit/limiter/limiterslog.Log]: to slog.Default, at
// most once a minute for each middleware and class of errors. ErrNoKey and [limiter.ErrExceedsCapacity] are
// warnings that say what to fix, at most one a minute for each Cause. The text of an
// error of [limiter.WithPolicyFor]'s function is logged as it is, so it must not contain a key. No other line has
// one. The text of an error of the application's key function is not logged: see [middleware.NoKey]. Nor is
// [limiter.ErrKeyBusy].
func OnError(f func(*http.Request, error)) Option {
	if f == nil {
		panic("handler: OnError got nil; pass a function, or leave the option out")
	}
	return func(o *options) { o.onError = f }
}

// LegacyHeaders also sends X-RateLimit-Limit, -Remaining, -Used, -Reset and -Resource, with
// GitHub's meaning
// (https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api). Reset is in
// seconds since 1970. With several limiters they describe the tightest one. For nested functions
// of package awslambda they describe the inner one. The default is not to send them.
//
// A [net/http/httputil.ReverseProxy] inside adds the upstream's headers. If the upstream sends these too,
// remove them in ModifyResponse: see the example.
func LegacyHeaders() Option {
	return func(o *options) { o.legacy = true }
}

// ExposeHeaders lets scripts of other origins read the limiter's headers, by adding them to
// Access-Control-Expose-Headers. CORS middleware outside decides whether such scripts may send
// requests at all: see "CORS" in the package documentation. Middleware inside must not set that
// header again. The default is not to expose them.
func ExposeHeaders() Option {
	return func(o *options) { o.exposes = true }
}

// HideQuota sends no policy and no quota. Use it if the key is not the caller's own: the remaining
// logins of an account tell anybody that it is under attack. A refusal still has Retry-After. The
// default is to send them.
func HideQuota() Option {
	return func(o *options) { o.hide = true }
}

// DryRun decides and charges as usual and reports by [OnRefusal], [OnError] and
// [ResultFromContext], but lets every request pass, without headers. Use it to try a policy on real
// traffic. The default is to refuse.
func DryRun() Option {
	return func(o *options) { o.dryRun = true }
}

// FailOpen lets requests pass when the store fails, instead of answering 503. A store failure is an
// error for which [limiter.StoreFailed] returns true. [OnError] gets that error, and the answer has
// no RateLimit fields. A request without a key, a misconfigured store, a busy key and a canceled
// request never pass because of it. The default is to refuse.
//
// A limiter with [limiter.FailOpen] does the same by itself, for all its callers.
func FailOpen() Option {
	return func(o *options) { o.failOpen = true }
}

// onlyForRates returns the name of an option that was passed and that NewConcurrency does not have, or "".
func (o *options) onlyForRates() string {
	switch {
	case o.cost != nil:
		return "Cost"
	case o.chargeFailures:
		return "ChargeFailures"
	case o.legacy:
		return "LegacyHeaders"
	case o.exposes:
		return "ExposeHeaders"
	case o.hide:
		return "HideQuota"
	}
	return ""
}
