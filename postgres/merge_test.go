package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/rowtest"
	"github.com/sqlimit/limiter/postgres"
)

func TestTakesThatGoTogetherOnAnyRow(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for name, change := range map[string]func(*pgxpool.Config){
			"binary": few(8),
			// New keys are told by themselves, and bytes come in one of two forms.
			"text": func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
				c.ConnConfig.RuntimeParams["bytea_output"] = "escape"
			},
		} {
			t.Run(name, func(t *testing.T) {
				schema := d.schema(t)
				rowtest.RunMerged(t, d.store(t, schema, change), rows{connect(t, d.dsn), schema}, 150)
			})
		}
	})
}

func TestTakesThatGoTogetherDoNotWaitForARowThatSomebodyHolds(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil)
		l := newLimiter(t, store, slow(100), limiter.WithTimeout(testTimeout))
		keys := []string{"held", "held, too", "and another"} // more than there are statements at a time
		for _, key := range keys {
			do(t, store, take(slow(100), key, 1))
		}
		release := d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets FOR UPDATE")
		defer release()
		var held, others sync.WaitGroup
		for i := range 4 * len(keys) {
			held.Go(func() {
				if res, err := l.Allow(t.Context(), keys[i%len(keys)]); err != nil || !res.Allowed {
					t.Errorf("a held key: %+v, %v", res, err)
				}
			})
		}
		for i := range 40 {
			others.Go(func() {
				for range 5 {
					if res, err := l.Allow(t.Context(), fmt.Sprint("free ", i)); err != nil || !res.Allowed {
						t.Errorf("another key: %+v, %v", res, err)
					}
				}
			})
		}
		others.Wait() // while the row is still held
		release()
		held.Wait()
	})
}

// What others take while a merged statement waits for the row is not in its snapshot.
func TestMergedTakesBesideAnother(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for _, policy := range []limiter.Policy{slow(4), long(4)} {
			t.Run(fmt.Sprintf("%T: count what was taken while they waited", policy), func(t *testing.T) {
				schema := d.schema(t)
				store := d.store(t, schema, nil)
				do(t, store, take(policy, "k", 1))
				tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
				do(t, storeOn(t, tx, schema), take(policy, "k", 2))
				var waiting sync.WaitGroup
				waiting.Go(func() {
					granted, err := postgres.TakeTogether(bounded(t), store, take(policy, "k", 1), 5)
					if err != nil || granted != 1 {
						t.Errorf("%d were granted, %v; want the 1 that was left", granted, err)
					}
				})
				d.blocked(t, 1)
				end(t, tx, true)
				waiting.Wait()
			})
		}
	})
}

func TestRefusalsThatGoTogetherLeaveNoTraceInTheDatabase(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil)
		var limiters []*limiter.Limiter
		for _, p := range []limiter.Policy{slow(1), long(1)} {
			limiters = append(limiters, newLimiter(t, store, p))
		}
		var before []string
		keys := strings.Fields("a b c d")
		for _, key := range keys {
			for _, l := range limiters {
				if res, err := l.Allow(t.Context(), key); err != nil || !res.Allowed {
					t.Fatalf("Allow = %+v, %v", res, err)
				}
			}
			before = append(before, d.traces(t, schema, key))
		}
		each(32, func(worker int) {
			for i := range 20 {
				for _, l := range limiters {
					if res, err := l.Allow(t.Context(), keys[(worker+i)%len(keys)]); err != nil || res.Allowed || res.RetryAfter < time.Minute {
						t.Errorf("Allow = %+v, %v; want a refusal", res, err)
					}
				}
			}
		})
		for i, key := range keys {
			if after := d.traces(t, schema, key); after != before[i] {
				t.Errorf("%s: the rows were\n%s and are\n%s", key, before[i], after)
			}
		}
	})
}
