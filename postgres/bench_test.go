package postgres_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
	"github.com/sqlimit/limiter/storetest"
)

// BenchmarkStore measures on the server of LIMITER_TEST_POSTGRES_DSN, with the
// durability that it is set to: a container of the tests has fsync off.
func BenchmarkStore(b *testing.B) {
	dsn := os.Getenv("LIMITER_TEST_POSTGRES_DSN")
	if dsn == "" {
		b.Skip("LIMITER_TEST_POSTGRES_DSN is not set: there is no server to measure")
	}
	d := openDatabase(b, dsn)
	d.shared = true
	for name, opts := range map[string][]postgres.Option{"sync": nil, "async": {postgres.WithAsyncCommit()}} {
		b.Run(name, func(b *testing.B) {
			storetest.Bench(b, func(b *testing.B) limiter.Store { return storeOn(b, pool(b, dsn, few(16)), d.schema(b), opts...) })
		})
	}
	b.Run("transaction", func(b *testing.B) {
		p, schema := pool(b, dsn, few(1)), d.schema(b)
		l := newLimiter(b, storeOn(b, p, schema), long(1<<40))
		for b.Loop() {
			must(b, pgx.BeginFunc(b.Context(), p, func(tx pgx.Tx) error {
				_, err := l.On(storeOn(b, tx, schema)).Allow(b.Context(), "k")
				return err
			}))
		}
	})
}
