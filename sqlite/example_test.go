package sqlite_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/sqlite"
)

func ExampleOpen() {
	ctx := context.Background()
	store, err := sqlite.Open(":memory:") // or the path of a file
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if err := migrations.Up(ctx, migrations.SQLite, store.DB()); err != nil {
		log.Fatal(err)
	}

	logins, err := limiter.New(store, "login", limiter.PerDay(2))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		res, err := logins.Allow(ctx, "ann@example.com")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Allowed, res.Remaining)
	}
	// Output:
	// true 1
	// true 0
	// false 0
}
