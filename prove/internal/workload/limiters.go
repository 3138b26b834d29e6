// Package workload is what the callers of a history do: the traffic of an application with
// hot, warm and cold keys, and with all that a Limiter offers.
package workload

import (
	"time"

	"github.com/sqlimit/limiter"
)

// Spec is one limiter of the workload.
type Spec struct {
	Name string
	// Policies has two where two versions of the application run at a time.
	Policies []limiter.Policy
	// GivesBack is whether refunds and resets happen, and Reserves whether reservations
	// and cancels do.
	GivesBack, Reserves bool
	// Denies is whether the Limiters keep refusals in memory.
	Denies bool
}

// Specs are the limiters of the workload, all on one store. Their policies are such that a
// busy key has some of its requests granted and some refused.
var Specs = []Spec{
	{Name: "bucket", Denies: true, Policies: []limiter.Policy{
		limiter.TokenBucket{Capacity: 40, Refill: 1, Interval: 5 * time.Millisecond},
	}},
	{Name: "window", Denies: true, Policies: []limiter.Policy{
		limiter.FixedWindow{Limit: 60, Window: 200 * time.Millisecond},
	}},
	{Name: "asked-always", Policies: []limiter.Policy{
		limiter.TokenBucket{Capacity: 30, Refill: 2, Interval: 5 * time.Millisecond},
	}},
	{Name: "counted", Policies: []limiter.Policy{
		limiter.FixedWindow{Limit: 50, Window: 160 * time.Millisecond, CountRejected: true},
	}},
	{Name: "given-back", GivesBack: true, Reserves: true, Denies: true, Policies: []limiter.Policy{
		limiter.TokenBucket{Capacity: 25, Refill: 1, Interval: 5 * time.Millisecond},
	}},
	{Name: "given-back", GivesBack: true, Reserves: true, Denies: true, Policies: []limiter.Policy{
		limiter.FixedWindow{Limit: 30, Window: 120 * time.Millisecond},
	}},
	{Name: "changed", GivesBack: true, Reserves: true, Denies: true, Policies: []limiter.Policy{
		limiter.TokenBucket{Capacity: 20, Refill: 2, Interval: 5 * time.Millisecond},
		limiter.TokenBucket{Capacity: 35, Refill: 1, Interval: 5 * time.Millisecond},
	}},
	{Name: "changed", GivesBack: true, Reserves: true, Policies: []limiter.Policy{
		limiter.FixedWindow{Limit: 50, Window: 120 * time.Millisecond},
		limiter.FixedWindow{Limit: 90, Window: 180 * time.Millisecond},
	}},
}

// capacity is the highest cost that can pass.
func capacity(p limiter.Policy) int64 {
	switch p := p.(type) {
	case limiter.TokenBucket:
		return p.Capacity
	case limiter.FixedWindow:
		return p.Limit
	}
	panic("a policy of a new kind")
}
