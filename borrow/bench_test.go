package borrow_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/borrow"
	"github.com/sqlimit/limiter/migrations"
	"github.com/sqlimit/limiter/postgres"
)

// BenchmarkStore measures 256 callers on PostgreSQL, with and without borrow, by the distribution of keys.
func BenchmarkStore(b *testing.B) {
	dsn := os.Getenv("LIMITER_TEST_POSTGRES_DSN")
	if dsn == "" {
		b.Skip("LIMITER_TEST_POSTGRES_DSN is not set: there is no server to measure")
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	schema := fmt.Sprintf("borrow_%d", time.Now().UnixNano())
	if _, err := db.ExecContext(b.Context(), "CREATE SCHEMA "+schema); err != nil {
		b.Fatal(err)
	}
	defer func() { _, _ = db.ExecContext(context.Background(), "DROP SCHEMA "+schema+" CASCADE") }()
	if err := migrations.Up(b.Context(), migrations.Postgres, db, migrations.WithSchema(schema)); err != nil {
		b.Fatal(err)
	}
	store, err := postgres.Open(dsn, postgres.WithSchema(schema))
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	for _, c := range []struct {
		name string
		key  func(r *rand.Rand) uint64
	}{
		{"one key", func(*rand.Rand) uint64 { return 0 }},
		{"100 keys", func(r *rand.Rand) uint64 { return r.Uint64N(100) }},
		{"Zipf", nil},
		{"10,000 keys", func(r *rand.Rand) uint64 { return r.Uint64N(10_000) }},
	} {
		for _, borrows := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/borrow=%v", c.name, borrows), func(b *testing.B) {
				var s limiter.Store = store
				if borrows {
					fast, err := borrow.New(store, 10_000, time.Second)
					if err != nil {
						b.Fatal(err)
					}
					defer func() { _ = fast.Shutdown(context.Background()) }()
					s = fast
				}
				l, err := limiter.New(s, fmt.Sprint("bench-", time.Now().UnixNano()), limiter.PerSecond(1_000_000), limiter.WithTimeout(time.Minute))
				if err != nil {
					b.Fatal(err)
				}
				b.SetParallelism(256 / runtime.GOMAXPROCS(0))
				b.RunParallel(func(pb *testing.PB) {
					r := rand.New(rand.NewPCG(rand.Uint64(), 0))
					key := c.key
					if key == nil {
						z := rand.NewZipf(r, 1.1, 1, 99_999)
						key = func(*rand.Rand) uint64 { return z.Uint64() }
					}
					for pb.Next() {
						if _, err := l.Allow(b.Context(), fmt.Sprint(key(r))); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
