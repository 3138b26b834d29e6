package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

// An UPSERT that refuses a take locks the row, so a store sends it only if it expects room.
func TestCitusRefusals(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for name, policy := range map[string]limiter.Policy{"bucket": slow(1), "window": long(1)} {
			t.Run(name, func(t *testing.T) {
				schema := d.schema(t)
				refuse := func(t *testing.T, store limiter.Store) {
					t.Helper()
					if do(t, store, take(policy, "k", 1)).Took {
						t.Error("Took = true")
					}
				}
				first, second := d.store(t, schema, nil, postgres.WithCitus()), d.store(t, schema, nil, postgres.WithCitus())
				if !do(t, first, take(policy, "k", 1)).Took {
					t.Fatal("Took = false on a new key")
				}
				granted := d.traces(t, schema, "k")
				t.Run("lock nothing after a grant of this store", func(t *testing.T) {
					if refuse(t, first); d.traces(t, schema, "k") != granted {
						t.Error("the row has a trace")
					}
				})
				t.Run("lock nothing in a transaction of the caller", func(t *testing.T) {
					tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
					defer end(t, tx, false)
					if refuse(t, storeOn(t, tx, schema, postgres.WithCitus())); assigned(t, tx) {
						t.Error("the transaction got an id")
					}
				})
				t.Run("lock the row once after a grant of another store", func(t *testing.T) {
					refuse(t, second)
					locked := d.traces(t, schema, "k")
					if refuse(t, second); locked == granted || d.traces(t, schema, "k") != locked {
						t.Errorf("the row was\n%s, then\n%s and is\n%s", granted, locked, d.traces(t, schema, "k"))
					}
				})
			})
		}
	})
}
