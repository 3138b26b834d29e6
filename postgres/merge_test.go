package postgres_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

func TestMergedTakes(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for kind, policy := range map[string]limiter.Policy{"bucket": slow(4), "window": long(4), "sliding": limiter.SlidingWindow{Limit: 4, Window: time.Hour}} {
			// That is not in the snapshot of the merged statement.
			t.Run(kind+": count what was taken while they waited", func(t *testing.T) {
				schema := d.schema(t)
				store := d.store(t, schema, nil)
				do(t, store, take(policy, "k", 1))
				tx := begin(t, connect(t, d.dsn), pgx.ReadCommitted)
				do(t, storeOn(t, tx, schema), take(policy, "k", 2))
				var waiting sync.WaitGroup
				waiting.Go(func() {
					states, err := postgres.TakeTogether(bounded(t), store, take(policy, "k", 1), 5)
					states = slices.DeleteFunc(states, func(s limiter.State) bool { return !s.Took })
					if err != nil || len(states) != 1 {
						t.Errorf("%d were granted, %v; want the 1 that was left", len(states), err)
					}
				})
				d.blocked(t, 1)
				end(t, tx, true)
				waiting.Wait()
			})
		}
		t.Run("AllowUpTo and Charge of other keys share statements", func(t *testing.T) {
			store := d.store(t, d.schema(t), nil)
			l := newLimiter(t, store, slow(4))
			each(64, func(i int) {
				for n := range 8 {
					call := l.AllowUpTo
					if i%2 == 0 {
						call = l.Charge
					}
					if res, err := call(t.Context(), fmt.Sprint(i, " ", n), 3); err != nil || res.Taken != 3 {
						t.Errorf("%+v, %v; want 3 taken", res, err)
					}
				}
			})
			if s := store.Stats(); s.Units != 64*8 || s.Statements > s.Units/4 {
				t.Errorf("%d statements for %d operations", s.Statements, s.Units)
			}
		})
	})
}
