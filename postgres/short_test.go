package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// A statement takes 10 ms, so the operations of limiter a time out. The breaker and the pool must still
// serve the operations of limiter b.
func TestShortTimeLimit(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		d.exec(t, fmt.Sprintf(`CREATE FUNCTION %[1]s.far() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.01); RETURN NULL; END $$;
			CREATE TRIGGER far BEFORE UPDATE ON %[1]s.limiter_token_buckets FOR EACH STATEMENT EXECUTE FUNCTION %[1]s.far()`, schema))
		for _, limit := range []time.Duration{100 * time.Microsecond, time.Millisecond, 3 * time.Millisecond} {
			t.Run(limit.String(), func(t *testing.T) {
				store := d.store(t, schema, few(8))
				a := newLimiter(t, store, slow(1<<17), limiter.WithTimeout(limit))
				b := newLimiter(t, store, slow(1<<17), limiter.WithTimeout(250*time.Millisecond), limiter.FailOpen())
				var decided [2]int // without limiter a, and beside it
				for turn := range 4 {
					ctx, leave := context.WithCancel(t.Context())
					var callers sync.WaitGroup
					for i := range 16 * (turn % 2) {
						callers.Go(func() {
							for tick := time.Tick(2 * time.Millisecond); ctx.Err() == nil; <-tick {
								_, _ = a.Allow(ctx, fmt.Sprint("a", i)) // it may time out
							}
						})
					}
					for end := time.After(500 * time.Millisecond); ; {
						r, err := b.Allow(ctx, "b")
						switch {
						case err != nil:
							t.Error(err)
						case r.Source == limiter.SourceStore:
							decided[turn%2]++
						default:
							t.Errorf("FailOpen let a request pass after %d", decided[turn%2])
						}
						select {
						case <-end:
						case <-time.After(10 * time.Millisecond):
							continue
						}
						break
					}
					leave()
					callers.Wait()
				}
				t.Logf("%d without limiter a, %d beside it; %+v", decided[0], decided[1], store.Stats())
				if 10*decided[1] < 7*decided[0] {
					t.Errorf("%d decisions without limiter a, and %d beside it", decided[0], decided[1])
				}
			})
		}
	})
}
