package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
)

// A take that goes out alone waits for its row as long as its time limit allows. So
// must those of one key that go out together: they hold up nobody else.
func TestTakesOfOneKeyWaitForItsRowAsLongAsTheirTimeLimitAllows(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		for kind, policy := range map[string]limiter.Policy{
			"limiter_token_buckets": slow(100),
			"limiter_fixed_windows": long(100),
		} {
			schema := d.schema(t)
			store := d.store(t, schema, nil)
			l := newLimiter(t, store, policy, limiter.WithTimeout(testTimeout))
			do(t, store, take(policy, "held", 1))
			release := d.holdLock(t, "SELECT FROM "+schema+"."+kind+" WHERE key = 'held' FOR UPDATE")
			// The first caller leaves, and the statement of all others finds the row locked.
			ctx, leave := context.WithCancel(t.Context())
			first := make(chan error)
			go func() {
				_, err := l.Allow(ctx, "held")
				first <- err
			}()
			d.blocked(t, 1)
			const callers = 12
			answers := make(chan error, callers)
			go each(callers, func(int) {
				res, err := l.Allow(t.Context(), "held")
				if err == nil && !res.Allowed {
					t.Errorf("%s: refused, %+v", kind, res)
				}
				answers <- err
			})
			waitForStats(t, store, func(s limiter.StoreStats) bool { return s.Queued >= callers })
			leave()
			if err := <-first; !errors.Is(err, limiter.ErrCanceled) { // its statement may have ended before
				t.Errorf("%s: a caller who leaves gets %v", kind, err)
			}
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
			// One made the row, at most two are of the first caller, and two of all others.
			if n := store.Stats().Statements; n > 5 {
				t.Errorf("%s: %d statements, want at most 5", kind, n)
			}
		}
	})
}
