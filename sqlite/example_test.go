package sqlite_test

import (
	"context"
	"database/sql"
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

// A pool of the application's own.
func ExampleNew() {
	work := func(ctx context.Context) error {
		db, err := sql.Open("sqlite", "file:/var/lib/app/app.db?_journal_mode=WAL&_synchronous=NORMAL&_busy_timeout=20&_txlock=immediate")
		if err != nil {
			return err
		}
		defer db.Close()
		store, err := sqlite.New(db)
		if err != nil {
			return err
		}
		return store.Check(ctx)
	}
	if err := work(context.Background()); err != nil {
		log.Fatal(err)
	}
}
