package main

import (
	"errors"
	"time"

	"github.com/sqlimit/limiter"
)

// policies holds the policy of each limiter, by name.
var policies = map[string]limiter.Policy{
	"limits":        limiter.TokenBucket{Capacity: 30, Refill: 3, Interval: time.Second},
	"page":          limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Second},
	"search":        limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Second},
	"export-burst":  limiter.TokenBucket{Capacity: 3, Refill: 1, Interval: 2 * time.Second},
	"export-day":    limiter.FixedWindow{Limit: 20, Window: 24 * time.Hour},
	"login-address": limiter.PerMinute(20),
	"login-account": limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: time.Minute},
}

// byAddress names the limiters whose key is the client's address, in the order in which
// GET /limits reports them.
var byAddress = []string{"search", "export-burst", "export-day", "login-address", "page"}

// storeTimeout bounds a decision. The default of 250 ms is too short for a small instance
// that gets 80 requests at once: the last of them would get 503.
const storeTimeout = 2 * time.Second

// newLimiters returns a limiter of each policy, by name.
func newLimiters(store limiter.Store, policies map[string]limiter.Policy) (map[string]*limiter.Limiter, error) {
	limiters := make(map[string]*limiter.Limiter, len(policies))
	var errs []error
	for name, policy := range policies {
		l, err := limiter.New(store, name, policy, limiter.WithTimeout(storeTimeout))
		limiters[name] = l
		errs = append(errs, err)
	}
	return limiters, errors.Join(errs...)
}
