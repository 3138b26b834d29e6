package postgres_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
	"github.com/sqlimit/limiter/postgres"
)

// wakesAfter is how long a database of these tests needs to wake up.
const wakesAfter = 8 * time.Second

// sleeping opens a store whose database accepts a connection 8 s from now or, if it delays each
// connection, 8 s after the connection's own dial. Settings are added to the DSN. Use it in a
// synctest bubble: the clock there stands still during real I/O, so only these 8 s pass.
func (d *database) sleeping(t *testing.T, schema, settings string, delaysEach bool) *postgres.Store {
	t.Helper()
	store := opened(t, d.dsn+settings, postgres.WithSchema(schema))
	awake := time.Now().Add(wakesAfter)
	postgres.PoolConfig(store).ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		delay := time.Until(awake)
		if delaysEach {
			delay = wakesAfter
		}
		select {
		case <-time.After(delay):
			return new(net.Dialer).DialContext(ctx, network, address)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return store
}

// answer is what one request got, at seconds of the bubble's clock.
type answer struct {
	asked, took time.Duration
	allowed     bool
	err         error
}

// requests sends a request every 10 ms until the time is over, one after another.
func requests(t *testing.T, l *limiter.Limiter, during time.Duration) (answers []answer) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < during; <-time.After(10 * time.Millisecond) {
		asked := time.Since(begin)
		res, err := l.Allow(t.Context(), secret)
		answers = append(answers, answer{asked, time.Since(begin) - asked, res.Allowed, err})
	}
	return answers
}

// usual is a limiter with the default time limit.
func usual(t *testing.T, store limiter.Store, opts ...limiter.Option) *limiter.Limiter {
	t.Helper()
	return newLimiter(t, store, slow(1000), append(opts, limiter.WithTimeout(limiter.DefaultTimeout))...)
}

func TestSleepingDatabase(t *testing.T) {
	const settings = "&connect_timeout=15"
	tests := []struct {
		name string
		run  func(t *testing.T, d *database, schema string)
	}{
		{"costs two requests 3 s, and the first one after it is awake works", func(t *testing.T, d *database, schema string) {
			answers := requests(t, usual(t, d.sleeping(t, schema, "", false)), 9*time.Second)
			for i, a := range answers {
				switch awake := a.asked + a.took; {
				case awake < wakesAfter && i < 2 && a.took == 3*time.Second, awake < wakesAfter && i >= 2 && a.took == 0:
					wantError(t, a.err, limiter.ErrNotApplied)
				case awake >= wakesAfter && (a.took == 0 || a.asked < wakesAfter) && a.took < 3*time.Second && a.err == nil && a.allowed:
				default:
					t.Errorf("the request at %v took %v: %t, %v", a.asked, a.took, a.allowed, a.err)
				}
			}
			testenv.Equal(t, answers[1].asked, 3*time.Second+10*time.Millisecond, "the second request came at")
		}},
		{"makes 80 keys at once wait for 3 s at most", func(t *testing.T, d *database, schema string) {
			l := usual(t, d.sleeping(t, schema, "", false), limiter.FailOpen())
			begin := time.Now()
			each(80, func(i int) {
				res, err := l.Allow(t.Context(), fmt.Sprint(secret, i))
				if took := time.Since(begin); took > 3*time.Second+limiter.DefaultTimeout || err != nil || !res.Allowed || res.Source != limiter.SourcePolicy {
					t.Errorf("after %v: %+v, %v; want FailOpen to answer within 3.25 s", took, res, err)
				}
			})
		}},
		{"that delays each connection for longer than connect_timeout never works", func(t *testing.T, d *database, schema string) {
			for _, a := range requests(t, usual(t, d.sleeping(t, schema, "", true)), 40*time.Second) {
				wantError(t, a.err, limiter.ErrNotApplied)
			}
		}},
		{"that delays each connection works with a longer connect_timeout", func(t *testing.T, d *database, schema string) {
			// A request that has begun to connect when the first connection is ready still waits for its own.
			const certainly = wakesAfter + 3*time.Second + 200*time.Millisecond
			for _, a := range requests(t, usual(t, d.sleeping(t, schema, settings, true)), 13*time.Second) {
				works := a.err == nil && a.allowed
				if works && a.asked+a.took < wakesAfter || !works && a.asked > certainly || a.took > 3*time.Second {
					t.Errorf("the request at %v took %v: %t, %v", a.asked, a.took, a.allowed, a.err)
				}
			}
		}},
		{"is waited for with a longer connect_timeout and WithTimeout", func(t *testing.T, d *database, schema string) {
			l := newLimiter(t, d.sleeping(t, schema, settings, true), slow(1000), limiter.WithTimeout(15*time.Second))
			if a := requests(t, l, time.Second)[0]; a.err != nil || !a.allowed || a.took != wakesAfter {
				t.Errorf("the first request took %v: %t, %v; want it to wait", a.took, a.allowed, a.err)
			}
		}},
		{"is woken by Check before the first request", func(t *testing.T, d *database, schema string) {
			store := d.sleeping(t, schema, settings, true)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			must(t, store.Check(ctx))
			for _, a := range requests(t, usual(t, store), time.Second) {
				if a.err != nil || !a.allowed || a.took != 0 {
					t.Errorf("the request at %v took %v: %t, %v", a.asked, a.took, a.allowed, a.err)
				}
			}
		}},
	}
	onPostgres(t, func(t *testing.T, d *database) {
		for _, test := range tests {
			schema := d.schema(t)
			t.Run(test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { test.run(t, d, schema) })
			})
		}
	})
}

// gone waits until the server has ended all connections of an application.
func (d *database) gone(t *testing.T, application string) {
	t.Helper()
	waitFor(t, "no connection is left", func() bool { return d.sessions(t, application) == 0 })
}

// idlers returns a store on a pool of 8, and a function that makes all 8 connections again.
func (d *database) idlers(t *testing.T, schema, application string, params map[string]string) (store *postgres.Store, idle func()) {
	t.Helper()
	const conns = 8
	p := pool(t, d.dsn, func(c *pgxpool.Config) {
		c.MaxConns = conns
		c.ConnConfig.RuntimeParams["application_name"] = application
		for name, value := range params {
			c.ConnConfig.RuntimeParams[name] = value
		}
	})
	return storeOn(t, p, schema), func() { useUp(t, p, conns)() }
}

// The server ends an idle session before it reads another statement, so no statement on it was carried out.
func TestIdledSessionsFailNoDecision(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		store, idle := d.idlers(t, schema, "idle", map[string]string{"idle_session_timeout": "100ms"})
		const rounds = 6 // more than a budget of retries would bear
		policies := []limiter.Policy{slow(rounds), long(rounds), counting(rounds)}
		for round := range rounds {
			policy := policies[round%len(policies)]
			l := newLimiter(t, store, policy)
			key := func(caller int) string { return fmt.Sprint(secret, "/", round%len(policies), "/", caller) }
			idle()
			d.gone(t, "idle")
			each(6, func(caller int) {
				if res, err := l.Allow(t.Context(), key(caller)); err != nil || !res.Allowed {
					t.Errorf("round %d: Allow = %+v, %v", round, res, err)
				}
			})
			idle()
			d.gone(t, "idle")
			want := int64(rounds - 1 - round/len(policies))
			if res, err := l.Peek(t.Context(), key(0)); err != nil || res.Remaining != want {
				t.Errorf("round %d: Peek = %+v, %v; want %d to be left", round, res, err, want)
			}
		}
	})
}

// An administrator may end a session in mid-statement with the same words as an idle one. A
// read may be repeated all the same.
func TestEndedSessionsFailNoRead(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		for _, policy := range []limiter.Policy{slow(5), long(5)} {
			store, idle := d.idlers(t, schema, "ended", nil)
			end := func() {
				idle()
				d.exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ended'")
				d.gone(t, "ended")
			}
			l := newLimiter(t, store, policy)
			end()
			if res, err := l.Peek(t.Context(), secret); err != nil || !res.Allowed {
				t.Errorf("%T: Peek = %+v, %v", policy, res, err)
			}
			end()
			wantError(t, testenv.ErrorOf(l.Allow(t.Context(), secret)), limiter.ErrOutcomeUnknown)
			if res, err := l.Allow(t.Context(), secret); err != nil || !res.Allowed {
				t.Errorf("%T: on the next connection: Allow = %+v, %v", policy, res, err)
			}
		}
	})
}
