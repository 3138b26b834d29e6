package batch_test

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestTimeLimit(t *testing.T) {
	sub(t, "of a call does not end those behind it", func(t *testing.T, s *sender, q *queue) {
		s.dial = 100 * ms
		ask(t.Context(), q, takes("a b")...)
		<-time.After(105 * ms)
		short := ask(t.Context(), q, within(15*ms, "c"))
		ask(t.Context(), q, takes("d e")...)
		short.want(t, "not applied+busy after 15ms")
	})
	for name, c := range map[string]struct{ key, want string }{
		"behind its own key":               {"a", "not applied+busy after 50ms"},
		"behind as many statements as fit": {"c", "not applied after 50ms"},
	} {
		sub(t, name, func(t *testing.T, s *sender, q *queue) {
			s.takes = 200 * ms
			ask(t.Context(), q, takes("a b")...)
			<-time.After(10 * ms)
			ask(t.Context(), q, within(50*ms, c.key)).want(t, c.want)
			<-time.After(s.takes)
			s.wantSent(t, "a, b")
		})
	}
	sub(t, "is not full again behind a statement that hangs", func(t *testing.T, s *sender, q *queue) {
		s.takes = time.Hour
		first := ask(t.Context(), q, take("k", 1))
		<-time.After(100 * ms)
		second := ask(t.Context(), q, take("k", 1))
		s.counters.Answered() // in another table
		second.want(t, "unknown after 250ms")
		first.want(t, "unknown after 250ms")
		third := ask(t.Context(), q, take("k", 1))
		s.counters.Answered()
		third.want(t, "unknown after 250ms")
	})
	sub(t, "of a statement is the longest of its calls", func(t *testing.T, s *sender, q *queue) {
		s.takes = time.Hour // hangs
		ask(t.Context(), q, within(50*ms, "a"), within(100*ms, "b")).want(t, "unknown after 50ms, unknown after 100ms")
		<-time.After(ms)
		_, n, _, _ := q.InFlight()
		testenv.Equal(t, n, 0, "statements that go on")
		s.takes = 150 * ms
		ask(t.Context(), q, takes("x y")...)
		s.takes = 250 * ms
		ask(t.Context(), q, within(time.Second, "b"), within(200*ms, "c")).want(t, "took, unknown") // in one statement
	})
}

func TestTimeLimitWithoutAConnection(t *testing.T) {
	for name, c := range map[string]struct {
		hold, dialing bool
		others        time.Duration // when the store answers others; 0: never
		want          string
	}{
		"behind a take":              {want: "not applied"},
		"behind a Hold":              {hold: true, want: "not applied"},
		"behind a Hold, and others":  {hold: true, others: 1, want: "not applied+busy"},
		"while others are answered":  {others: 1, want: "not applied+busy"},
		"while none can be made":     {others: 1, dialing: true, want: "not applied"},
		"while a second one is made": {others: 2950 * ms, dialing: true, want: "not applied+busy"},
	} {
		sub(t, name, func(t *testing.T, s *sender, q *queue) {
			q.config.Deadlines.Dialing = func() bool { return c.dialing }
			s.connect = func(ctx context.Context) error { return pause(ctx, time.Hour, limiter.ErrNotApplied) }
			if c.hold {
				h, err := batch.HoldAll(t.Context(), []*batch.Queue{q.Queue}, takes("k"), true)
				testenv.Must(t, err)
				defer func() { testenv.Equal(t, h.Busy(), c.others > 0); h.End(limiter.ErrNotApplied) }()
			} else {
				defer ask(t.Context(), q, within(2*time.Second, "k")).want(t, c.want)
			}
			defer ask(t.Context(), q, within(100*ms, "short")).want(t, c.want)
			behind := ask(t.Context(), q, take("k", 1))
			time.AfterFunc(cmp.Or(c.others, time.Hour), s.counters.Answered) // in another table
			unsent, err := batch.HoldAll(t.Context(), []*batch.Queue{q.Queue}, takes("z"), true)
			testenv.Must(t, err)
			unsent.End(limiter.ErrNotApplied)
			behind.want(t, c.want)
		})
	}
	sub(t, "is not busy if connecting fails", func(t *testing.T, s *sender, q *queue) {
		s.connect = func(context.Context) error { <-time.After(50 * ms); return limiter.ErrNotApplied }
		fails := ask(t.Context(), q, take("k", 1))
		s.counters.Answered()
		fails.want(t, "not applied")
	})
	sub(t, "starts again after others were answered", func(t *testing.T, s *sender, q *queue) {
		s.takes, s.connect = 100*ms, func(ctx context.Context) error { return pause(ctx, 200*ms, limiter.ErrNotApplied) }
		ask(t.Context(), open(s, q.config), within(time.Second, "other"))
		early := ask(t.Context(), open(s, q.config), take("early", 1))
		<-time.After(150 * ms)
		ctx, cancel := context.WithTimeout(t.Context(), 360*ms) // which leaves less
		defer cancel()
		late := ask(ctx, q, take("late", 1))
		ask(t.Context(), q, take("k", 1)).want(t, "took")
		late.want(t, "canceled+unknown")
		early.want(t, "unknown after 250ms")
	})
}

func TestShortTimeLimit(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		s.takes = 100*ms - 1
		short := within(ms, "a")
		look := short
		look.Kind = limiter.OpLook
		s.dial = 1
		ask(t.Context(), q, short, take("a", 1)).want(t, "unknown, took") // while the leader of the first waits for a connection
		s.wantSent(t, "a*2")
		<-time.After(s.takes)
		s.dial, s.rows = 0, nil
		ask(t.Context(), q, look).want(t, "not applied")
		ask(t.Context(), q, short).want(t, "unknown after 1ms")
		<-time.After(s.takes)
		synctest.Wait()
		testenv.Equal(t, s.rows["a"] == (limiter.Row{}), false, "its statement was cut off")
	})
	sub(t, "begins again with a new connection", func(t *testing.T, s *sender, q *queue) {
		s.dial, s.takes = 60*ms, 60*ms
		ask(t.Context(), q, within(90*ms, "a")).want(t, "took")
	})
}

func TestCounters(t *testing.T) {
	for name, c := range map[string]struct {
		keys string
		want limiter.StoreStats
	}{
		"takes of one key":                         {"a a a a", limiter.StoreStats{Statements: 2, Rows: 2, Units: 4}},
		"takes that failed because of another one": {"d e c a", limiter.StoreStats{Statements: 5, Rows: 6, Units: 6, Retries: 2}},
	} {
		sub(t, name, func(t *testing.T, s *sender, q *queue) {
			s.dial, s.before = 10*ms, failing(limiter.ErrNotApplied, together)
			ask(t.Context(), q, takes(c.keys)...).want(t, "4 took")
			testenv.Equal(t, s.counters.Stats(), c.want)
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
