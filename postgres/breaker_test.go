package postgres_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

// down is a network without a server, until it is up.
type down struct {
	up    atomic.Bool
	dials atomic.Int64
}

func (d *down) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d.dials.Add(1)
	if !d.up.Load() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

func TestDatabaseThatIsDownIsNotAskedByEverybodyAndIsUsedAgainWhenItIsBack(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		network := new(down)
		store := d.store(t, d.schema(t), func(c *pgxpool.Config) { c.ConnConfig.DialFunc = network.dial })
		const operations = 2000
		for range operations {
			_, err := store.Do(bounded(t), take(slow(1), secret, 1))
			wantError(t, err, limiter.ErrNotApplied)
		}
		// The first few were sent three times each, and those that found out once or more.
		if n := network.dials.Load(); n > 100 {
			t.Errorf("%d operations dialed %d times", operations, n)
		}
		network.up.Store(true)
		back := time.Now()
		for {
			state, err := store.Do(bounded(t), take(slow(1), secret, 1))
			if err == nil {
				if !state.Took {
					t.Error("what was not applied was charged")
				}
				break
			}
			wantError(t, err, limiter.ErrNotApplied)
			if time.Since(back) > 5*time.Second {
				t.Fatalf("the database is back, and the store says %v", err)
			}
		}
		if s := do(t, store, take(slow(1), secret, 1)); s.Took {
			t.Error("a second take of 1 was granted")
		}
	})
}

// Should the error be wrong, a second refund lets too much in, while a second take only costs
// its caller more.
func TestGivingBackIsSentOnceEvenIfItWasNotApplied(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		for kind, want := range map[limiter.OpKind]int64{limiter.OpRefund: 1, limiter.OpCancel: 1, limiter.OpTake: 3, limiter.OpReset: 3} {
			network := new(down)
			store := d.store(t, schema, func(c *pgxpool.Config) { c.ConnConfig.DialFunc = network.dial })
			op := take(slow(1), secret, 1)
			op.Kind = kind
			_, err := store.Do(bounded(t), op)
			wantError(t, err, limiter.ErrNotApplied)
			if n := network.dials.Load(); n != want {
				t.Errorf("operation %d was sent %d times, want %d", kind, n, want)
			}
		}
	})
}

// BenchmarkDown is what a decision costs while the database is down.
func BenchmarkDown(b *testing.B) {
	store := opened(b, nowhere)
	for name, opt := range map[string]limiter.Option{"closed": limiter.FailClosed(), "local": limiter.FailLocal(memory.New())} {
		b.Run(name, func(b *testing.B) {
			l, err := limiter.New(store, "down", limiter.PerHour(1<<20), opt)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Allow(b.Context(), "key") // what it answers is the tests' affair
			}
		})
	}
}
