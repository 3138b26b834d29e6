package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
)

func TestContextThatEndsWhileTheStatementRunsLeavesATakeUnknownButNotALook(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil)
		cases := []struct {
			lock    string
			op      limiter.Op
			classes []error
		}{
			{"SELECT FROM %.limiter_token_buckets FOR UPDATE", take(slow(5), secret, 1), []error{limiter.ErrCanceled, limiter.ErrOutcomeUnknown}},
			{"SELECT FROM %.limiter_fixed_windows FOR UPDATE", take(long(5), secret, 1), []error{limiter.ErrCanceled, limiter.ErrOutcomeUnknown}},
			{"LOCK %.limiter_token_buckets", look(slow(5), secret), []error{limiter.ErrCanceled}},
			{"LOCK %.limiter_fixed_windows", look(long(5), secret), []error{limiter.ErrCanceled}},
		}
		for _, op := range []limiter.Op{take(slow(5), secret, 1), take(long(5), secret, 1)} {
			do(t, store, op)
		}
		for _, c := range cases {
			release := d.holdLock(t, strings.ReplaceAll(c.lock, "%", schema))
			ctx, cancel := context.WithCancel(bounded(t))
			answer := d.send(ctx, t, store, c.op)
			cancel()
			_, err := answer()
			wantError(t, err, c.classes...)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v does not match context.Canceled", err)
			}
			release()
			d.blocked(t, 0)
		}
		do(t, store, look(slow(5), secret)) // the pool has recovered
	})
}

func TestBackendThatIsTerminatedInMidStatementLeavesTheOutcomeUnknown(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil)
		do(t, store, take(slow(5), secret, 1))
		release := d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets FOR UPDATE")
		answer := d.send(bounded(t), t, store, take(slow(5), secret, 1))
		d.terminateBlocked(t)
		_, err := answer()
		wantError(t, err, limiter.ErrOutcomeUnknown)
		release()
		do(t, store, take(slow(5), secret, 1))
		want := limiter.StoreStats{Statements: 3, Rows: 3, Units: 3, ConnectionsLost: 1}
		if got := store.Stats(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// A block reads the row before it writes.
func TestReadOfAWriteThatIsTerminatedIsRetried(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil)
		for _, policy := range []limiter.Policy{slow(5), long(5)} {
			op := take(policy, secret, int64(time.Minute))
			op.Kind, op.Timeout = limiter.OpBlock, testTimeout
			release := d.holdLock(t, "LOCK "+allTables(schema)+" IN ACCESS EXCLUSIVE MODE")
			answer := d.send(bounded(t), t, store, op)
			d.terminateBlocked(t)
			d.blocked(t, 1) // the retry
			release()
			if _, err := answer(); err != nil {
				t.Errorf("%T: %v", policy, err)
			}
		}
	})
}

// Sent twice, it would give back twice.
func TestGivingBackThatIsTerminatedInMidStatementIsNotSentAgain(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil)
		for _, policy := range []limiter.Policy{slow(5), long(5)} {
			booked := do(t, store, take(policy, secret, 3))
			for _, kind := range []limiter.OpKind{limiter.OpRefund, limiter.OpCancel, limiter.OpReset} {
				op := limiter.Op{Kind: kind, Name: "test", Key: secret, Policy: policy, Cost: 1, Timeout: testTimeout, Booked: booked}
				op.Booked.Now += int64(time.Minute) // so that it may still be canceled
				release := d.holdLock(t, "LOCK "+allTables(schema)+" IN EXCLUSIVE MODE")
				answer := d.send(bounded(t), t, store, op)
				d.terminateBlocked(t)
				d.blocked(t, 0)
				release()
				_, err := answer()
				wantError(t, err, limiter.ErrOutcomeUnknown)
				if s := do(t, store, look(policy, secret)); s.Row != booked.Row {
					t.Errorf("%T: operation %d was carried out by somebody: %+v, want %+v", policy, kind, s.Row, booked.Row)
				}
			}
		}
	})
}

func TestLockThatIsNotHadInTheServersTimeIsNotApplied(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		for _, setting := range []string{"lock_timeout", "statement_timeout"} { // 55P03, 57014
			store := d.store(t, schema, func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams[setting] = "20ms"
			})
			do(t, d.store(t, schema, nil), take(slow(5), secret, 1))
			release := d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets FOR UPDATE")
			_, err := store.Do(bounded(t), take(slow(5), secret, 1))
			wantError(t, err, limiter.ErrNotApplied)
			release()
		}
	})
}

func TestPoolWithoutAFreeConnectionIsCanceledAndNotUnknown(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		p := pool(t, d.dsn, few(1))
		store := storeOn(t, p, d.schema(t))
		conn, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err = store.Do(ctx, take(slow(1), secret, 1))
		wantError(t, err, limiter.ErrCanceled)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v does not match context.DeadlineExceeded", err)
		}
		conn.Release()
		if s := do(t, store, take(slow(1), secret, 1)); !s.Took {
			t.Error("the call that never had a connection was charged")
		}
	})
}

func TestServerThatIsReadOnlyLosesItsConnection(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		// The first connections lead to a server that is read-only, as after a failover;
		// whoever connects then comes to one that is not.
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
			do(t, store, look(slow(1), secret)) // reading is fine
			for range c.fail {
				_, err := store.Do(t.Context(), take(slow(1), secret, 1))
				wantError(t, err, limiter.ErrNotApplied)
			}
			if s := do(t, store, take(slow(1), secret, 1)); !s.Took {
				t.Error("the call that failed was charged")
			}
			if n := dials.Load(); n != c.dials {
				t.Errorf("%d connections were made, want %d", n, c.dials)
			}
		}
	})
}
