package batch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sqlimit/limiter/internal/batch"
	"github.com/sqlimit/limiter/internal/testenv"
)

func TestSlowKeysEnd(t *testing.T) {
	slowly(t, "are asked once if the time limit bounds the wait, and are 1,024 at most", func(t *testing.T, s *sender, q *queue) {
		s.takes, s.before = 100*ms, failing(errRow, always)
		config := q.config // as on Citus
		config.Keys, config.LockWait, config.Shared, config.Single = 1, 0, 1, 1
		q = open(s, config)
		ctx, cancel := context.WithCancel(t.Context())
		answers, left := ask(t.Context(), q, takes("x x")...), ask(ctx, q, take("x", 1))
		holds := hold(t.Context(), q, take("x", 1))
		cancel()
		left.want(t, "canceled")
		answers.want(t, "not applied+row locked after 100ms, not applied+failed fast after 100ms")
		holds.want(t, "not applied+failed fast")
		s.takes = 0
		for i := range 1024 { // the queue remembers so many slow keys that were asked within a second
			op, want := take(fmt.Sprint(i), 1), 2+i
			if i < 1023 {
				ask(t.Context(), q, op).wait()
			} else { // one more: the queue forgets all idle ones
				want = 1
				wantError(t, q.Lock(t.Context(), &op), "not applied+row locked")
			}
			if n := q.Keys(); n != want {
				t.Fatalf("%d keys are remembered, want %d", n, want)
			}
		}
	})
	slowly(t, "are forgotten", func(t *testing.T, s *sender, q *queue) {
		free, lock := "", s.before
		s.before = func(ctx context.Context, groups []*batch.Group) error {
			if groups[0].Op().Key == free {
				return nil
			}
			return lock(ctx, groups)
		}
		want := func(n int) {
			t.Helper()
			// They do not wait for other keys.
			ask(t.Context(), q, take("a", 1), take("b", 1), booking("c")).want(t, "3 took after 1ms")
			testenv.Equal(t, q.Keys(), n, "remembered keys")
		}
		ask(t.Context(), q, take("w", 1)).wait()
		ask(t.Context(), q, take("x", 1)).wait()
		want(2)
		<-time.After(100 * ms)
		free = "x"
		ask(t.Context(), q, take("x", 1)).want(t, "took")
		want(1)
		<-time.After(time.Second)
		ask(t.Context(), q, take("y", 1)).wait()
		want(1)
	})
	slowly(t, "are not forgotten while calls wait", func(t *testing.T, s *sender, q *queue) {
		w, y := within(5*time.Second, "w"), within(5*time.Second, "y")
		ask(t.Context(), q, w) // has the slot
		<-time.After(30 * ms)
		ask(t.Context(), q, y, y) // wait for it
		<-time.After(1100 * ms)
		ask(t.Context(), q, take("x", 1)).want(t, "not applied+busy")
		last := ask(t.Context(), q, w, y, y)
		<-time.After(10 * ms)
		close(s.unlock)
		last.want(t, "3 took")
		var end time.Time
		for _, st := range s.statements() {
			if st.text != "w" {
				continue
			}
			if st.begin.Before(end) {
				t.Errorf("a statement for w began while another one waited")
			}
			end = st.end
		}
	})
}
