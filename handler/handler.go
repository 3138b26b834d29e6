package handler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/sqlimit/limiter"
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

// refunder is the additional method that ChargeFailures needs.
type refunder interface {
	RefundOf(ctx context.Context, key string, n int64, res limiter.Result) (bool, error)
}

// New returns middleware that asks l before each request. The KeyFunc returns the key of the
// request. New does no I/O. The middleware may be used for any number of handlers, concurrently.
//
// New panics if l, key or an option is nil or out of range, because such a program is wrong from
// its start.
func New(l Limiter, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	m := newMiddleware(l, key, opts)
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("handler: the next handler is nil; pass one, such as an *http.ServeMux")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}
}

type middleware struct {
	options
	limiter Limiter
	key     KeyFunc
	refunds refunder // only with ChargeFailures
	fields  fields
	expose  string // names of fields
	problem []byte // the body of a refusal
	log     errorLog
}

func newMiddleware(l Limiter, key KeyFunc, opts []Option) *middleware {
	if v := reflect.ValueOf(l); l == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("handler: the limiter is nil; pass what limiter.New returned")
	}
	if key == nil {
		panic("handler: the key function is nil; pass handler.ClientIP(), or a function of your own")
	}
	m := &middleware{limiter: l, key: key}
	for _, opt := range opts {
		if opt == nil {
			panic("handler: an option is nil; leave it out")
		}
		opt(&m.options)
	}
	if m.chargeFailures {
		var ok bool
		if m.refunds, ok = l.(refunder); !ok {
			panic(fmt.Sprintf("handler: ChargeFailures needs a limiter with the method RefundOf, which %T does not have; pass a *limiter.Limiter, or leave the option out", l))
		}
	}
	m.fields = newFields(l.Name(), l.Policy(), m.legacy)
	if m.exposes {
		m.expose = exposed(m.hide, m.legacy)
	}
	m.problem = quotaExceeded(l.Name(), m.hide)
	return m
}

// serve asks the limiter, tells the client, and calls next if the request may pass.
func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if m.skip != nil && m.skip(r) || m.skipPreflight && isPreflight(r) {
		next.ServeHTTP(w, r)
		return
	}
	if m.expose != "" && !m.dryRun {
		exposeTo(w.Header(), m.expose)
	}
	key, err := m.key(r)
	if err == nil && key == "" {
		err = noKey("the key function returned an empty key")
	}
	if err != nil {
		if !errors.Is(err, ErrNoKey) {
			err = fmt.Errorf("%w: %w", ErrNoKey, err)
		}
		m.undecided(w, r, next, err, http.StatusBadRequest)
		return
	}
	cost := int64(1)
	if m.cost != nil {
		cost = m.cost(r)
	}
	var begin time.Time
	if m.chargeFailures {
		begin = time.Now()
	}
	res, err := m.limiter.AllowN(r.Context(), key, cost)
	if err != nil {
		m.undecided(w, r, next, err, statusOf(err))
		return
	}
	if cost == 0 {
		// A look asks about a request that costs 1; this one takes nothing.
		res.Allowed, res.RetryAfter = true, 0
	}
	d := &decision{Context: r.Context(), result: res, cost: cost}
	outer := r
	r = r.WithContext(d)
	defer copyBack(outer, r)
	if !m.dryRun {
		d.fields = &m.fields
		if !m.hide {
			m.fields.set(w.Header(), &res)
		}
	}
	if !res.Allowed {
		m.refuse(w, r, next, &res)
		return
	}
	next.ServeHTTP(w, r)
	// After ResetAfter the charge has come back by itself. A refund would then credit what
	// other requests were charged since.
	if m.chargeFailures && d.succeeded.Load() && time.Since(begin) < res.ResetAfter {
		m.giveBack(r, key, cost, res)
	}
}

// giveBack refunds a request that succeeded, even if its client has gone by now. It keeps
// the request's deadline, because the answer waits for it.
func (m *middleware) giveBack(r *http.Request, key string, cost int64, res limiter.Result) {
	ctx := context.WithoutCancel(r.Context())
	if deadline, ok := r.Context().Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	if _, err := m.refunds.RefundOf(ctx, key, cost, res); err != nil {
		m.report(r, err)
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
