package postgres_test

import (
	"context"
	"log"
	"math"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter/postgres"
)

// One run of a scheduled job.
func ExampleStore_Sweep() {
	store, err := postgres.Open(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	removed, err := store.Sweep(ctx, math.MaxInt64)
	if err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
	log.Printf("deleted %d expired rows", removed)
}

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

func ExamplePingAfterFreeze() {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	postgres.PingAfterFreeze(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := postgres.New(pool)
	if err != nil {
		log.Fatal(err)
	}
	_ = store
}
