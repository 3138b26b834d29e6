package overrides_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/overrides"
	"github.com/sqlimit/limiter/sqlite"
)

// A customer may do 1,000 requests a minute for a day.
func Example() {
	ctx := context.Background()
	store, err := sqlite.Open(":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if err := migrations.Up(ctx, migrations.SQLite, store.DB()); err != nil {
		log.Fatal(err)
	}
	l, err := limiter.New(store, "api", limiter.PerMinute(100),
		limiter.WithPolicyFor(overrides.New(store, "api", overrides.MaxAge(10*time.Second))))
	if err != nil {
		log.Fatal(err)
	}

	// An operator does this in another program, or by hand.
	_, err = store.DB().ExecContext(ctx, `
		INSERT INTO limiter_overrides (limiter, key, kind, capacity, refill, period, note, expires_at)
		VALUES ('api', CAST('customer-42' AS BLOB), 'bucket', 1000, 1000, 60000000000, 'sale, asked by Ann',
			(unixepoch() + 86400) * 1000000000)`)
	if err != nil {
		log.Fatal(err)
	}

	for _, customer := range []string{"customer-42", "customer-43"} {
		res, err := l.Allow(ctx, customer)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(customer, res.Remaining, "of", res.Limit)
	}
	// Output:
	// customer-42 999 of 1000
	// customer-43 99 of 100
}

// An operator can give one customer another limit per month.
func ExampleBase() {
	store, err := sqlite.Open(":memory:")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	monthly := limiter.CalendarWindow{Limit: 1000, Period: limiter.Month}
	exports, err := limiter.New(store, "exports", monthly,
		limiter.WithPolicyFor(overrides.New(store, "exports", overrides.Base(monthly))))
	fmt.Println(exports.Policy(), err)
	// Output: 1000 per month (UTC) <nil>
}
