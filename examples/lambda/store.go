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

// Store is what the program needs of either database.
type Store interface {
	limiter.Store
	Check(ctx context.Context) error
	Sweep(ctx context.Context, limit int) (removed int64, err error)
	Close() error
}

// openStore opens the database that the settings name. For PostgreSQL it does no
// I/O: a function that starts has a request to answer, whose decision connects.
// Tables there are made when a service is deployed, by a role that may make them; a
// file that is the program's own it may well make itself.
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

// pooled is a store and the pool that was made for it.
type pooled struct {
	*postgres.Store
	pool *pgxpool.Pool
}

// Close closes the pool, when all of its connections are back.
func (p pooled) Close() error {
	p.pool.Close()
	return nil
}

var errDatabaseURL = errors.New("DATABASE_URL cannot be used")

func openPostgres(ctx context.Context, s settings) (Store, error) {
	config, err := poolConfig(s)
	if err != nil {
		// pgx quotes the DSN, in which there may be a password. Open does not.
		_, err = postgres.Open(ctx, s.databaseURL)
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

// checkAtStart returns an error if an operator must act: better no server than one
// that refuses everything. A database that is down comes back, and until then its
// limiters say 503.
func checkAtStart(ctx context.Context, store Store) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	err := store.Check(ctx)
	if errors.Is(err, limiter.ErrMisconfigured) {
		return err
	}
	if err != nil {
		slog.Error("the database does not answer", "error", err)
	}
	return nil
}
