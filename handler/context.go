package handler

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/middleware"
)

// decision is the context of a request that was decided. It is a context itself, which saves an
// allocation.
type decision struct {
	context.Context
	middleware.Decision
	fields    []*fields  // of each rule: of the policy that decided; empty if a dry run refuses nothing
	one       [1]*fields // fields, if there is one rule: this saves an allocation
	none      bool       // there is no decision, which an outer one does not stand for
	succeeded atomic.Bool
}

type decisionKey struct{}

// Value returns the decision itself, or a value of the request's context.
func (d *decision) Value(key any) any {
	if key == (decisionKey{}) {
		return d
	}
	return d.Context.Value(key)
}

func decisionOf(ctx context.Context) *decision {
	d, _ := ctx.Value(decisionKey{}).(*decision)
	return d
}

// pass calls next with d in the request's context.
func pass(w http.ResponseWriter, r *http.Request, next http.Handler, d *decision) {
	inner := r.WithContext(d)
	defer copyBack(r, inner)
	next.ServeHTTP(w, inner)
}

// copyBack copies to outer what a handler learned about inner, which is outer with another context.
// net/http removes the temporary files of the request that it made, not of a copy
// (golang/go#58809), and middleware outside of the limiter reads its Pattern.
func copyBack(outer, inner *http.Request) {
	outer.MultipartForm, outer.Pattern = inner.MultipartForm, inner.Pattern
}

// retryAfter returns the Retry-After of a request that is not served: wait, or the longest wait of
// an outer limiter whose quota is used up. A client that comes earlier would be refused again.
func retryAfter(ctx context.Context, wait time.Duration) string {
	for d := decisionOf(ctx); d != nil; d = decisionOf(d.Context) {
		for i, f := range d.fields {
			if p := &d.Results[i]; p.Asked {
				wait = max(wait, f.wait(&p.Result, p.Cost))
			}
		}
	}
	return RetryAfter(wait)
}

// ResultFromContext returns the decision on a request, from the request's context. It reports false
// if the request was skipped, or if a dry run could not decide. If FailOpen let the request pass,
// the Source is [limiter.SourcePolicy]. With [NewAll] it is the decision as a whole. With limiters
// that nest it is that of the innermost one.
func ResultFromContext(ctx context.Context) (limiter.Result, bool) {
	if d := decisionOf(ctx); d != nil && !d.none {
		return d.Result, true
	}
	return limiter.Result{}, false
}

// Succeeded says that a request has succeeded; ctx is the request's context. Every middleware
// around it with [ChargeFailures] then gives back what it charged. Without such middleware it does
// nothing. It may be called more than once, and concurrently, until the handler returns.
func Succeeded(ctx context.Context) {
	for d := decisionOf(ctx); d != nil; d = decisionOf(d.Context) {
		d.succeeded.Store(true)
	}
}
