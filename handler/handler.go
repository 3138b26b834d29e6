// Package handler puts a limiter in front of an [http.Handler]: on a server, on
// Cloud Run and, with package awslambda beside it, in AWS Lambda.
//
//	limit := handler.New(perClient, handler.ClientIP())
//	http.Handle("GET /search", limit(search))
//
// It is middleware of the usual form, func(http.Handler) http.Handler, and does not
// wrap the ResponseWriter, so that [http.Flusher], [http.Hijacker] and the rest
// work as before. chi takes it as it is, r.Use(limit), and echo by
// e.Use(echo.WrapMiddleware(limit)). Any router is itself a handler: limit(gin.New()).
//
// # What clients are told
//
// With every decision come RateLimit-Policy and RateLimit as in
// draft-ietf-httpapi-ratelimit-headers-11 (Go spells them Ratelimit; names of fields
// have no case). A refusal is 429 Too Many Requests with Retry-After,
// Cache-Control: no-store and a problem document (RFC 9457) of the draft's type
// quota-exceeded. Where no decision could be had the answer is 503 with Retry-After;
// where a request has no key, or costs more than can ever pass, 400; where the
// function of [Cost] returned a negative number, 500.
//
// Several limiters nest: limit1(limit2(next)) asks limit1 first, then limit2, and
// calls next if both let the request pass. Their policies stand in one field. What
// limit1 charged stays charged if limit2 refuses. So what protects others goes
// outside, for a login the address before the account, and of two limits for one key
// the scarcer one goes inside.
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

// Limiter decides; [*limiter.Limiter] is one. It must be safe for concurrent use.
// Its errors should match the classes of package limiter: those alone that
// [limiter.StoreFailed] knows can let a request pass, with [FailOpen]. For
// [ChargeFailures] it must have the method Refund as well.
type Limiter interface {
	AllowN(ctx context.Context, key string, n int64) (limiter.Result, error)
	Name() string
	Policy() limiter.Policy
}

// refunder is what ChargeFailures needs beside.
type refunder interface {
	Refund(ctx context.Context, key string, n int64) error
}

// New returns middleware that asks l before each request, by the key that the
// KeyFunc returns. It does no I/O and may be used for any number of handlers,
// concurrently. New panics, as a program that is put together wrongly should when
// it starts, if l, key or an option is nil or out of range.
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
			panic("handler: ChargeFailures needs a limiter with the method Refund; pass a *limiter.Limiter, or leave the option out")
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
	if m.skip != nil && m.skip(r) {
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
	d := &decision{Context: r.Context(), result: res}
	r = r.WithContext(d)
	if !m.dryRun && !m.hide {
		m.fields.set(w.Header(), &res)
	}
	if !res.Allowed {
		m.refuse(w, r, next, &res)
		return
	}
	next.ServeHTTP(w, r)
	// What was charged so long ago that nothing is left of it has come back by itself:
	// to give it back would lift what others were charged since.
	if m.chargeFailures && d.succeeded.Load() && charged(&res, cost) && time.Since(begin) < res.ResetAfter {
		m.giveBack(r, key, cost)
	}
}

// charged reports whether the decision took the cost from a key where a refund gives it
// back.
func charged(res *limiter.Result, cost int64) bool {
	return res.Allowed && cost > 0 && res.Source != limiter.SourcePolicy && res.Source != limiter.SourceLocal
}

// giveBack refunds a request that succeeded. That its client has gone by now changes
// nothing; that its time is nearly over does, since the answer waits for this.
func (m *middleware) giveBack(r *http.Request, key string, cost int64) {
	ctx := context.WithoutCancel(r.Context())
	if deadline, ok := r.Context().Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	err := m.refunds.Refund(ctx, key, cost)
	if err != nil && m.onError != nil {
		m.onError(r, err)
	}
}

// statusOf is what the client is told of an error of the limiter.
func statusOf(err error) int {
	switch {
	case errors.Is(err, limiter.ErrExceedsCapacity):
		return http.StatusBadRequest // no wait would help
	case errors.Is(err, limiter.ErrInvalid):
		return http.StatusInternalServerError // a negative cost, say: not the client's fault
	}
	return http.StatusServiceUnavailable
}
