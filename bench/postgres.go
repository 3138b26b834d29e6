package main

import (
	"context"
	"fmt"

	"github.com/sqlimit/limiter/bench/internal/pg"
)

// postgres returns the database, which it connects to at the first call, and starts if need be. All
// contenders on it share its pool.
func (b *backends) postgres(ctx context.Context) (*pg.Database, error) {
	if b.pg != nil {
		return b.pg, nil
	}
	database, err := pg.Open(ctx, b.postgresDSN, b.dir, b.prefix, b.poolSize)
	if err != nil {
		return nil, err
	}
	b.atClose(database.Close)
	b.pg = database
	return database, nil
}

// newTable makes a table, with room on its pages for updates as the tables of limiter have it.
func newTable(ctx context.Context, database *pg.Database, name, columns string) (string, error) {
	schema, _, err := database.Schema(ctx, "by_hand")
	if err != nil {
		return "", err
	}
	table := schema + "." + name
	_, err = database.Pool.Exec(ctx, fmt.Sprintf("CREATE TABLE %s (%s) WITH (fillfactor = 70)", table, columns))
	return table, err
}
