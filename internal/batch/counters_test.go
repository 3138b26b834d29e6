package batch_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
)

func TestCounters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		ops  []limiter.Op
		want limiter.StoreStats
	}{
		{"a lone take", []limiter.Op{take("a", 1)}, limiter.StoreStats{Statements: 1, Rows: 1, Units: 1}},
		{"takes of one key", slices.Repeat([]limiter.Op{take("a", 1)}, 4), limiter.StoreStats{Statements: 2, Rows: 2, Units: 4}},
		{
			"takes that failed because of another one",
			[]limiter.Op{take("d", 1), take("e", 1), take("c", 1), take("a", 1)},
			limiter.StoreStats{Statements: 5, Rows: 6, Units: 6, Retries: 2},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &sender{takes: 10 * ms, dial: 10 * ms, before: failTogether}
			took(t, ask(t.Context(), newQueue(s), c.ops...)())
			if got := s.counters.Stats(); got != c.want {
				t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
			}
		})
	}
}

// failTogether fails the statements for several keys.
func failTogether(_ context.Context, groups []*batch.Group) error {
	if len(groups) > 1 {
		return limiter.ErrNotApplied
	}
	return nil
}

func TestQueued(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		s.takes = 50 * ms
		want := func(when string, want int64) {
			t.Helper()
			if synctest.Wait(); s.counters.Queued.Load() != want {
				t.Errorf("%s: %d are queued, want %d", when, s.counters.Queued.Load(), want)
			}
		}
		refund := take("a", 1)
		refund.Kind = limiter.OpRefund
		first := ask(t.Context(), q, take("a", 1))
		want("a take in flight", 0)
		others := ask(t.Context(), q, take("a", 1), take("a", 1), refund)
		want("three behind it", 3)
		ctx, leave := context.WithCancel(t.Context())
		leaver := ask(ctx, q, take("a", 1))
		want("and one more", 4)
		leave()
		if a := leaver()[0]; !errors.Is(a.err, limiter.ErrCanceled) {
			t.Error(a.err)
		}
		want("it has left", 3)
		took(t, first())
		want("two takes are sent together", 1)
		took(t, others())
		want("all are done", 0)

		s.dial = 100 * ms
		slow := ask(t.Context(), q, take("b", 1))
		want("a take without a connection", 1)
		<-time.After(110 * ms)
		want("it has one", 0)
		took(t, slow())
		want("all are done", 0)
	})
}
