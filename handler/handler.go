package handler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/limiterslog"
)

// Limiter makes the decisions; a [*limiter.Limiter] is one. It must be safe for concurrent use.
//
// Its errors should match the classes of package limiter. With [FailOpen], a request passes only
// after an error for which [limiter.StoreFailed] returns true. [ChargeFailures] also needs the
// method RefundOf of [limiter.Limiter]: it must give nothing back for a Result that charged
// nothing, and must not credit a window that was not charged.
type Limiter interface {
	AllowN(ctx context.Context, key string, n int64) (limiter.Result, error)
	Name() string
	Policy() limiter.Policy
}

// refunder is a limiter with the method that ChargeFailures needs.
type refunder interface {
	RefundOf(ctx context.Context, key string, n int64, res limiter.Result) (bool, error)
}

// New returns middleware that asks l before each request. The KeyFunc returns the key of the
// request. New does no I/O. The middleware may be used for any number of handlers, concurrently.
//
// New panics if l, key or an option is nil or out of range, because such a program is wrong from
// its start.
func New(l Limiter, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	m := newMiddleware(opts)
	m.add(l, key, m.cost)
	m.finish()
	return m.wrap
}

// middleware is what New and NewAll make.
type middleware struct {
	options
	rules    []rule
	all      bool   // made by NewAll: AllowAll decides
	name     string // of the limiters, for the log
	policies string // the items of RateLimit-Policy, if the limiters' own policies decide
	expose   string // names of fields
	problem  []byte // the body of a refusal; nil if it depends on the decision
	log      limiterslog.Log
}

// rule is a limiter with the key and the cost of a request.
type rule struct {
	limiter Limiter
	key     KeyFunc
	cost    func(*http.Request) int64 // nil: every request costs 1
	refunds refunder                  // only with ChargeFailures
	name    string
	policy  limiter.Policy // the limiter's own
	fields  fields         // of that policy
}

func newMiddleware(opts []Option) *middleware {
	m := &middleware{}
	for _, opt := range opts {
		if opt == nil {
			panic("handler: an option is nil; leave it out")
		}
		opt(&m.options)
	}
	return m
}

// add adds a rule.
func (m *middleware) add(l Limiter, key KeyFunc, cost func(*http.Request) int64) {
	if v := reflect.ValueOf(l); l == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("handler: the limiter is nil; pass what limiter.New returned")
	}
	if key == nil {
		panic("handler: the key function is nil; pass handler.ClientIP(), or a function of your own")
	}
	r := rule{limiter: l, key: key, cost: cost, name: l.Name(), policy: l.Policy()}
	if m.chargeFailures {
		var ok bool
		if r.refunds, ok = l.(refunder); !ok {
			panic(fmt.Sprintf("handler: ChargeFailures needs a limiter with the method RefundOf, which %T does not have; pass a *limiter.Limiter, or leave the option out", l))
		}
	}
	var ok bool
	if r.fields, ok = newFields(r.name, quote(r.name), r.policy, m.legacy); !ok {
		panic("handler: the limiter has no policy; pass what limiter.New returned")
	}
	m.rules = append(m.rules, r)
}

// finish prepares what all answers share. It is called after all rules were added.
func (m *middleware) finish() {
	var names, policies []string
	for _, r := range m.rules {
		names, policies = append(names, r.name), append(policies, r.fields.policy)
	}
	m.name, m.policies = strings.Join(names, ","), strings.Join(policies, ", ")
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

// wrap is the middleware as its users call it.
func (m *middleware) wrap(next http.Handler) http.Handler {
	if next == nil {
		panic("handler: the next handler is nil; pass one, such as an *http.ServeMux")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
}

// serve asks for a decision, tells the client, and calls next if the request may pass.
func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if m.skip != nil && m.skip(r) || m.skipPreflight && isPreflight(r) {
		next.ServeHTTP(w, r)
		return
	}
	if m.expose != "" && !m.dryRun {
		exposeTo(w.Header(), m.expose)
	}
	d := &decision{Context: r.Context()}
	if err := m.prepare(d, r); err != nil {
		m.undecided(w, r, next, err, http.StatusBadRequest)
		return
	}
	var begin time.Time
	if m.chargeFailures {
		begin = time.Now()
	}
	if err := m.ask(d); err != nil {
		m.undecided(w, r, next, err, statusOf(err))
		return
	}
	outer := r
	r = r.WithContext(d)
	defer copyBack(outer, r)
	if !m.dryRun {
		d.findFields(m.legacy)
		if !m.hide {
			m.setFields(w.Header(), d)
		}
	}
	if !d.result.Allowed {
		m.refuse(w, r, next, d)
		return
	}
	next.ServeHTTP(w, r)
	if m.chargeFailures && d.succeeded.Load() {
		m.giveBack(r, d, time.Since(begin))
	}
}

// prepare finds the keys and the costs of a request.
func (m *middleware) prepare(d *decision, r *http.Request) error {
	d.parts = d.one[:]
	if n := len(m.rules); n > 1 {
		d.parts = make([]part, n)
	}
	for i := range d.parts {
		p := &d.parts[i]
		p.rule = &m.rules[i]
		var err error
		if p.key, err = p.rule.key(r); err == nil && p.key == "" {
			err = noKey("the key function returned an empty key")
		}
		if err != nil {
			if !errors.Is(err, ErrNoKey) {
				err = fmt.Errorf("%w: %w", ErrNoKey, err)
			}
			return err
		}
		if p.cost = 1; p.rule.cost != nil {
			p.cost = p.rule.cost(r)
		}
	}
	return nil
}

// giveBack refunds a request that succeeded, even if its client has gone by now. It keeps
// the request's deadline, because the answer waits for it. A charge has come back by itself
// ResetAfter later: a refund would then credit what other requests were charged since.
func (m *middleware) giveBack(r *http.Request, d *decision, took time.Duration) {
	ctx := context.WithoutCancel(r.Context())
	if deadline, ok := r.Context().Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	for i := range d.parts {
		p := &d.parts[i]
		if p.result == nil || took >= p.result.ResetAfter {
			continue
		}
		if _, err := p.rule.refunds.RefundOf(ctx, p.key, p.cost, *p.result); err != nil {
			m.report(r, err)
		}
	}
}

// statusOf is the status for an error of the limiter.
func statusOf(err error) int {
	switch {
	case errors.Is(err, limiter.ErrExceedsCapacity):
		return http.StatusBadRequest // no wait would help
	case errors.Is(err, limiter.ErrInvalid):
		return http.StatusInternalServerError // a negative cost, say: not the client's fault
	}
	return http.StatusServiceUnavailable
}
