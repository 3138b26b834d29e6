package batch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestCounters(t *testing.T) {
	for name, c := range map[string]struct {
		keys    string
		answers uint64
		want    limiter.StoreStats
	}{
		"takes of one key": {"a a a a", 2, limiter.StoreStats{Statements: 2, Rows: 2, Units: 4}},
		"takes that failed because of another one": {
			"d e c a", 4, limiter.StoreStats{Statements: 5, Rows: 6, Units: 6, Retries: 2},
		},
	} {
		sub(t, name, func(t *testing.T, s *sender, q *queue) {
			s.dial, s.before = 10*ms, failing(limiter.ErrNotApplied, together)
			ask(t.Context(), q, takes(c.keys)...).want(t, "4 took")
			if got, answers := s.counters.Stats(), s.counters.Answers.Load(); got != c.want || answers != c.answers {
				t.Errorf("%+v and %d answers, want %+v and %d", got, answers, c.want, c.answers)
			}
		})
	}
	sub(t, "operations that wait", func(t *testing.T, s *sender, q *queue) {
		s.takes = 50 * ms
		want := func(when string, want int64) {
			t.Helper()
			synctest.Wait()
			testenv.Equal(t, s.counters.Queued.Load(), want, "queued with", when)
		}
		first := ask(t.Context(), q, take("a", 1))
		want("a take in flight", 0)
		ask(t.Context(), q, take("a", 1), take("a", 1), of(limiter.OpRefund, "a", 1))
		want("three behind it", 3)
		ctx, leave := context.WithCancel(t.Context())
		leaver := ask(ctx, q, take("a", 1))
		want("and one more", 4)
		leave()
		leaver.want(t, "canceled")
		want("it has left", 3)
		first.want(t, "took")
		want("two takes are sent together", 1)
		<-time.After(2 * s.takes)
		want("all are done", 0)

		s.dial = 100 * ms
		ask(t.Context(), q, take("b", 1))
		want("a take without a connection", 1)
		<-time.After(110 * ms)
		want("it has one", 0)
	})
}
