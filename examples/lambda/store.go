package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/sqlite"
)

// Store is what the program needs of either database.
type Store interface {
	limiter.Store
	Check(ctx context.Context) error
	Close() error
}

// openStore opens the database that the environment names. Tables in PostgreSQL
// are made when a service is deployed, by a role that may make them; a file that
// is the program's own it may well make itself.
func openStore(ctx context.Context, getenv func(string) string) (Store, error) {
	if dsn := getenv("DATABASE_URL"); dsn != "" {
		store, err := postgres.Open(ctx, dsn)
		if err != nil {
			return nil, err
		}
		return store, check(ctx, store)
	}
	path := getenv("LIMITER_SQLITE")
	if path == "" {
		path = filepath.Join(os.TempDir(), "limiter-example.db")
	}
	store, err := sqlite.Open(path)
	if err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, migrations.SQLite, store.DB()); err != nil {
		_ = store.Close()
		return nil, err
	}
	return store, check(ctx, store)
}

// check closes a store that cannot work.
func check(ctx context.Context, store Store) error {
	err := store.Check(ctx)
	if err != nil {
		_ = store.Close()
	}
	return err
}
