package handler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/sqlimit/limiter"
)

// Rule is one limit of [NewAll].
type Rule struct {
	Limiter *limiter.Limiter
	// Key returns the key of a request.
	Key KeyFunc
	// Cost returns what a request costs, as the function of the option [Cost] does. If it is nil,
	// every request costs 1.
	Cost func(*http.Request) int64
}

// NewAll returns middleware, like [New], that asks several limiters for one decision. The request
// passes only if all of them have room, and only then it is charged to all of them: see
// [limiter.AllowAll].
//
// RateLimit-Policy and RateLimit have all policies, in the order of the rules. A refusal names those
// that had no room, and Retry-After is the longest wait of those. [OnRefusal] and
// [ResultFromContext] have the decision as a whole. [LegacyHeaders] describe the limiter that decides:
// see [limiter.AllResult].
//
// A rule whose Cost returns 0 takes nothing and is not asked: only its policy is in the header. If
// all return 0, the request passes, and the middleware asks each limiter what is left.
//
// All keys are found before the limiters are asked. A request without one of them is charged to no
// limiter. [HideQuota] hides all limiters, and [ChargeFailures] gives back what each of them charged.
//
// NewAll panics like New, and if it gets no rule or more than [limiter.MaxClaims]. It also panics if
// AllowAll does not accept the limiters together: all must share one store, and none may have a
// window with CountRejected. Instead of the option Cost, set Rule.Cost.
func NewAll(rules []Rule, opts ...Option) func(http.Handler) http.Handler {
	if n := len(rules); n < 1 || n > limiter.MaxClaims {
		panic(fmt.Sprintf("handler: NewAll got %d rules; pass 1 to %d", n, limiter.MaxClaims))
	}
	m := newMiddleware(opts)
	m.all = true
	if m.cost != nil {
		panic("handler: NewAll got the option Cost, which does not say of which rule; set Rule.Cost instead")
	}
	for _, r := range rules {
		m.add(r.Limiter, r.Key, r.Cost)
		if w, ok := r.Limiter.Policy().(limiter.FixedWindow); ok && w.CountRejected {
			panic(fmt.Sprintf("handler: NewAll got limiter %q, a window with CountRejected, which no decision over several limits can charge; put New around the rest", r.Limiter.Name()))
		}
	}
	checkTogether(rules)
	m.finish()
	return m.wrap
}

// checkTogether panics if AllowAll does not accept the limiters of the rules together. It asks for a
// cost that no policy admits, in a context that has ended. AllowAll then returns an error before it
// asks a store, chooses a policy or calls an observer.
func checkTogether(rules []Rule) {
	claims := make([]limiter.Claim, len(rules))
	for i, r := range rules {
		claims[i] = limiter.Claim{Limiter: r.Limiter, Key: "key"}
	}
	claims[len(claims)-1].Cost = math.MaxInt64
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := limiter.AllowAll(ctx, claims...); errors.Is(err, limiter.ErrInvalid) {
		panic(fmt.Sprintf("handler: NewAll: %v", err))
	}
}

// ask asks the limiters for the decision d.
func (m *middleware) ask(d *decision) error {
	if !m.all {
		p := &d.parts[0]
		res, err := p.ask(d.Context)
		d.result, d.binding, p.result = res, p, &d.result
		return err
	}
	var claims []limiter.Claim
	for i := range d.parts {
		if p := &d.parts[i]; p.cost != 0 {
			claims = append(claims, limiter.Claim{Limiter: p.rule.limiter.(*limiter.Limiter), Key: p.key, Cost: p.cost})
		}
	}
	if len(claims) == 0 {
		return d.look()
	}
	all, err := limiter.AllowAll(d.Context, claims...)
	if err != nil {
		return err
	}
	d.result = all.Result
	claim := 0
	for i := range d.parts {
		p := &d.parts[i]
		if p.cost == 0 {
			continue
		}
		if res := &all.Each[claim]; res.Source != 0 {
			p.result = res
		}
		if claim == all.Binding {
			d.binding = p
		}
		claim++
	}
	return nil
}

// ask asks one limiter.
func (p *part) ask(ctx context.Context) (limiter.Result, error) {
	res, err := p.rule.limiter.AllowN(ctx, p.key, p.cost)
	if err == nil && p.cost == 0 {
		// AllowN with 0 is a Peek, which asks about a cost of 1. This request takes nothing, so it passes.
		res.Allowed, res.RetryAfter = true, 0
	}
	return res, err
}

// look asks each limiter what is left, for a request that takes nothing. The limiter with the least
// left decides.
func (d *decision) look() error {
	for i := range d.parts {
		p := &d.parts[i]
		res, err := p.ask(d.Context)
		if err != nil {
			return err
		}
		p.result = &res
		if d.binding == nil || !d.binding.knowsQuota() || p.knowsQuota() && p.result.Remaining < d.binding.result.Remaining {
			d.binding = p
		}
	}
	d.result = *d.binding.result
	return nil
}
