package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/memory"
)

func TestDecisionOverSeveralLimitsThatIsTerminatedInMidStatementIsUnknownAndNotSentAgain(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, c := range []struct {
			name    string
			fail    limiter.Option
			allowed bool
			source  limiter.Source
		}{
			{"FailClosed", limiter.FailClosed(), false, limiter.SourcePolicy},
			{"FailOpen", limiter.FailOpen(), true, limiter.SourcePolicy},
			{"FailLocal", limiter.FailLocal(memory.New()), true, limiter.SourceLocal},
		} {
			schema := d.schema(t)
			sent := new(counter)
			store := d.store(t, schema, func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.Tracer = 4, sent })
			var failures []error
			var claims []limiter.Claim
			for _, policy := range []limiter.Policy{slow(5), long(5)} {
				l := newLimiter(t, store, policy, c.fail, limiter.WithObserver(func(_ context.Context, d limiter.Decision) {
					failures = append(failures, d.Err)
				}))
				claims = append(claims, limiter.Claim{Limiter: l, Key: secret, Cost: 2})
			}
			if _, err := limiter.AllowAll(bounded(t), claims...); err != nil {
				t.Fatal(err)
			}
			before := sent.Load()
			release := d.holdLock(t, fmt.Sprintf("LOCK TABLE %s.limiter_fixed_windows IN SHARE MODE", schema))
			var res limiter.AllResult
			var err error
			var wait sync.WaitGroup
			failures = nil
			wait.Go(func() { res, err = limiter.AllowAll(bounded(t), claims...) })
			d.terminateBlocked(t)
			wait.Wait()
			if n := sent.Load() - before; n != 1 {
				t.Errorf("%s: %d statements were sent, want 1", c.name, n)
			}
			release()
			if !c.allowed {
				wantError(t, err, limiter.ErrOutcomeUnknown)
			} else if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if res.Allowed != c.allowed || res.Source != c.source {
				t.Errorf("%s answers %+v", c.name, res)
			}
			if len(failures) != len(claims) {
				t.Errorf("%s: %d decisions were observed, want %d", c.name, len(failures), len(claims))
			}
			for _, err := range failures {
				wantError(t, err, limiter.ErrOutcomeUnknown)
				if !limiter.StoreFailed(err) {
					t.Errorf("%s: %v is not a failure of the store", c.name, err)
				}
			}
			for _, claim := range claims {
				if res, err := claim.Limiter.Peek(bounded(t), claim.Key); err != nil || res.Remaining != 3 {
					t.Errorf("%s: %d are left, %v; want 3, because the transaction was rolled back", c.name, res.Remaining, err)
				}
			}
		}
	})
}

// All decisions share the locked row.
func TestDecisionsOverALockedRowKeepNoOtherKeyFromTheDatabase(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil)
		user := newLimiter(t, store, slow(5), limiter.WithTimeout(timeout))
		shared := newLimiter(t, store, long(50), limiter.WithTimeout(timeout))
		decide := func(i int) error {
			_, err := limiter.AllowAll(bounded(t), limiter.Claim{Limiter: user, Key: fmt.Sprint(secret, i)}, limiter.Claim{Limiter: shared, Key: secret})
			return err
		}
		if err := decide(0); err != nil {
			t.Fatal(err)
		}
		release := d.holdLock(t, fmt.Sprintf("SELECT FROM %s.limiter_fixed_windows FOR UPDATE", schema))
		for i := range 8 {
			if err := decide(i); !limiter.StoreFailed(err) {
				t.Fatalf("decision %d: %v, want a failure of the store", i, err)
			}
		}
		if res, err := newLimiter(t, store, slow(5)).Allow(bounded(t), "another"); err != nil || !res.Allowed {
			t.Errorf("another key: %+v, %v", res, err)
		}
		if store.Stats().BreakerOpen {
			t.Error("the breaker is open, though the server answers")
		}
		release()
	})
}
