package postgres_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

// limitLogin reports whether a login may be tried: two a day for each address. Programs make the
// store and the limiter once, when they start.
func limitLogin(ctx context.Context, dsn, email string) (limiter.Result, error) {
	store, err := postgres.Open(dsn)
	if err != nil {
		return limiter.Result{}, err
	}
	defer store.Close()
	logins, err := limiter.New(store, "login", limiter.PerDay(2))
	if err != nil {
		return limiter.Result{}, err
	}
	return logins.Allow(ctx, email)
}

// The tables exist, because migrations.Up created them when the program was deployed.
func ExampleOpen() {
	res, err := limitLogin(context.Background(), os.Getenv("DATABASE_URL"), "ann@example.com")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Allowed, res.Remaining)
}
