package batch_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/opcontext"
)

func TestCounters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		setUp func(s *sender)
		ops   []limiter.Op
		fails int
		want  limiter.StoreStats
	}{
		{"a lone take", func(*sender) {}, []limiter.Op{take("a", 1)}, 0, limiter.StoreStats{Statements: 1, Rows: 1, Units: 1}},
		{
			"takes of several keys, of which two go at once", func(*sender) {},
			[]limiter.Op{take("d", 1), take("e", 1), take("c", 1), take("a", 1), take("b", 1)},
			0,
			limiter.StoreStats{Statements: 3, Rows: 5, Units: 5},
		},
		{
			"takes of one key", func(*sender) {},
			[]limiter.Op{take("a", 1), take("a", 1), take("a", 1), take("a", 1)},
			0,
			limiter.StoreStats{Statements: 2, Rows: 2, Units: 4},
		},
		{
			"takes that failed because of another one", func(s *sender) {
				s.before = func(_ context.Context, groups []*batch.Group) error {
					if len(groups) > 1 {
						return limiter.ErrNotApplied
					}
					return nil
				}
			},
			[]limiter.Op{take("d", 1), take("e", 1), take("c", 1), take("a", 1)},
			0,
			limiter.StoreStats{Statements: 5, Rows: 6, Units: 6, Retries: 2},
		},
		{
			"takes without a connection", func(s *sender) {
				s.connect = func() error { return limiter.ErrNotApplied }
			},
			[]limiter.Op{take("a", 1), take("b", 1), take("c", 1), take("c", 1)},
			4,
			limiter.StoreStats{},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, counters := &sender{takes: 10 * ms, dial: 10 * ms}, new(batch.Counters)
			c.setUp(s)
			fails := 0
			for _, a := range ask(t.Context(), counted(s, counters), c.ops...)() {
				if a.err != nil {
					fails++
				}
			}
			if got := counters.Stats(); got != c.want || fails != c.fails {
				t.Errorf("%s: %+v, %d failed; want %+v, %d", c.name, got, fails, c.want, c.fails)
			}
		})
	}
}

func counted(s *sender, counters *batch.Counters) *queue {
	return open(s, batch.Config{
		Keys: 4, Shared: 2, Single: 2, HotKey: 2, GiveBacks: 3, Merges: merges,
		Deadlines: new(opcontext.Deadlines), Counters: counters,
	})
}

func TestQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		counters := new(batch.Counters)
		s := &sender{takes: 50 * ms}
		q := counted(s, counters)
		want := func(when string, want int64) {
			t.Helper()
			if synctest.Wait(); counters.Queued.Load() != want {
				t.Errorf("%s: %d are queued, want %d", when, counters.Queued.Load(), want)
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
