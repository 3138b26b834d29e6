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

func TestTimeLimitOfAConnectedStatement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sender{dial: 100 * ms, takes: 10 * ms}
		s.before = func(ctx context.Context, groups []*batch.Group) error {
			if groups[0].Op().Key == "fails" {
				return limiter.ErrNotApplied
			}
			select {
			case <-time.After(190 * ms):
				return nil
			case <-ctx.Done():
				return opcontext.Interrupted(ctx, limiter.ErrOutcomeUnknown, nil)
			}
		}
		q := open(s, batch.Config{Keys: 4, Shared: 1, Single: 1, HotKey: 2, Merges: merges, Deadlines: new(opcontext.Deadlines)})
		took(t, ask(t.Context(), q, take("lone", 1))()) // in its caller's goroutine
		answers := ask(t.Context(), q, take("fails", 1), take("b", 1), take("c", 1))()
		if n := took(t, answers[1:]); n != 2 {
			t.Errorf("%d of the 2 calls of a leader took", n)
		}
	})
}

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
