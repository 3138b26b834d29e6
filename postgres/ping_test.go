package postgres_test

import (
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// wallClock is a clock that a test moves. The monotonic one goes on by itself, and
// hardly at all while a test runs: as if the process had been frozen.
type wallClock struct{ ahead atomic.Int64 }

func (c *wallClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func TestPingAfterFreeze(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		for name, freeze := range map[string]time.Duration{"an hour": time.Hour, "the clock stepped back": -time.Hour} {
			var clock wallClock
			p := pool(t, d.dsn, func(c *pgxpool.Config) {
				c.MaxConns = 1
				postgres.PingAfterFreezeBy(c, clock.now)
			})
			store := storeOn(t, p, schema)
			do(t, store, take(slow(5), name, 1))
			if !query[bool](t, d, "SELECT pg_terminate_backend($1, 30000)", backend(t, p)) {
				t.Fatal("the session did not end")
			}
			clock.ahead.Add(int64(freeze))
			if s := do(t, store, take(slow(5), name, 1)); !s.Took {
				t.Errorf("%s: the take was not granted: %+v", name, s)
			}
			testenv.Equal(t, p.Stat().NewConnsCount(), 2, name, "connections")
		}
	})
}

// backend returns the server's process of a pool's only connection. It counts as use.
func backend(t *testing.T, p *pgxpool.Pool) (pid uint32) {
	t.Helper()
	if err := p.AcquireFunc(bounded(t), func(c *pgxpool.Conn) error {
		pid = c.Conn().PgConn().PID()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return pid
}

// swallowing is a connection whose peer is gone: everything that is sent gets lost, and no answer comes.
type swallowing struct {
	net.Conn
	gone   *atomic.Bool
	pings  *atomic.Int64
	closed atomic.Bool
}

func (c *swallowing) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

func (c *swallowing) Write(b []byte) (int, error) {
	if !c.gone.Load() || c.closed.Load() {
		return c.Conn.Write(b)
	}
	if b[0] == 'Q' { // a query: https://www.postgresql.org/docs/current/protocol-message-formats.html
		c.pings.Add(1)
	}
	return len(b), nil
}

// peer is the other end of the first connections of a pool. When it is gone, they swallow what is sent.
type peer struct {
	gone         atomic.Bool
	dials, pings atomic.Int64 // pgx also dials to cancel a ping
}

// of makes the first n connections of a pool.
func (p *peer) of(c *pgxpool.Config, n int64) {
	wrap(c.ConnConfig, func(conn net.Conn) net.Conn {
		if p.dials.Add(1) > n {
			return conn
		}
		return &swallowing{Conn: conn, gone: &p.gone, pings: &p.pings}
	})
}

func TestPeersGoneAfterFreeze(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		for _, conns := range []int64{1, 2, 4} {
			var clock wallClock
			var server peer
			p := pool(t, d.dsn, func(c *pgxpool.Config) {
				c.MaxConns = int32(conns)
				server.of(c, conns)
				postgres.PingAfterFreezeBy(c, clock.now)
			})
			store := storeOn(t, p, schema)
			useUp(t, p, int(conns))()
			do(t, store, take(slow(9), secret, 1))
			clock.ahead.Add(int64(time.Hour))
			useUp(t, p, int(conns))() // all are asked, and answer
			server.gone.Store(true)
			clock.ahead.Add(int64(time.Hour))
			// The limit is generous for slow machines: without a PingTimeout all of it is used up.
			op := take(slow(9), secret, 1)
			op.Kind, op.Timeout = limiter.OpRefund, testTimeout/2 // no retry hides a dead connection
			if s := do(t, store, op); !s.Took || p.Stat().NewConnsCount() != conns+1 {
				t.Errorf("%d connections, of %d: %+v; want a refund on a new one", p.Stat().NewConnsCount(), conns, s)
			}
			// Were each of them asked, their answers would be waited for one after another.
			testenv.Equal(t, server.pings.Load(), 1, "dead connections that were asked, of", conns)
		}
	})
	if postgres.PingTimeout >= limiter.DefaultTimeout {
		t.Errorf("a ping may take %v: a take by default has %v, and needs some of it", postgres.PingTimeout, limiter.DefaultTimeout)
	}
}

// The ping may take half a minute here, and the caller 50 ms.
func TestPingKeepsTheDeadline(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		var clock wallClock
		var server peer
		p := pool(t, d.dsn, func(c *pgxpool.Config) {
			c.MaxConns, c.PingTimeout = 1, testTimeout
			server.of(c, math.MaxInt64)
			postgres.PingAfterFreezeBy(c, clock.now)
		})
		l := newLimiter(t, storeOn(t, p, schema), slow(9))
		defer server.gone.Store(false) // so that the server ends the last connection, too
		for name, call := range map[string]func(ctx context.Context) error{
			"Allow":   func(ctx context.Context) error { _, err := l.Allow(ctx, secret); return err },
			"Peek":    func(ctx context.Context) error { _, err := l.Peek(ctx, secret); return err },
			"Reserve": func(ctx context.Context) error { _, err := l.Reserve(ctx, secret, 1, time.Minute); return err },
			"Reset":   func(ctx context.Context) error { return l.Reset(ctx, secret) },
		} {
			server.gone.Store(false)
			must(t, l.Reset(t.Context(), secret))
			server.gone.Store(true)
			clock.ahead.Add(int64(time.Hour))
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			began := time.Now()
			err := call(ctx)
			if took := time.Since(began); took > testTimeout/10 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v after %v; want the deadline's error after 50ms", name, err, took)
			}
			cancel()
		}
	})
}

func TestPingsByTimeSinceLastUse(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		cases := []struct {
			name       string
			wall, idle time.Duration
			pings      int
		}{
			{"used a moment ago", time.Second, time.Second, 0},
			{"pgxpool itself would ping", 5 * time.Second, 5 * time.Second, 0},
			{"rested", 5*time.Second + time.Millisecond, 5 * time.Second, 1},
			{"frozen", time.Hour, time.Millisecond, 1},
			{"the wall clock stepped back over the rest", time.Second, time.Minute, 1},
			{"the wall clock stepped back", -time.Millisecond, time.Second, 1},
		}
		for _, c := range cases {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			config, kinds := parse(t, d.dsn), map[byte]int{}
			wrap(config.ConnConfig, func(conn net.Conn) net.Conn { return asked{conn, new(sync.Mutex), kinds} })
			conn, err := pgx.ConnectConfig(t.Context(), config.ConnConfig)
			must(t, err)
			defer conn.Close(t.Context())
			postgres.PingAfterFreezeBy(config, func() time.Time { return now })
			pings := func() int {
				clear(kinds)
				if config.ShouldPing(t.Context(), pgxpool.ShouldPingParams{Conn: conn, IdleDuration: c.idle}) {
					t.Errorf("%s: the pool is to ping, too", c.name)
				}
				return kinds['Q'] // a ping is a query
			}
			testenv.Equal(t, pings(), 1, c.name, "pings on a connection of unknown age")
			must(t, config.AfterConnect(t.Context(), conn))
			for range 2 { // what is noted at a use counts for the next one
				now = now.Add(c.wall)
				testenv.Equal(t, pings(), c.pings, c.name, "pings")
			}
		}
	})
}

func TestPingAfterFreezeKeepsHooks(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		failed := errors.New("by the own hook")
		config := parse(t, d.dsn)
		config.PingTimeout = time.Minute
		config.AfterConnect = func(context.Context, *pgx.Conn) error { return failed }
		config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration == time.Second }
		postgres.PingAfterFreeze(config)
		testenv.Equal(t, config.PingTimeout, time.Minute, "PingTimeout, that of the configuration")
		conn := connect(t, d.dsn)
		if err := config.AfterConnect(t.Context(), conn); err != failed {
			t.Errorf("AfterConnect = %v, want the own hook's error", err)
		}
		for _, idle := range []time.Duration{0, time.Second} {
			if got := config.ShouldPing(t.Context(), pgxpool.ShouldPingParams{Conn: conn, IdleDuration: idle}); got != (idle == time.Second) {
				t.Errorf("ShouldPing after %v = %t, want the own hook's answer", idle, got)
			}
		}
	})
}

func TestGivenUpConnectionLeavesItsPool(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		for name, silent := range map[string]bool{"the server ends it": false, "its peer has gone without a word": true} {
			var server peer
			defer server.gone.Store(false) // then pgx has also done with the connection
			p := pool(t, d.dsn, func(c *pgxpool.Config) { server.of(c, 1) })
			conn, err := p.Acquire(bounded(t))
			must(t, err)
			server.gone.Store(silent)
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
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
			"take": take(slow(5), secret, 1), "look": look(slow(5), secret), severalLimits: take(slow(5), secret, 1),
			"refund":  {Kind: limiter.OpRefund, Name: "test", Key: secret, Policy: slow(5), Cost: 1},
			"reserve": {Kind: limiter.OpTake, Name: "test", Key: secret, Policy: slow(5), Cost: 1, MaxWait: time.Hour},
		} {
			var server peer
			store := d.store(t, schema, func(c *pgxpool.Config) {
				c.MaxConns = 1
				server.of(c, 1)
			})
			do(t, store, look(slow(5), secret))
			server.gone.Store(true)
			op.Timeout = 100 * time.Millisecond
			do := store.Do
			if name == severalLimits {
				do = oneOfAll{store}.Do
			}
			if _, err := do(bounded(t), op); !limiter.StoreFailed(err) {
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
