package postgres_test

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

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
}

// BenchmarkSharedStatements measures 256 callers on 10,000 keys, by kind of operation.
func BenchmarkSharedStatements(b *testing.B) {
	dsn := os.Getenv("LIMITER_TEST_POSTGRES_DSN")
	if dsn == "" {
		b.Skip("LIMITER_TEST_POSTGRES_DSN is not set: there is no server to measure")
	}
	d := openDatabase(b, dsn)
	d.shared = true
	store := storeOn(b, pool(b, dsn, few(16)), d.schema(b))
	for _, kind := range []limiter.OpKind{limiter.OpTake, limiter.OpTakeUpTo, limiter.OpCharge} {
		b.Run(kind.String(), func(b *testing.B) {
			var i atomic.Uint64
			b.ReportAllocs()
			b.SetParallelism(256 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					op := take(limiter.PerSecond(1_000_000), fmt.Sprint(i.Add(7919)%10_000), 1) // few callers meet
					op.Kind, op.Timeout = kind, time.Minute
					if _, err := store.Do(b.Context(), op); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
