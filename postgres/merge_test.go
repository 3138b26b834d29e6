package postgres_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

func TestMergedTakes(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for kind, policy := range map[string]limiter.Policy{"bucket": slow(4), "window": long(4)} {
			// That is not in the snapshot of the merged statement.
			t.Run(kind+": count what was taken while they waited", func(t *testing.T) {
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
		t.Run("do not wait for the locked rows of other keys", func(t *testing.T) {
			schema := d.schema(t)
			l := newLimiter(t, d.store(t, schema, nil), slow(100))
			allow := func(key string) {
				if res, err := l.Allow(t.Context(), key); err != nil || !res.Allowed {
					t.Errorf("%s: %+v, %v; want a grant", key, res, err)
				}
			}
			const keys = 3 // more than there are merged statements at a time
			for i := range keys {
				allow(fmt.Sprint("held ", i))
			}
			release := d.holdLock(t, "SELECT FROM "+schema+".limiter_token_buckets FOR UPDATE")
			var held sync.WaitGroup
			for i := range 4 * keys {
				held.Go(func() { allow(fmt.Sprint("held ", i%keys)) })
			}
			each(40, func(i int) { // while the rows are locked
				for range 5 {
					allow(fmt.Sprint("free ", i))
				}
			})
			release()
			held.Wait()
		})
	})
}
