package postgres_test

import (
	"context"
	"errors"
	"log"
	"net"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter/postgres"
)

// withTokens returns a pool that asks for a new password whenever it connects.
func withTokens(ctx context.Context, dsn string, token func(context.Context, *pgx.ConnConfig) (string, error)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn) // with connect_timeout=3 and no password
	if err != nil {
		return nil, err
	}
	config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) (err error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // connect_timeout does not include this
		defer cancel()
		c.Password, err = token(ctx, c)
		return err
	}
	postgres.PingAfterFreeze(config)
	return pgxpool.NewWithConfig(ctx, config)
}

// withDialer returns a pool whose connections a connector makes.
func withDialer(ctx context.Context, dsn string, dial func(context.Context) (net.Conn, error)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn) // "user=app dbname=app sslmode=disable connect_timeout=3"
	if err != nil {
		return nil, err
	}
	config.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	postgres.PingAfterFreeze(config)
	return pgxpool.NewWithConfig(ctx, config)
}

// rdsToken is auth.BuildAuthToken of aws-sdk-go-v2/feature/rds/auth in your program.
func rdsToken(context.Context, *pgx.ConnConfig) (string, error) {
	return "", errors.New("there is no identity service here")
}

// The password of RDS with IAM is a token that is valid for 15 minutes.
func ExampleNew_token() {
	pool, err := withTokens(context.Background(), os.Getenv("DATABASE_URL"), rdsToken)
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

// The connector of Cloud SQL finds and authenticates the instance.
func ExampleNew_connector() {
	pool, err := withDialer(context.Background(), os.Getenv("DATABASE_URL"), func(context.Context) (net.Conn, error) {
		return nil, errors.New("there is no instance here") // in your program: dialer.Dial(ctx, "project:region:instance")
	})
	if err != nil {
		log.Fatal(err)
	}
	pool.Close() // in your program: postgres.New(pool)
}
