package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

// Store is implemented by the stores of both databases.
type Store interface {
	limiter.AllStore // handler.NewAll needs it
	Check(ctx context.Context) error
	Sweep(ctx context.Context, limit int64) (removed int64, err error)
	Close() error
}

// openStore opens the database that the settings name. For PostgreSQL it does no I/O: the
// first decision connects. It creates the tables of an SQLite file, which is the program's
// own. The tables of PostgreSQL are created at deployment, by a role that may do that.
func openStore(ctx context.Context, s settings) (Store, error) {
	if s.databaseURL != "" {
		return openPostgres(ctx, s)
	}
	store, err := sqlite.Open(s.sqlite)
	if err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, migrations.SQLite, store.DB()); err != nil {
		_ = store.Close()
		return nil, err
	}
	return store, nil
}

// pooled is a store with a pool of its own.
type pooled struct {
	*postgres.Store
	pool *pgxpool.Pool
}

// Close closes the pool. It waits until all connections are returned.
func (p pooled) Close() error {
	p.pool.Close()
	return nil
}

var errDatabaseURL = errors.New("DATABASE_URL is not a valid DSN")

func openPostgres(ctx context.Context, s settings) (Store, error) {
	config, err := poolConfig(s)
	if err != nil {
		// The error of pgx quotes the DSN, which can contain a password. That of Open does not.
		_, err = postgres.Open(s.databaseURL)
		return nil, errors.Join(errDatabaseURL, err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	store, err := postgres.New(pool)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pooled{store, pool}, nil
}

// checkAtStart returns an error if the database is misconfigured: a server that cannot make
// a decision must not start. A database that is down is only logged, because it comes
// back. Until then requests get 503.
func checkAtStart(ctx context.Context, store Store) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	err := store.Check(ctx)
	if errors.Is(err, limiter.ErrMisconfigured) {
		return err
	}
	if err != nil {
		slog.Error("cannot reach the database", "error", err)
	}
	return nil
}
