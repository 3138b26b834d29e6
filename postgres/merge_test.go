package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/sqlstore/rowtest"
)

func TestTakes_that_go_together_on_any_row(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		rowtest.RunMerged(t, d.store(t, schema, nil), rows{connect(t, d.dsn), schema}, 150)
	})
}

func TestTakes_that_go_together_do_not_wait_for_a_row_that_somebody_holds(t *testing.T) {
	onPostgres(t, func(t *testing.T, d *database) {
		schema := d.schema(t)
		store := d.store(t, schema, nil)
		l := newLimiter(t, store, slow(100), limiter.WithTimeout(patience))
		do(t, store, take(slow(100), "held", 1))
		release := d.hold(t, "SELECT FROM "+schema+".limiter_token_buckets WHERE key = 'held' FOR UPDATE")
		defer release()
		var held, others sync.WaitGroup
		for range 4 {
			held.Go(func() {
				if res, err := l.Allow(t.Context(), "held"); err != nil || !res.Allowed {
					t.Errorf("the held key: %+v, %v", res, err)
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

func TestRefusals_that_go_together_leave_no_trace_in_the_database(t *testing.T) {
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
