package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/postgres"
)

// A trigger skips each write, so operations lose every race.
func TestEveryRaceIsLost(t *testing.T) {
	inSchema(t, func(t *testing.T, d *database, schema string) {
		r := newTracer(false)
		p := pool(t, d.dsn, r.in)
		store := storeOn(t, p, schema)
		do(t, store, take(slow(3), secret, 2))
		d.trigger(t, schema, "skip", "BEFORE INSERT OR UPDATE", "RETURN NULL;")
		locked := []string{"begin isolation level read committed", "bucketLock", "bucketRead", "bucketSwap", "commit"}
		settled := slices.Concat([]string{"bucketRead", "bucketSwap"}, locked, locked)
		for kind, first := range map[limiter.OpKind][]string{
			limiter.OpTake: {"bucketTake"}, limiter.OpCharge: {"bucketTake"}, limiter.OpBlock: nil,
		} {
			op, steps := take(slow(3), secret, 1), append(first, settled...)
			op.Kind = kind
			r.take()
			s, err := store.Do(bounded(t), op)
			if kind != limiter.OpTake {
				wantError(t, err, limiter.ErrNotApplied)
			} else if err != nil || s.Took {
				t.Errorf("a take: %+v, %v; want a refusal", s, err)
			}
			if sent := r.take(); !slices.Equal(sent, steps) {
				t.Errorf("operation %d sent\n%q, want\n%q", kind, sent, steps)
			}
			for n, step := range steps { // the error of each comes back
				conn, err := p.Acquire(bounded(t)) // where nothing is sent again
				must(t, err)
				i := 0
				r.fails = func(string) bool { i++; return i == n+1 }
				_, err = storeOn(t, conn, schema).Do(bounded(t), op)
				r.fails = nil
				conn.Release()
				wantError(t, err, map[bool]error{true: limiter.ErrOutcomeUnknown, false: limiter.ErrNotApplied}[step == "commit"])
				if sent := len(r.take()); sent < n+1 || sent > n+2 { // the last one may be a rollback
					t.Errorf("operation %d whose step %d, %s, fails sent %d statements", kind, n, step, sent)
				}
			}
		}
		// The row has another policy. A look at it would wait for the second take alone.
		larger := limiter.TokenBucket{Capacity: 4, Refill: 3, Interval: time.Hour}
		takes := []limiter.Op{take(larger, secret, 1), take(larger, secret, 2)}
		states, err := postgres.RowLocked{Store: store}.Take(bounded(t), takes...)
		must(t, err)
		row := rows{connect(t, d.dsn), schema}.Read(t, takes[0])
		for i, got := range states {
			var want limiter.State
			row, want = takes[i].Apply(row, got.Now)
			if got.Took || got.Wait != want.Wait {
				t.Errorf("take %d: %+v, want a refusal with Wait %d", i, got, want.Wait)
			}
		}
	})
}
