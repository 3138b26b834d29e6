package postgres_test

import (
	"context"
	"log"
	"os"

	"github.com/sqlimit/limiter/postgres"
)

func ExampleWithCitus() {
	ctx := context.Background()
	store, err := postgres.Open(os.Getenv("DATABASE_URL"), postgres.WithCitus())
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if err := store.Check(ctx); err != nil {
		log.Print(err)
	}
}
