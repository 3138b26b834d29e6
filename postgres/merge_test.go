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
					granted, err := postgres.TakeTogether(bounded(t), store, take(policy, "k", 1), 5)
					if err != nil || len(granted) != 1 {
						t.Errorf("%d were granted, %v; want the 1 that was left", len(granted), err)
					}
				})
				d.blocked(t, 1)
				end(t, tx, true)
				waiting.Wait()
			})
			t.Run(kind+": fill a new key", func(t *testing.T) {
				op := take(policy, "k", 2)
				op.At = time.Now().UnixNano()
				granted, err := postgres.TakeTogether(bounded(t), d.store(t, d.schema(t), nil), op, 4)
				row, first := op.Apply(limiter.Row{}, op.At)
				_, second := op.Apply(row, op.At)
				first.Tick, second.Tick = 1, 1 // the resolution of At
				if want := []limiter.State{first, second}; err != nil || !slices.Equal(granted, want) {
					t.Errorf("granted %+v, %v; want %+v", granted, err, want)
				}
			})
			t.Run(kind+": charge a row ahead of the clock once", func(t *testing.T) {
				store, ahead, op := d.store(t, d.schema(t), nil), take(policy, "k", 1), take(policy, "k", 1)
				ahead.At, op.Kind = time.Now().Add(time.Minute).UnixNano(), limiter.OpTakeUpTo
				before := do(t, store, ahead)
				got := do(t, store, op)
				if _, want := op.Apply(before.Row, got.Now); got.Row != want.Row {
					t.Errorf("left %+v, want %+v", got.Row, want.Row)
				}
			})
			t.Run(kind+": equal AllowUpTo take one after another", func(t *testing.T) {
				op := take(policy, "k", 3)
				op.Kind = limiter.OpTakeUpTo
				granted, err := postgres.TakeTogether(bounded(t), d.store(t, d.schema(t), nil), op, 4)
				if err != nil || len(granted) != 2 || granted[0].Taken != 3 || granted[1].Taken != 1 {
					t.Errorf("took %+v, %v; want 3, the 1 that is left, and no answer to the others", granted, err)
				}
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
