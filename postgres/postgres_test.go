package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/dbtest"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/storetest"
)

// handles are the ways to a database that every rule must hold on.
var handles = []struct {
	name string
	open func(t *testing.T, dsn string) postgres.DB
}{
	{"pool, cache_statement", mode(pgx.QueryExecModeCacheStatement)},
	{"pool, cache_describe", mode(pgx.QueryExecModeCacheDescribe)},
	{"pool, exec", mode(pgx.QueryExecModeExec)},
	{"pool, simple protocol replaced", mode(pgx.QueryExecModeSimpleProtocol)},
	{"pgbouncer in transaction mode, exec", func(t *testing.T, dsn string) postgres.DB {
		return mode(pgx.QueryExecModeExec)(t, dbtest.PgBouncer(t, dsn))
	}},
	{"connection", func(t *testing.T, dsn string) postgres.DB { return connect(t, dsn) }},
	{"transaction", func(t *testing.T, dsn string) postgres.DB {
		tx, err := connect(t, dsn).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}},
}

func mode(m pgx.QueryExecMode) func(*testing.T, string) postgres.DB {
	return func(t *testing.T, dsn string) postgres.DB {
		return pool(t, dsn, func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = m
			c.MaxConns = 8
		})
	}
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestStore(t *testing.T) {
	dbtest.EachPostgres(t, func(t *testing.T, server *dbtest.Server) {
		for _, h := range handles {
			if h.name == "pool, exec" {
				continue // TestStoreOfTheLeastRoleInAHostileSession runs the suite in that mode
			}
			t.Run(h.name, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, server)
				storetest.Run(t, func(t *testing.T) limiter.Store {
					store, err := postgres.New(h.open(t, d.dsn), postgres.WithSchema(d.schema(t)))
					if err != nil {
						t.Fatal(err)
					}
					return store
				})
			})
		}
	})
}
