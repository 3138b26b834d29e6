package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/memory"
	"github.com/sqlimit/limiter/postgres"
)

// timeout is the time limit of tests that use it up. A busy machine can connect and send a statement within it.
const timeout = 250 * time.Millisecond

// wantLate checks that an operation used up its time limit, and its class.
func wantLate(t *testing.T, err, class error) {
	t.Helper()
	wantError(t, err, class)
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, limiter.ErrCanceled) {
		t.Errorf("%v; want DeadlineExceeded, and nothing said of the caller", err)
	}
}

func TestTimeLimitEndsTheWaitForARow(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store := d.store(t, schema, nil)
		for _, policy := range []limiter.Policy{slow(5), long(5)} {
			op := take(policy, secret, 1)
			do(t, store, op)
			release := d.holdLock(t, "SELECT FROM "+rowOf(schema, op)+" FOR UPDATE")
			// The server ends the wait after four fifths of the limit. A fifth of a second is for its answer.
			closed := newLimiter(t, store, op.Policy, limiter.WithTimeout(4*timeout))
			open := newLimiter(t, store, op.Policy, limiter.WithTimeout(4*timeout), limiter.FailOpen())
			res, err := closed.Allow(t.Context(), secret)
			wantLate(t, err, limiter.ErrNotApplied)
			testenv.Equal(t, [2]any{res.Allowed, res.Source}, [2]any{false, limiter.SourcePolicy}, "FailClosed", res)
			if res, err := open.Allow(t.Context(), secret); err != nil || !res.Allowed || res.Source != limiter.SourcePolicy {
				t.Errorf("FailOpen answers %+v, %v", res, err)
			}
			if gave, err := open.Refund(t.Context(), secret, 1); gave || !errors.Is(err, limiter.ErrNotApplied) {
				t.Errorf("Refund = %v, %v", gave, err)
			}
			citus := newLimiter(t, d.store(t, schema, nil, postgres.WithCitus()), op.Policy, limiter.WithTimeout(timeout))
			const unsent = "not sent, because the last statement of this key waited too long"
			_, err = citus.Allow(t.Context(), secret) // there the time limit ends the statement
			wantError(t, err, limiter.ErrOutcomeUnknown)
			for tries := 0; tries < 5 && !strings.Contains(fmt.Sprint(err), unsent); tries++ { // it holds for 100 ms
				_, err = citus.Allow(t.Context(), secret)
			}
			wantAdvice(t, err, unsent)
			release()
			d.blocked(t, 0)
		}
	})
}

// hurried is a context whose deadline leaves less than a time limit of an hour.
func hurried(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestCallersDeadlineOpensNothing(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		p := pool(t, d.dsn, few(1))
		store := storeOn(t, p, schema)
		for name, opt := range map[string]limiter.Option{"FailOpen": limiter.FailOpen(), "FailLocal": limiter.FailLocal(memory.New())} {
			l := newLimiter(t, store, slow(5), limiter.WithTimeout(time.Hour), opt)
			do(t, store, take(slow(5), secret+name, 1))
			for wait, hold := range map[string]func() (release func()){
				secret + name: func() func() { return d.holdLock(t, lockAll(schema)) },
				"another":     func() func() { return useUp(t, p, 1) },
			} {
				release := hold()
				wantError(t, testenv.ErrorOf(limiter.AllowAll(hurried(t), limiter.Claim{Limiter: l, Key: wait})), limiter.ErrCanceled)
				res, err := l.Allow(hurried(t), wait)
				release()
				d.blocked(t, 0)
				wantError(t, err, limiter.ErrCanceled)
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || limiter.StoreFailed(err) {
					t.Errorf("%v; want DeadlineExceeded, and no failure of the store", err)
				}
				wantAdvice(t, err, "limiter.WithTimeout")
				testenv.Equal(t, [2]any{res.Allowed, res.Source}, [2]any{false, limiter.SourcePolicy}, "the answer", res)
			}
			must(t, testenv.ErrorOf(newLimiter(t, store, slow(5)).Allow(t.Context(), secret+name))) // the key that waited is decided again
			if res, err := l.Peek(t.Context(), "another"); err != nil || res.Source != limiter.SourceStore || res.Remaining != 5 {
				t.Errorf("%s: after it: %+v, %v; want the store's answer, and nothing charged", name, res, err)
			}
		}
	})
}

// The application holds all connections of the pool that it shares with the store.
func TestTimeLimitCountsTheWaitForAConn(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		p := pool(t, d.dsn, few(2))
		release := useUp(t, p, 2)
		schema := d.schema(t)
		store := storeOn(t, p, schema)
		named := func(err error) {
			t.Helper()
			wantAdvice(t, err, "all 2 connections of the pool are in use", "give the limiter a pool of its own")
			if strings.Contains(err.Error(), "database") {
				t.Errorf("%v; the database did not fail", err)
			}
		}
		l, began := newLimiter(t, store, rowtest.Lasting["sliding"](1), limiter.WithTimeout(timeout)), time.Now()
		each(8, func(caller int) { // some of them wait for a statement of others, which waits for a connection
			_, err := l.Allow(t.Context(), fmt.Sprint(secret, "/", caller))
			if errors.Is(err, context.DeadlineExceeded) { // the breaker did not keep it from the database
				wantLate(t, err, limiter.ErrNotApplied)
			}
			named(err)
		})
		took := time.Since(began)
		testenv.Equal(t, took < 10*timeout, true, "all are answered within ten time limits:", took)
		testenv.Equal(t, max(4, p.Stat().CanceledAcquireCount()), 4, "waits for a connection that failed, 4 or fewer:")
		_, err := l.Peek(t.Context(), secret)
		named(err)
		_, err = newLimiter(t, storeOn(t, p, d.schema(t)), slow(1)).Allow(hurried(t), secret)
		named(err)
		wantError(t, err, limiter.ErrCanceled)
		release()
		if res, err := newLimiter(t, storeOn(t, p, schema), rowtest.Lasting["sliding"](1)).Allow(t.Context(), secret+"/0"); err != nil || !res.Allowed {
			t.Errorf("Allow = %+v, %v: the call that never had a connection was charged", res, err)
		}
	})
}

// A caller that waited while another connection was being made may wait as long as that takes. Once
// it has a connection, its statement has the time limit and no more.
func TestTimeLimitWhileAnotherConnects(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		do(t, d.store(t, schema, nil), take(slow(5), secret, 1))
		defer d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets FOR UPDATE")()
		const rounds = 20
		for name, call := range map[string]func(*limiter.Limiter) error{
			"Allow":    func(l *limiter.Limiter) error { _, err := l.Allow(t.Context(), secret); return err },
			"AllowAll": func(l *limiter.Limiter) error { _, err := allowAll(t, l, secret, "another"); return err },
		} {
			t.Run(name+" of a locked row keeps it", func(t *testing.T) {
				var pools [rounds]*pgxpool.Pool
				var limiters [rounds]*limiter.Limiter
				var release [rounds]func()
				for i := range pools {
					pools[i] = pool(t, d.dsn, func(c *pgxpool.Config) {
						var dials atomic.Int64
						c.MaxConns = 2
						wrap(c.ConnConfig, func(conn net.Conn) net.Conn {
							if dials.Add(1) == 2 { // later ones cancel statements
								select {
								case <-time.After(12 * timeout):
								case <-t.Context().Done():
								}
							}
							return conn
						})
					})
					store := storeOn(t, pools[i], schema)
					limiters[i] = newLimiter(t, store, slow(5), limiter.WithTimeout(timeout))
					_, err := newLimiter(t, store, slow(5)).Peek(t.Context(), secret) // on the first connection
					must(t, err)
					release[i] = useUp(t, pools[i], 1)
				}
				each(rounds, func(i int) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() {
						if conn, err := pools[i].Acquire(ctx); err == nil {
							conn.Release()
						}
					}()
					waitFor(t, "a connection is being made", func() bool { return pools[i].Stat().ConstructingConns() > 0 })
					answered := make(chan error)
					go func() { answered <- call(limiters[i]) }()
					<-time.After(timeout + timeout/5)
					begin := time.Now()
					release[i]()
					if err := <-answered; err == nil {
						t.Error("the row was not locked")
					}
					if took := time.Since(begin); took > 2*timeout+100*time.Millisecond {
						t.Errorf("the answer came %v after it had a connection, want it within the time limit of %v", took, timeout)
					}
				})
			})
		}
	})
}

func TestTimeLimitOfASilentServer(t *testing.T) {
	t.Parallel()
	silent := accept(t, func(conn net.Conn) {
		<-t.Context().Done()
		_ = conn.Close() // not before, as the garbage collector would
	})
	store := opened(t, "postgres://u@"+silent+"/db?sslmode=disable")
	l := newLimiter(t, store, slow(1), limiter.WithTimeout(timeout))
	ctx := hurried(t) // for less than the 3 s of dialing
	wantLate(t, testenv.ErrorOf(l.Allow(ctx, secret)), limiter.ErrNotApplied)
	if ctx.Err() != nil {
		t.Error("the answer came after the caller's deadline")
	}
}

// The server's longest lock_timeout is 24.8 days.
func TestTimeLimitOfAYear(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store, op := d.store(t, schema, nil), take(slow(4), "k", 1)
		op.Timeout = 365 * 24 * time.Hour
		do(t, store, op)
		release := d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets FOR UPDATE")
		ctx, cancel := context.WithCancel(t.Context()) // a deadline would bound the wait
		defer time.AfterFunc(testTimeout, cancel).Stop()
		answer := d.send(ctx, t, store, op)
		<-time.After(50 * time.Millisecond) // the first statement waits for 20 ms
		release()
		must(t, testenv.ErrorOf(answer()))
	})
}

// queueOf returns a statement that takes the lock for which the statements of op's key queue.
func queueOf(schema string, op limiter.Op) string {
	return fmt.Sprintf(`SELECT pg_advisory_xact_lock(hashtextextended(encode('%s', 'hex'), hashtextextended('%s', hashtextextended('%q.%s', 0))))`,
		op.Key, op.Name, schema, rowtest.TableOf(op.Policy).Name)
}

// The statements of several processes queue for a key before they wait for its row.
func TestProcessesQueueForAKey(t *testing.T) {
	day, _ := midnightIn(5, time.Now(), 12*time.Hour)
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		for name, policy := range map[string]limiter.Policy{
			"bucket": slow(5), "window": long(5), "window that counts refusals": counting(5), "calendar": day,
			"sliding window": rowtest.Lasting["sliding"](5), "leases": places(5), "bucket, merged": slow(5), "window, merged": long(5),
		} {
			op := take(policy, secret+name, 1)
			if strings.HasSuffix(name, "merged") { // the statement for several takes
				op.Kind = limiter.OpTakeUpTo
			}
			stores := [...]limiter.Store{d.store(t, schema, few(2)), d.store(t, schema, few(2))}
			op.Timeout, op.ID = 4*timeout, 1
			allow := func(i int) error { op := op; op.ID += int64(i); return testenv.ErrorOf(stores[i].Do(t.Context(), op)) }
			must(t, allow(0))
			lock := func(op limiter.Op) string { return "SELECT FROM " + rowOf(schema, op) + " FOR UPDATE" }
			ownKey := func(t *testing.T, suffix string, limit time.Duration) (limiter.Store, limiter.Op) {
				t.Helper()
				t.Parallel()
				store, op := d.store(t, schema, few(2)), op
				op.Key, op.Timeout = op.Key+suffix, limit
				do(t, store, op)
				return store, op
			}
			t.Run(name+", goes beside a queue that does not move, at the end", func(t *testing.T) {
				store, op := ownKey(t, "2", 12*timeout)
				defer d.holdLock(t, queueOf(schema, op))()
				do(t, store, op)
			})
			t.Run(name+", whose row is written meanwhile, is busy", func(t *testing.T) {
				store, op := ownKey(t, "3", 8*timeout)
				d.exec(t, "UPDATE "+strings.Replace(rowOf(schema, op), " WHERE", " SET at = at + 600000000 WHERE", 1)) // in 600 ms
				defer d.holdLock(t, lock(op))()
				wantError(t, testenv.ErrorOf(store.Do(t.Context(), op)), limiter.ErrKeyBusy, limiter.ErrNotApplied)
			})
			queues := func(op limiter.Op) func(*testing.T) {
				return func(t *testing.T) {
					release := d.holdLock(t, queueOf(schema, op))
					answer, released := d.send(t.Context(), t, stores[1], op), time.Now()
					release()
					state, err := answer()
					must(t, err)
					testenv.Equal(t, state.Now > released.UnixNano(), true, "decided by the clock after the wait")
				}
			}
			t.Run(name+", waits in the queue of the key", queues(op))
			if name == "bucket" {
				t.Run(name+", of another policy, also waits there, in settle", func(t *testing.T) {
					_, op := ownKey(t, "4", testTimeout)
					op.Policy = slow(6)
					queues(op)(t)
				})
			}
			t.Run(name+", whose row is locked, fails in each process", func(t *testing.T) {
				defer d.holdLock(t, lock(op))()
				each(len(stores), func(i int) { testenv.Equal(t, limiter.StoreFailed(allow(i)), true, "the store failed") })
			})
		}
	})
}
