package opcontext_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlimit/limiter/internal/opcontext"
	"github.com/sqlimit/limiter/internal/testenv"
)

// ends starts an operation with a time limit, and returns a channel that gets the time at which it ends.
func ends(t *testing.T, deadlines *opcontext.Deadlines, timeout time.Duration) <-chan time.Time {
	t.Helper()
	ctx := deadlines.WithTimeout(t.Context(), timeout)
	ended := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { ended <- time.Now() })
	return ended
}

func TestEachEndsInTime(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{
		"the first first": {1, 2, 3, 4, 5}, "the last first": {5, 4, 3, 2, 1}, "mixed": {2, 5, 1, 4, 3}, "also mixed": {1, 5, 2, 3, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				deadlines, began := new(opcontext.Deadlines), time.Now()
				ended := make([]<-chan time.Time, len(order))
				for i, n := range order {
					ended[i] = ends(t, deadlines, time.Duration(n)*time.Microsecond)
				}
				for i, n := range order {
					if got, want := (<-ended[i]).Sub(began), time.Duration(n)*time.Microsecond; got != want {
						t.Errorf("%d ended after %v, want %v", n, got, want)
					}
				}
			})
		})
	}
}

// With thousands of operations, those that end in quick succession end together.
func TestManyEndTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deadlines, began := new(opcontext.Deadlines), time.Now()
		for range 2500 {
			ends(t, deadlines, time.Second)
		}
		first, second, third := ends(t, deadlines, ms), ends(t, deadlines, ms+1), ends(t, deadlines, 2*ms)
		for i, want := range []time.Duration{ms, ms + 200*time.Microsecond, 2 * ms} {
			if got := (<-[]<-chan time.Time{first, second, third}[i]).Sub(began); got != want {
				t.Errorf("operation %d ended after %v, want %v", i, got, want)
			}
		}
		<-time.After(time.Second)
	})
}

// The longest time limit sets no timer that replaces an earlier one.
func TestLongestLimitDelaysNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deadlines, began := new(opcontext.Deadlines), time.Now()
		ended := ends(t, deadlines, 250*ms)
		longest := deadlines.WithTimeout(t.Context(), math.MaxInt64)
		defer opcontext.Stop(longest)
		longest.Done()
		testenv.Equal(t, (<-ended).Sub(began), 250*ms, "it ended after")
	})
}

// A store may be made outside a bubble of testing/synctest, and used inside.
func TestTimerOfABubble(t *testing.T) {
	t.Parallel()
	deadlines := new(opcontext.Deadlines)
	synctest.Test(t, func(t *testing.T) {
		ctx := deadlines.WithTimeout(t.Context(), time.Hour)
		ctx.Done()
		opcontext.Stop(ctx)
	})
	select {
	case <-ends(t, deadlines, ms):
	case <-time.After(10 * time.Second):
		t.Error("after the bubble, an operation of 1 ms did not end within 10 s")
	}
}
