package handler

import (
	"net/http"

	"github.com/sqlimit/limiter"
)

// Option changes how the middleware of [New] works. Functions that options take
// are called by many requests at once.
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

// Cost tells the middleware what a request costs. One that costs 0 takes nothing
// and passes always, with the headers that say what is left. One that costs more
// than the limiter could ever admit is answered 400, and one with a negative cost,
// which is a mistake in the function, 500. The default is 1.
func Cost(of func(*http.Request) int64) Option {
	if of == nil {
		panic("handler: Cost got nil; pass a function, or leave the option out")
	}
	return func(o *options) { o.cost = of }
}

// Skip tells the middleware which requests to let pass unasked and uncharged. The
// default is none.
func Skip(these func(*http.Request) bool) Option {
	if these == nil {
		panic("handler: Skip got nil; pass a function, or leave the option out")
	}
	return func(o *options) { o.skip = these }
}

// SkipPreflight tells the middleware to let CORS preflights pass unasked and uncharged:
// requests with the method OPTIONS and the headers Origin and Access-Control-Request-Method.
// Use it where CORS middleware stands inside of the limiter: see "CORS" in the package
// documentation. Anybody can send any number of preflights, so the handlers inside must
// answer OPTIONS without much work. The default is to ask the limiter and to charge.
func SkipPreflight() Option {
	return func(o *options) { o.skipPreflight = true }
}

// isPreflight reports whether r is what the Fetch standard calls a CORS-preflight request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// ChargeFailures tells the middleware to charge only requests that fail, logins
// with a wrong password above all. Each request is charged before it is carried out,
// so that no number of them at once gets round the limit, and so that no more than the
// limit can be in flight at once, even if all will succeed. If the handler calls
// [Succeeded], the charge is given back when the handler returns, before the client
// has all of the answer; not if it panics. It is given back where it was charged, which
// may be a fallback of [limiter.FailLocal]. On a fixed window it is given back only while
// that window runs: a request that outlasts its window stays charged in it. The error of
// giving it back goes to [OnError].
//
// RateLimit tells what was left before that: use [HideQuota] where clients would slow
// down by it. [New] panics if the limiter has no method RefundOf. The default is to charge
// every request.
func ChargeFailures() Option {
	return func(o *options) { o.chargeFailures = true }
}

// Refusal tells the middleware to answer refused requests by h. When h is called
// the headers are set, Retry-After and Cache-Control among them, and
// [ResultFromContext] has the decision; what is left is status and body. A handler that
// sets no status answers 200, as any other. The default is 429 with a problem document.
func Refusal(h http.Handler) Option {
	if h == nil {
		panic("handler: Refusal got nil; pass a handler, or leave the option out")
	}
	return func(o *options) { o.refusal = h }
}

// OnRefusal tells the middleware to call f with each refusal, before it is sent,
// for logs and metrics; with [DryRun], with each that would have been one.
func OnRefusal(f func(*http.Request, limiter.Result)) Option {
	if f == nil {
		panic("handler: OnRefusal got nil; pass a function, or leave the option out")
	}
	return func(o *options) { o.onRefusal = f }
}

// OnError tells the middleware to call f if there was no key or no decision, or if a
// refund failed. Clients are not told why. The error matches [ErrNoKey], or is the
// limiter's own. f is not called if [limiter.FailOpen] let the request pass: only
// [limiter.WithObserver] sees that error. Nor is it called for [limiter.ErrCanceled]: the
// client left, or the request's own deadline left too little time.
//
// The default is to log the error to [slog.Default], at most once a minute for each
// middleware and never with a key. Errors that clients can cause are not logged:
// ErrNoKey, [limiter.ErrExceedsCapacity] and [limiter.ErrKeyBusy].
func OnError(f func(*http.Request, error)) Option {
	if f == nil {
		panic("handler: OnError got nil; pass a function, or leave the option out")
	}
	return func(o *options) { o.onError = f }
}

// LegacyHeaders tells the middleware to send X-RateLimit-Limit, -Remaining, -Used,
// -Reset and -Resource as well, with GitHub's meaning: Reset is in seconds since
// 1970 (https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api).
// Of several limiters they tell the tightest. The default is not to send them.
func LegacyHeaders() Option {
	return func(o *options) { o.legacy = true }
}

// ExposeHeaders tells the middleware to let scripts of other origins read its headers, by
// adding them to Access-Control-Expose-Headers. CORS middleware, which stands outside, says
// whether such scripts may send requests at all: see "CORS" in the package documentation.
// Middleware inside must not set that header again. The default is not to expose them.
func ExposeHeaders() Option {
	return func(o *options) { o.exposes = true }
}

// HideQuota tells the middleware to send no policy and no quota, for limiters
// whose key is not the caller's own: what is left of an account's logins tells
// anybody that it is under attack. A refusal still has Retry-After. The default is
// to send them.
func HideQuota() Option {
	return func(o *options) { o.hide = true }
}

// DryRun tells the middleware to decide and charge as ever, to report by
// [OnRefusal], [OnError] and [ResultFromContext], and to let every request pass,
// without a header. It is for trying a policy on real traffic. The default is to
// refuse.
func DryRun() Option {
	return func(o *options) { o.dryRun = true }
}

// FailOpen tells the middleware to let requests pass when the store failed, in
// place of 503: where [limiter.StoreFailed] reports so of the limiter's error. [OnError]
// gets that error, and the answer has no RateLimit fields. A limiter made with
// [limiter.FailOpen] does it by itself, for all of its callers. A request without a key,
// a misconfigured store, a busy key and a canceled request never pass by it. The default is
// to refuse.
func FailOpen() Option {
	return func(o *options) { o.failOpen = true }
}
