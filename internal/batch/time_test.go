package batch_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestTimeLimitOfTheCallsBehindTheFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sender{takes: 10 * ms, dial: 100 * ms}
		q := newQueue(s)
		first := ask(t.Context(), q, take("a", 1), take("b", 1))
		<-time.After(105 * ms)
		short := take("c", 1)
		short.Timeout = 15 * ms
		then := ask(t.Context(), q, short, take("d", 1), take("e", 1))
		took(t, first())
		answers := then()
		if !errors.Is(answers[0].err, limiter.ErrNotApplied) || answers[0].after != short.Timeout {
			t.Errorf("the call with %v: %v after %v", short.Timeout, answers[0].err, answers[0].after)
		}
		if n := took(t, answers[1:]); n != 2 {
			t.Errorf("%d of the 2 calls behind it took", n)
		}
	})
}

func TestTimeLimitInTheQueue(t *testing.T) {
	for name, c := range map[string]struct {
		key  string
		busy bool // whether the store is not at fault
	}{
		"behind its own key":               {"a", true},
		"behind as many statements as fit": {"c", false},
	} {
		sub(t, name, func(t *testing.T, s *sender, q *queue) {
			s.takes = 200 * ms
			first := ask(t.Context(), q, take("a", 1), take("b", 1))
			<-time.After(10 * ms)
			short := take(c.key, 1)
			short.Timeout = 50 * ms
			a := ask(t.Context(), q, short)()[0]
			if !errors.Is(a.err, limiter.ErrNotApplied) || errors.Is(a.err, limiter.ErrCanceled) || a.after != short.Timeout {
				t.Errorf("%v after %v, want ErrNotApplied after %v", a.err, a.after, short.Timeout)
			}
			if errors.Is(a.err, limiter.ErrKeyBusy) != c.busy || limiter.StoreFailed(a.err) == c.busy {
				t.Errorf("%v, want ErrKeyBusy %v", a.err, c.busy)
			}
			took(t, first())
			if n := len(s.statements()); n != 2 {
				t.Errorf("%d statements, want 2", n)
			}
		})
	}
}

func TestTimeLimitWithoutAConnection(t *testing.T) {
	for name, c := range map[string]struct{ hold, others bool }{
		"behind a take": {}, "behind a Hold": {hold: true}, "while others are answered": {others: true},
	} {
		sub(t, name, func(t *testing.T, s *sender, q *queue) {
			var connections atomic.Int64
			s.connect = func() error {
				if connections.Add(1) == 1 {
					<-time.After(2 * timeout)
				}
				return nil
			}
			if first := take("k", 1); c.hold {
				h, err := batch.HoldAll(t.Context(), []*batch.Queue{q.Queue}, []limiter.Op{first}, true)
				testenv.Must(t, err)
				defer h.End(false, nil)
			} else {
				first.Timeout = time.Minute
				defer ask(t.Context(), q, first)()
			}
			behind := ask(t.Context(), q, take("k", 1))
			if c.others {
				took(t, ask(t.Context(), newQueue(s), take("other", 1))()) // of another table
			}
			if a := behind()[0]; !errors.Is(a.err, limiter.ErrNotApplied) || errors.Is(a.err, limiter.ErrKeyBusy) != c.others {
				t.Errorf("%v, want ErrKeyBusy: %v", a.err, c.others)
			}
		})
	}
}

func TestShortTimeLimit(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		s.takes = 100*ms - 1
		short := take("a", 1)
		short.Timeout = ms
		look := short
		look.Kind = limiter.OpLook
		if a := ask(t.Context(), q, look)()[0]; !errors.Is(a.err, limiter.ErrNotApplied) || !limiter.StoreFailed(a.err) {
			t.Errorf("a look: %v, want ErrNotApplied, and a failure of the store", a.err)
		}
		if a := ask(t.Context(), q, short)()[0]; !errors.Is(a.err, limiter.ErrOutcomeUnknown) || a.after != ms {
			t.Errorf("%v after %v, want ErrOutcomeUnknown after %v", a.err, a.after, ms)
		}
		<-time.After(s.takes)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.rows["a"] == (limiter.Row{}) {
			t.Error("its statement was cut off")
		}
	})
}

func TestLongestTimeLimitOfAStatement(t *testing.T) {
	in(t, func(t *testing.T, s *sender, q *queue) {
		s.takes = time.Hour // hangs
		short, long := take("a", 1), take("b", 1)
		short.Timeout, long.Timeout = 50*ms, 100*ms
		for i, a := range ask(t.Context(), q, short, long)() {
			if want := []time.Duration{50 * ms, 100 * ms}[i]; !errors.Is(a.err, limiter.ErrOutcomeUnknown) || a.after != want {
				t.Errorf("take %d: %v after %v, want ErrOutcomeUnknown after %v", i, a.err, a.after, want)
			}
		}
	})
}
