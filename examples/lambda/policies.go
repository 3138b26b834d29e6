package main

import (
	"errors"
	"time"

	"github.com/sqlimit/limiter"
)

// policies say what the limiter of each name lets pass.
var policies = map[string]limiter.Policy{
	"limits":        limiter.TokenBucket{Capacity: 30, Refill: 3, Interval: time.Second},
	"page":          limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Second},
	"search":        limiter.TokenBucket{Capacity: 10, Refill: 1, Interval: time.Second},
	"export-burst":  limiter.TokenBucket{Capacity: 3, Refill: 1, Interval: 2 * time.Second},
	"export-day":    limiter.FixedWindow{Limit: 20, Window: 24 * time.Hour},
	"login-address": limiter.PerMinute(20),
	"login-account": limiter.TokenBucket{Capacity: 5, Refill: 1, Interval: time.Minute},
}

// byAddress are the limiters whose key is the client's address.
var byAddress = []string{"search", "export-burst", "export-day", "login-address", "page"}

// storeTimeout is how long a decision may take. The default is 250 ms; a small
// instance that has just been handed 80 requests at once can need more than that for
// the last of them, and to wait is better there than to turn them away.
const storeTimeout = 2 * time.Second

// newLimiters returns a limiter for each policy, by name.
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
