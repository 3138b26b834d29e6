package breaker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter"
	"github.com/sqlimit/limiter/internal/breaker"
	"github.com/sqlimit/limiter/internal/testenv"
)

// within is an operation on a key of its own with a time limit.
func within(timeout time.Duration, key any) *limiter.Op {
	op := opOf(fmt.Sprint(key))
	op.Timeout = timeout
	return op
}

func TestShortTimeLimit(t *testing.T) {
	t.Parallel()
	timedOut := fmt.Errorf("%w: %w", limiter.ErrOutcomeUnknown, context.DeadlineExceeded)
	for _, c := range []struct {
		name    string
		timeout time.Duration
		took    time.Duration
		err     error
		opens   int // the operation whose failure opens the breaker, 0 for none
	}{
		{"a timeout does not count", 50*ms - 1, 50*ms - 1, timedOut, 0},
		{"a timeout of a longer one counts", 50 * ms, 50 * ms, timedOut, 5},
		{"no limit is not short", 0, 50 * ms, timedOut, 5},
		{"a late timeout does not count", ms, time.Second, timedOut, 0},
		{"a timeout of a connection that is not made counts", ms, time.Second + ms, timedOut, 2},
		{"another error counts", ms, ms, limiter.ErrNotApplied, 5},
		{"a second more than the time limit counts at once", 250 * ms, 1250 * ms, limiter.ErrNotApplied, 2},
		{"less than a second more does not", 250 * ms, 1249 * ms, limiter.ErrNotApplied, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, opens := new(breaker.Breaker), 0
				for i := 1; i <= 9 && opens == 0; i++ {
					op := within(c.timeout, i)
					pass, err := b.Enter(t.Context(), op)
					testenv.Must(t, err)
					<-time.After(c.took)
					pass.Leave(c.err, op)
					if open, _ := b.Stats(); open {
						opens = i
					}
				}
				testenv.Equal(t, opens, c.opens, "the failure that opened the breaker")
			})
		})
	}

	for name, short := range map[string]struct{ timeout, deadline time.Duration }{
		"by its limit":    {timeout: 50*ms - 1, deadline: time.Hour},
		"by its deadline": {timeout: 250 * ms, deadline: 100*ms - 1},
	} {
		// sends reports whether the operation is let through, which then ends with err.
		sends := func(t *testing.T, b *breaker.Breaker, err error) bool {
			ctx, cancel := context.WithTimeout(t.Context(), short.deadline)
			defer cancel()
			op := within(short.timeout, "short")
			pass, refused := b.Enter(ctx, op)
			if refused == nil {
				pass.Leave(err, op)
			}
			return refused == nil
		}
		left := fmt.Errorf("%w: %w", limiter.ErrCanceled, timedOut)
		t.Run("is let through only after a second without a probe "+name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := opened(limiter.ErrNotApplied)
				begin := time.Now()
				var sent []time.Duration
				for time.Since(begin) < 4*time.Second {
					<-time.After(5 * ms)
					if sends(t, b, left) {
						sent = append(sent, time.Since(begin))
					}
				}
				testenv.Equal(t, sent, []time.Duration{1050 * ms, 2050 * ms, 3050 * ms}, "let through after")
				if !through(b, "k", limiter.ErrNotApplied) {
					t.Error("it postponed the probe")
				}
				<-time.After(1100 * ms)
				if !sends(t, b, nil) || !through(b, "k", nil) || !through(b, "k", nil) {
					t.Error("its answer did not close the breaker")
				}
			})
		})
	}
}
