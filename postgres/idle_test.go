package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

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
			_, err := l.Allow(t.Context(), secret)
			wantError(t, err, limiter.ErrOutcomeUnknown)
			if res, err := l.Allow(t.Context(), secret); err != nil || !res.Allowed {
				t.Errorf("%T: on the next connection: Allow = %+v, %v", policy, res, err)
			}
		}
	})
}
