package limiter_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// zones has the time zones that were loaded, by name.
var zones sync.Map

// zoneOf returns a time zone, always the same Location.
func zoneOf(name string) (*time.Location, error) {
	zone, ok := zones.Load(name)
	if !ok {
		loaded, err := time.LoadLocation(name)
		if err != nil {
			return nil, err
		}
		zone, _ = zones.LoadOrStore(name, loaded)
	}
	return zone.(*time.Location), nil
}

// contract is what the program knows about a customer.
type contract struct {
	exports int64 // per month
	zone    string
}

type contractKey struct{}

// monthly returns the quota of the customer that is in the context.
func monthly(ctx context.Context, _ string) (limiter.Policy, error) {
	c, ok := ctx.Value(contractKey{}).(contract)
	if !ok {
		return nil, nil // the policy that New got
	}
	zone, err := zoneOf(c.zone)
	return limiter.CalendarWindow{Limit: c.exports, Period: limiter.Month, Location: zone}, err
}

func Example_quotaByTimeZone() {
	now := time.Date(2026, 10, 31, 23, 30, 0, 0, time.UTC)
	exports, err := limiter.New(memory.New(), "exports",
		limiter.CalendarWindow{Limit: 1000, Period: limiter.Month},
		limiter.WithPolicyFor(monthly),
		limiter.WithClock(func() time.Time { return now })) // only for the exact output below
	if err != nil {
		log.Fatal(err)
	}
	for customer, zone := range []string{"Europe/Berlin", "America/New_York"} {
		// In your program: where the customer is authenticated.
		ctx := context.WithValue(context.Background(), contractKey{}, contract{exports: 1000, zone: zone})
		res, err := exports.Allow(ctx, fmt.Sprint("customer-", customer))
		fmt.Println(zone, res.Remaining, "left for", res.ResetAfter, err)
	}
	// Output:
	// Europe/Berlin 999 left for 719h30m0s <nil>
	// America/New_York 999 left for 4h30m0s <nil>
}
