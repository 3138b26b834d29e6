package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

var errTooManyOrders = errors.New("too many orders today")

// placeOrder stores an order and charges its customer, or does neither.
func placeOrder(ctx context.Context, pool *pgxpool.Pool, orders *limiter.Limiter, number int, customer string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // limiter.WithTimeout has no effect in a transaction
	defer cancel()
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO orders (number, customer) VALUES ($1, $2)", number, customer)
		if err != nil {
			return err
		}
		store, err := postgres.New(tx)
		if err != nil {
			return err
		}
		res, err := orders.On(store).Allow(ctx, customer) // last: it locks the customer's row until the end
		if err == nil && !res.Allowed {
			err = fmt.Errorf("%w: retry in %v", errTooManyOrders, res.RetryAfter)
		}
		return err // an error rolls back the order and the charge
	})
}

// The order and its charge commit together, or not at all.
func ExampleNew_transaction() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := postgres.New(pool)
	if err != nil {
		log.Fatal(err)
	}
	orders, err := limiter.New(store, "orders", limiter.PerDay(20)) // once, when the program starts
	if err != nil {
		log.Fatal(err)
	}
	if err := placeOrder(ctx, pool, orders, 1, "ann@example.com"); errors.Is(err, errTooManyOrders) {
		log.Print(err)
	}
}
