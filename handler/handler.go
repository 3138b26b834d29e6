package handler

import (
	"net/http"
	"strings"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/middleware"
)

// Limiter makes the decisions; a [*limiter.Limiter] is one. With [FailOpen], a request passes only
// after an error for which [limiter.StoreFailed] returns true. [ChargeFailures] also needs the
// method RefundOf of [limiter.Limiter].
type Limiter = middleware.Limiter

// New returns middleware that asks l before each request. The KeyFunc returns the key of the
// request. New does no I/O. The middleware may be used for any number of handlers, concurrently.
//
// New panics if l, key or an option is nil or out of range, because such a program is wrong from
// its start.
func New(l Limiter, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	m := newLimit(opts)
	var err error
	if m.rules, err = middleware.New(ruleOf(l, key, m.cost), m.chargeFailures); err != nil {
		panic("handler: " + err.Error())
	}
	m.finish(l)
	return around(m.serve)
}

func ruleOf(l Limiter, key KeyFunc, cost func(*http.Request) int64) middleware.Rule[*http.Request] {
	return middleware.Rule[*http.Request]{Limiter: l, Key: key, Cost: cost}
}

// limit is what New, NewAll and NewConcurrency make. The latter has no fields.
type limit struct {
	options
	rules    *middleware.Rules[*http.Request]
	own      []ownFields // of each rule
	policies string      // the items of RateLimit-Policy, if the limiters' own policies decide
	expose   string      // names of fields
	problem  []byte      // the body of a refusal; nil if it depends on the decision
}

// ownFields are the fields of a limiter's own policy.
type ownFields struct {
	fields
	limiter string // its name
	policy  limiter.Policy
}

func newLimit(opts []Option) *limit {
	m := &limit{}
	for _, opt := range opts {
		if opt == nil {
			panic("handler: an option is nil; leave it out")
		}
		opt(&m.options)
	}
	return m
}

// finish prepares what all responses share.
func (m *limit) finish(limiters ...Limiter) {
	var names, policies []string
	for _, l := range limiters {
		own := ownFields{limiter: l.Name(), policy: l.Policy()}
		var ok bool
		if own.fields, ok = newFields(own.limiter, quote(own.limiter), own.policy, m.legacy); !ok {
			panic("handler: the limiter has no policy; pass what limiter.New returned")
		}
		m.own = append(m.own, own)
		names, policies = append(names, own.limiter), append(policies, own.fields.policy)
	}
	m.policies = strings.Join(policies, ", ")
	if m.exposes {
		m.expose = exposed(m.hide, m.legacy)
	}
	switch {
	case m.hide:
		m.problem = quotaExceeded(nil)
	case len(names) == 1:
		m.problem = quotaExceeded(names)
	}
}

// around returns the middleware as its users call it. Its requests go to serve.
func around(serve func(w http.ResponseWriter, r *http.Request, next http.Handler)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("handler: the next handler is nil; pass one, such as an *http.ServeMux")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, next) })
	}
}

// serve asks for a decision, tells the client, and calls next if the request may pass.
func (m *limit) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if m.skips(r) {
		next.ServeHTTP(w, r)
		return
	}
	if m.expose != "" && !m.dryRun {
		exposeTo(w.Header(), m.expose)
	}
	var begin time.Time
	if m.chargeFailures {
		begin = time.Now()
	}
	d := &decision{Context: r.Context()}
	if err := m.rules.Decide(d.Context, r, &d.Decision); err != nil {
		m.noDecision(w, r, next, d, err)
		return
	}
	outer := r
	r = r.WithContext(d)
	defer copyBack(outer, r)
	if !m.dryRun {
		d.findFields(m)
		if !m.hide {
			m.setFields(w.Header(), d)
		}
	}
	if !d.Result.Allowed {
		m.refuse(w, r, next, d, d.Result.RetryAfter)
		return
	}
	next.ServeHTTP(w, r)
	if m.chargeFailures && d.succeeded.Load() {
		for _, err := range d.GiveBack(r.Context(), time.Since(begin)) {
			m.report(r, err)
		}
	}
}

// statusOf is the status for a request without a decision.
func statusOf(c middleware.Cause) int {
	switch c {
	case middleware.NoDecision:
		return http.StatusServiceUnavailable
	case middleware.Misused:
		return http.StatusInternalServerError // not the client's fault
	default:
		return http.StatusBadRequest // no wait would help
	}
}
