package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/postgres"
)

func TestCallerLeavesInMidStatement(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store := d.store(t, schema, nil)
		for _, policy := range []limiter.Policy{slow(5), long(5)} {
			do(t, store, take(policy, secret, 1))
			for _, c := range []struct {
				name, lock string
				op         limiter.Op
				classes    []error
			}{
				{"a take is unknown", "SELECT FROM " + rowOf(schema, take(policy, secret, 1)) + " FOR UPDATE", take(policy, secret, 1), []error{limiter.ErrCanceled, limiter.ErrOutcomeUnknown}},
				{"a look is not", "LOCK " + allTables(schema), look(policy, secret), []error{limiter.ErrCanceled}},
			} {
				t.Run(fmt.Sprintf("%T, %s", policy, c.name), func(t *testing.T) {
					release := d.holdLock(t, c.lock)
					ctx, cancel := context.WithCancel(bounded(t))
					answer := d.send(ctx, t, store, c.op)
					cancel()
					_, err := answer()
					wantError(t, err, c.classes...)
					testenv.ErrorIs(t, err, context.Canceled)
					release()
					d.blocked(t, 0)
				})
			}
		}
		do(t, store, look(slow(5), secret)) // the pool has recovered
	})
}

// terminated sends one request and ends its session while it waits for a lock.
func (d *database) terminated(t *testing.T, lock string, request func() error) error {
	t.Helper()
	release := d.holdLock(t, lock)
	answer := make(chan error, 1)
	go func() { answer <- request() }()
	d.terminateBlocked(t)
	defer release()
	select {
	case err := <-answer:
		return err
	case <-time.After(2 * time.Second): // a request that is sent again waits for the lock, and must get it
		release()
		return <-answer
	}
}

func TestTerminatedInMidStatement(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, policy := range []limiter.Policy{slow(5), long(5)} {
			schema := d.schema(t)
			store := d.store(t, schema, nil)
			booked := do(t, store, take(policy, secret, 3))
			for name, kind := range map[string]limiter.OpKind{
				"take": limiter.OpTake, "refund": limiter.OpRefund, "cancel": limiter.OpCancel, "reset": limiter.OpReset,
			} {
				for _, limit := range []time.Duration{0, testTimeout} { // without a time limit it is not queued
					t.Run(fmt.Sprintf("%T: a %s with the limit %v is unknown and not sent again", policy, name, limit), func(t *testing.T) {
						op := limiter.Op{Kind: kind, Name: "test", Key: secret, Policy: policy, Cost: 1, Timeout: limit, Booked: booked}
						op.Booked.Now += int64(time.Minute) // so that it may still be canceled
						lost := store.Stats().ConnectionsLost
						err := d.terminated(t, "LOCK "+allTables(schema)+" IN EXCLUSIVE MODE", func() error {
							_, err := store.Do(bounded(t), op)
							return err
						})
						wantError(t, err, limiter.ErrOutcomeUnknown)
						testenv.Equal(t, do(t, store, look(policy, secret)).Row, booked.Row, "the row that nobody may change")
						testenv.Equal(t, store.Stats().ConnectionsLost-lost, 1, "connections that were lost")
					})
				}
			}
			t.Run(fmt.Sprintf("%T: a take that first locks the row is not applied", policy), func(t *testing.T) {
				err := d.terminated(t, "LOCK "+allTables(schema)+" IN EXCLUSIVE MODE", func() error {
					_, err := postgres.RowLocked{Store: store}.Do(bounded(t), take(policy, secret, 1))
					return err
				})
				wantError(t, err, limiter.ErrNotApplied)
			})
			// A block reads the row before it writes.
			t.Run(fmt.Sprintf("%T: the read of a block is sent again", policy), func(t *testing.T) {
				block := take(policy, secret, int64(time.Minute))
				block.Kind, block.Timeout = limiter.OpBlock, testTimeout
				release := d.holdLock(t, "LOCK "+allTables(schema)+" IN ACCESS EXCLUSIVE MODE")
				answer := d.send(bounded(t), t, store, block)
				d.terminateBlocked(t)
				d.blocked(t, 1) // the retry
				release()
				must(t, testenv.ErrorOf(answer()))
			})
		}
		t.Run("AllowAll is unknown and not sent again", func(t *testing.T) {
			schema, sent, ops := d.schema(t), new(counter), four(2)
			for i := range ops {
				ops[i].Timeout = testTimeout // in the queue
			}
			store := d.store(t, schema, func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.Tracer = 4, sent })
			doAll(t, store, ops...)
			before := sent.Load()
			err := d.terminated(t, "LOCK TABLE "+schema+".limiter_fixed_windows IN SHARE MODE", func() error {
				_, err := store.DoAll(bounded(t), ops)
				return err
			})
			wantError(t, err, limiter.ErrOutcomeUnknown)
			testenv.Equal(t, sent.Load()-before, 1, "statements")
			for _, op := range ops {
				wantLeft(t, store, op, 3, "the transaction was rolled back")
			}
		})
	})
}

// The first connections lead to a server that is read-only, as after a failover. Later ones lead to one that
// is not.
func TestReadOnlyServer(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, c := range []struct{ stale, fail, dials int64 }{
			{1, 0, 2}, // the take is sent again, on a new connection
			{3, 1, 4}, // twice, and not more often
		} {
			var dials atomic.Int64
			store := d.store(t, d.schema(t), func(p *pgxpool.Config) {
				p.MaxConns = 1
				p.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
					if dials.Add(1) <= c.stale {
						conn.RuntimeParams["default_transaction_read_only"] = "on"
					}
					return nil
				}
			})
			do(t, store, look(slow(1), secret)) // the server can read
			for range c.fail {
				wantError(t, testenv.ErrorOf(store.Do(t.Context(), take(slow(1), secret, 1))), limiter.ErrNotApplied)
			}
			if s := do(t, store, take(slow(1), secret, 1)); !s.Took {
				t.Error("the call that failed was charged")
			}
			testenv.Equal(t, dials.Load(), c.dials, "connections")
		}
	})
}

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

// store returns one without connections.
func (d *down) store(t *testing.T, db *database) *postgres.Store {
	t.Helper()
	return db.store(t, db.schema(t), func(c *pgxpool.Config) { c.ConnConfig.DialFunc = d.dial })
}

// carryOut carries out ops together, or a lone one by Do, and reports whether all of them took.
func carryOut(t *testing.T, store limiter.AllStore, ops ...limiter.Op) (took bool, err error) {
	t.Helper()
	if len(ops) == 1 {
		s, err := store.Do(bounded(t), ops[0])
		return s.Took, err
	}
	states, err := store.DoAll(bounded(t), ops)
	return err == nil && !slices.ContainsFunc(states, func(s limiter.State) bool { return !s.Took }), err
}

func TestDatabaseIsDown(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for name, ops := range map[string][]limiter.Op{
			"Allow":      {take(slow(1), secret, 1)},
			"TryAcquire": {take(places(1), secret, 1)},
			"AllowAll":   {take(slow(1), secret, 1), take(long(1), secret, 1)},
		} {
			t.Run(name+" does not ask it each time, and uses it again when it is back", func(t *testing.T) {
				network := new(down)
				store := network.store(t, d)
				const operations = 2000
				for n := range int64(operations) {
					wantError(t, testenv.ErrorOf(carryOut(t, store, ops...)), limiter.ErrNotApplied)
					want := limiter.StoreStats{Retries: 2 * (n + 1), BreakerOpen: n == 4, BreakerOpenings: n / 4}
					if got := store.Stats(); n < 5 && got != want {
						t.Errorf("after %d failures: %+v, want %+v", n+1, got, want)
					}
				}
				// The first few were sent three times each, and those that found out once or more.
				if n := network.dials.Load(); n > 100 {
					t.Errorf("%d operations dialed %d times, want at most 100", operations, n)
				}
				network.up.Store(true)
				waitFor(t, "the store uses the database again", func() bool {
					took, err := carryOut(t, store, ops...)
					if err == nil && !took {
						t.Error("an operation that was not applied was charged")
					}
					return err == nil
				})
				if took, err := carryOut(t, store, ops...); err != nil || took {
					t.Errorf("a second take of 1: %t, %v; want a refusal", took, err)
				}
				if got := store.Stats(); got.BreakerOpen || got.BreakerOpenings != 1 || got.Statements == 0 {
					t.Errorf("when the database is back: %+v", got)
				}
			})
		}
	})
}

// If the error is wrong, a second refund lets too much in, while a second take only costs its caller more.
func TestGivingBackIsSentOnce(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for kind, want := range map[limiter.OpKind]int64{limiter.OpRefund: 1, limiter.OpCancel: 1, limiter.OpTake: 3, limiter.OpReset: 3} {
			network := new(down)
			op := take(slow(1), secret, 1)
			op.Kind = kind
			wantError(t, testenv.ErrorOf(network.store(t, d).Do(bounded(t), op)), limiter.ErrNotApplied)
			testenv.Equal(t, network.dials.Load(), want, "how often it was sent:", kind)
		}
	})
}

// BenchmarkDown is what a decision costs while the database is down.
func BenchmarkDown(b *testing.B) {
	store := opened(b, nowhere)
	for name, opt := range map[string]limiter.Option{"closed": limiter.FailClosed(), "local": limiter.FailLocal(memory.New())} {
		b.Run(name, func(b *testing.B) {
			l, err := limiter.New(store, "down", limiter.PerHour(1<<20), opt)
			must(b, err)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Allow(b.Context(), "key") // tests check the answer
			}
		})
	}
}

// Each operation fails by an error that the server reports for its write.
func TestBreakerByKindOfError(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for code, opens := range map[string]bool{
			"53300": true, "XX000": true, "58030": true, "42501": true, // no operation can succeed
			"57014": false, "53100": false, "40P01": false, "55000": false, "0A000": false, "22003": false, "23514": false, // the server answers
		} {
			schema := d.schema(t)
			do(t, d.store(t, schema, few(1)), take(slow(99), "a", 1))
			do(t, d.store(t, schema, few(1)), take(long(99), "a", 1))
			d.trigger(t, schema, "refuse", "BEFORE UPDATE", "RAISE EXCEPTION 'refused' USING ERRCODE = '"+code+"';")
			queued := take(long(99), "a", 1)
			queued.Timeout = testTimeout
			for name, ops := range map[string][]limiter.Op{
				"a take":            {take(slow(99), "a", 1)},
				"a take in a queue": {queued},
				"AllowAll":          {take(slow(99), "a", 1), take(long(99), "a", 1)},
			} {
				store := d.store(t, schema, few(2))
				for range 8 {
					if _, err := carryOut(t, store, ops...); err == nil {
						t.Errorf("%s, %s: no error", name, code)
					}
				}
				testenv.Equal(t, store.Stats().BreakerOpen, opens, name, code, "the breaker is open")
			}
		}
	})
}
