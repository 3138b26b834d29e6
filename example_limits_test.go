package limiter_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/overrides"
	"github.com/sqlimit/limiter/sqlite"
)

// Ten requests at once are within both limits. The eleventh is refused, and the day is not charged.
func Example_secondAndDay() {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	store := memory.New(memory.WithClock(func() time.Time { return noon })) // only for the exact output below
	second, err := limiter.New(store, "api-second", limiter.PerSecond(10))
	if err != nil {
		log.Fatal(err)
	}
	day, err := limiter.New(store, "api-day", limiter.FixedWindow{Limit: 1000, Window: 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	for range 11 {
		claims := []limiter.Claim{{Limiter: second, Key: "customer-7"}, {Limiter: day, Key: "customer-7"}}
		res, err := limiter.AllowAll(context.Background(), claims...)
		if err != nil {
			log.Fatal(err)
		}
		if !res.Allowed {
			fmt.Println(claims[res.Binding].Limiter.Name(), "refuses for", res.RetryAfter)
			fmt.Println("left for the day:", res.Each[1].Remaining)
		}
	}
	// Output:
	// api-second refuses for 100ms
	// left for the day: 990
}

func Example_userAndOrganization() {
	store := memory.New()
	users, err := limiter.New(store, "user", limiter.PerHour(2))
	if err != nil {
		log.Fatal(err)
	}
	organizations, err := limiter.New(store, "organization", limiter.PerHour(3))
	if err != nil {
		log.Fatal(err)
	}
	for _, user := range []string{"ann", "ann", "ann", "bob", "eve"} {
		res, err := limiter.AllowAll(context.Background(),
			limiter.Claim{Limiter: users, Key: "acme/" + user},
			limiter.Claim{Limiter: organizations, Key: "acme"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user, res.Allowed, res.Each[0].Remaining, res.Each[1].Remaining)
	}
	// Output:
	// ann true 1 2
	// ann true 0 1
	// ann false 0 1
	// bob true 1 0
	// eve false 2 0
}

// policies are those of the plans.
var policies atomic.Pointer[map[string]limiter.Policy]

// loadPlans reads the table. If it fails, the old policies stay in use.
func loadPlans(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT name, per_day FROM plans")
	if err != nil {
		return err
	}
	defer rows.Close()
	loaded := map[string]limiter.Policy{}
	for rows.Next() {
		var name string
		var perDay int64
		if err := rows.Scan(&name, &perDay); err != nil {
			return err
		}
		loaded[name] = limiter.PerDay(perDay)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	policies.Store(&loaded)
	return nil
}

// refreshPlans reads the table again each minute until ctx ends.
func refreshPlans(ctx context.Context, db *sql.DB) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Minute):
			if err := loadPlans(ctx, db); err != nil {
				slog.ErrorContext(ctx, "plans", "error", err)
			}
		}
	}
}

type planKey struct{}

// ofPlan returns the policy of the plan in the context.
func ofPlan(ctx context.Context, _ string) (limiter.Policy, error) {
	name, _ := ctx.Value(planKey{}).(string)
	if policy, ok := (*policies.Load())[name]; ok {
		return policy, nil
	}
	return nil, fmt.Errorf("there is no plan %q", name)
}

func Example_plans() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store, err := sqlite.Open(":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	db := store.DB()
	if err := migrations.Up(ctx, migrations.SQLite, db); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `
		CREATE TABLE plans (name text PRIMARY KEY, per_day bigint NOT NULL CHECK (per_day > 0));
		INSERT INTO plans VALUES ('free', 100), ('pro', 10000);
		INSERT INTO limiter_overrides (limiter, key, kind, capacity, refill, period)
		VALUES ('api', CAST('customer-42' AS BLOB), 'bucket', 1000, 1000, 60000000000)`); err != nil {
		log.Fatal(err)
	}

	if err := loadPlans(ctx, db); err != nil { // when the program starts
		log.Fatal(err)
	}
	go refreshPlans(ctx, db)

	byKey := overrides.New(store, "api")
	api, err := limiter.New(store, "api", limiter.PerDay(100),
		limiter.WithPolicyFor(func(ctx context.Context, key string) (limiter.Policy, error) {
			if p, err := byKey(ctx, key); p != nil || err != nil {
				return p, err
			}
			return ofPlan(ctx, key)
		}))
	if err != nil {
		log.Fatal(err)
	}

	for _, c := range []struct{ name, plan string }{{"customer-7", "free"}, {"customer-7", "pro"}, {"customer-42", "free"}} {
		ctx := context.WithValue(ctx, planKey{}, c.plan) // where the customer is authenticated
		res, err := api.AllowN(ctx, c.name, 60)
		fmt.Println(c.name, c.plan, res.Allowed, res.Remaining, "of", res.Limit, err)
	}
	// Output:
	// customer-7 free true 40 of 100 <nil>
	// customer-7 pro false 40 of 10000 <nil>
	// customer-42 free true 940 of 1000 <nil>
}

// A quota per calendar month, which ends at midnight in Berlin. An operator can override its limit for a customer.
func Example_monthlyQuota() {
	store := memory.New()
	berlin, err := time.LoadLocation("Europe/Berlin") // once, not for each request
	if err != nil {
		log.Fatal(err)
	}
	monthly := limiter.CalendarWindow{Limit: 1000, Period: limiter.Month, Location: berlin}
	exports, err := limiter.New(store, "exports", monthly)
	if err != nil {
		log.Fatal(err)
	}
	res, err := exports.AllowN(context.Background(), "customer-7", 3)
	if err != nil {
		log.Fatal(err)
	}
	start, end := monthly.Span(time.Date(2026, 10, 25, 12, 0, 0, 0, time.UTC))
	fmt.Println("left:", res.Remaining)
	fmt.Println("October:", start.Format(time.RFC3339), "to", end.Format(time.RFC3339))
	// Output:
	// left: 997
	// October: 2026-10-01T00:00:00+02:00 to 2026-11-01T00:00:00+01:00
}

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
