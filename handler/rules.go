package handler

import (
	"net/http"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/middleware"
)

// Rule is one limit of [NewAll]. The zero Rule is not valid: NewAll panics.
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
// A rule whose Cost returns 0 takes nothing and is asked first, by [limiter.Limiter.PeekN]. It refuses a
// request if its key is in debt, blocked, booked beyond now or above its limit. Then the other limiters are
// not asked, and of them RateLimit has nothing.
//
// All keys are found before the limiters are asked. A request without one of them is charged to no
// limiter. [HideQuota] hides all limiters, and [ChargeFailures] gives back what each of them charged.
//
// NewAll panics like New, and if [limiter.CheckAll] returns an error for the limiters. It needs 1 to
// [limiter.MaxClaims] rules. All limiters must share one store, each needs a name of its own, and none may
// have a window with CountRejected. Instead of the option Cost, set Rule.Cost.
func NewAll(rules []Rule, opts ...Option) func(http.Handler) http.Handler {
	m := newLimit(opts)
	if m.cost != nil {
		panic("handler: NewAll got the option Cost, which does not say of which rule; set Rule.Cost instead")
	}
	asked := make([]middleware.Rule[*http.Request], len(rules))
	limiters := make([]Limiter, len(rules))
	for i, r := range rules {
		asked[i], limiters[i] = ruleOf(r.Limiter, r.Key, r.Cost), r.Limiter
	}
	var err error
	if m.rules, err = middleware.NewAll(asked, m.chargeFailures); err != nil {
		panic("handler: " + err.Error())
	}
	m.finish(limiters...)
	return around(m.serve)
}
