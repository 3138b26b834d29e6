package postgres_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

func TestGivenUpConnectionLeavesItsPool(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		for name, silent := range map[string]bool{"the server ends it": false, "its peer has gone without a word": true} {
			var gone atomic.Bool
			p := pool(t, d.dsn, func(c *pgxpool.Config) {
				wrap(c.ConnConfig, func(conn net.Conn) net.Conn {
					t.Cleanup(func() { _ = conn.Close() }) // then pgx has also done with it
					return &swallowing{Conn: conn, gone: &gone, pings: new(atomic.Int64)}
				})
			})
			conn, err := p.Acquire(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			gone.Store(silent)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if _, err := conn.Exec(ctx, "SELECT pg_sleep(60)"); err == nil || !conn.Conn().IsClosed() {
				t.Fatalf("%s: Exec = %v, and the connection is not closed", name, err)
			}
			postgres.Release(conn)
			for began := time.Now(); p.Stat().TotalConns() > 0; <-time.After(time.Millisecond) {
				if time.Since(began) > 5*time.Second {
					t.Fatalf("%s: the connection is in the pool still", name) // whose Close would wait for it
				}
			}
		}
		for name, op := range map[string]limiter.Op{
			"take": take(slow(5), secret, 1), "look": look(slow(5), secret),
			"refund":  {Kind: limiter.OpRefund, Name: "test", Key: secret, Policy: slow(5), Cost: 1},
			"reserve": {Kind: limiter.OpTake, Name: "test", Key: secret, Policy: slow(5), Cost: 1, MaxWait: time.Hour},
		} {
			var dials, pings atomic.Int64
			var gone atomic.Bool
			store := d.store(t, schema, func(c *pgxpool.Config) {
				c.MaxConns = 1
				wrap(c.ConnConfig, func(conn net.Conn) net.Conn {
					if dials.Add(1) > 1 {
						return conn
					}
					return &swallowing{Conn: conn, gone: &gone, pings: &pings}
				})
			})
			do(t, store, look(slow(5), secret))
			gone.Store(true)
			op.Timeout = 100 * time.Millisecond
			if _, err := store.Do(bounded(t), op); !limiter.StoreFailed(err) {
				t.Errorf("%s: %v, want a failure of the store", name, err)
			}
			// pgx waits for 15 s until it gives the connection up.
			next := look(slow(5), secret)
			next.Timeout = testTimeout / 4
			began := time.Now()
			if _, err := store.Do(bounded(t), next); err != nil || time.Since(began) > 5*time.Second {
				t.Errorf("%s: the next operation: %v after %v, want an answer within 5 s", name, err, time.Since(began))
			}
		}
	})
}
