package handler

import (
	"strconv"
	"time"

	"github.com/sqlimit/limiter"
)

// FieldItems returns the items that the middleware of [New] writes to the fields RateLimit-Policy and
// RateLimit for a decision of l. It is for transports other than net/http, such as gRPC. Both fields
// are lists: join the items of several limiters with ", ".
//
// The items describe res.Policy. If that is nil or has no fields, such as [limiter.InFlight], they describe
// the policy of l. quota is "" if res.Limit is 0, as for a decision of a failure policy and for the zero
// Result of a limiter that was not asked. FieldItems panics for a limiter that New does not accept.
func FieldItems(l Limiter, res limiter.Result) (policy, quota string) {
	name := quote(l.Name())
	f, ok := newFields(l.Name(), name, res.Policy, false)
	if !ok {
		f, ok = newFields(l.Name(), name, l.Policy(), false)
	}
	if !ok {
		panic("handler: the limiter has no policy; pass what limiter.New returned")
	}
	if res.Limit > 0 {
		quota = string(f.appendQuota(nil, &res))
	}
	return f.policy, quota
}

// RetryAfter returns the value of Retry-After for a wait, as the middleware writes it: in seconds,
// rounded up, and at least 1.
func RetryAfter(wait time.Duration) string {
	return strconv.FormatInt(atLeastOne(wait), 10)
}
