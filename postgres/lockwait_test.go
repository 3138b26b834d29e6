package postgres_test

import (
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// A take that goes out alone waits for its row as long as its time limit allows. So
// must those of one key that go out together: they hold up nobody else.
func TestTakes_of_one_key_wait_for_its_row_as_long_as_their_time_limit_allows(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for kind, policy := range map[string]limiter.Policy{
			"limiter_token_buckets": slow(100),
			"limiter_fixed_windows": long(100),
		} {
			schema := d.schema(t)
			store := d.store(t, schema, nil)
			l := newLimiter(t, store, policy, limiter.WithTimeout(patience))
			do(t, store, take(policy, "held", 1))
			release := d.hold(t, "SELECT FROM "+schema+"."+kind+" WHERE key = 'held' FOR UPDATE")
			const callers = 12
			answers := make(chan error, callers)
			go each(callers, func(int) {
				res, err := l.Allow(t.Context(), "held")
				if err == nil && !res.Allowed {
					t.Errorf("%s: refused, %+v", kind, res)
				}
				answers <- err
			})
			// Many times as long as a statement for many keys waits.
			var early []error
			for locked := time.After(time.Second); locked != nil; {
				select {
				case err := <-answers:
					early = append(early, err)
				case <-locked:
					locked = nil
				}
			}
			release()
			for _, err := range early {
				t.Errorf("%s: an answer while the row was locked: %v", kind, err)
			}
			for range callers - len(early) {
				if err := <-answers; err != nil {
					t.Errorf("%s: %v", kind, err)
				}
			}
		}
	})
}
